"""What each policy does with jobs for which that can be told by hand."""

import random

import pytest
from tests.unit.sim.replay_worlds import EXACT, lived, most_in_use, starts, trace

from muster.sim.replay.estimates import estimates
from muster.sim.replay.machines import Machines
from muster.sim.replay.policies import POLICIES, Options
from muster.sim.replay.running import Setup, replay
from muster.sim.replay.shares import Shares
from muster.sim.traces import Trace

HOUR = 3600.0


def test_jobs_that_fit_start_when_they_come_and_end_when_the_trace_says():
    history = lived(trace((0, 10, 4), (3, 10, 4), (20, 5, 8)), "1x8", "fifo")
    assert starts(history) == [0, 3, 20]
    assert [life.ended for life in history.lives] == [10, 13, 25]


def test_fifo_holds_up_whoever_is_behind_one_that_does_not_fit():
    history = lived(trace((0, 100, 6), (1, 10, 8), (2, 10, 2)), "1x8", "fifo")
    assert starts(history) == [0, 100, 110]


def test_best_effort_passes_by_who_does_not_fit():
    history = lived(trace((0, 100, 6), (1, 10, 8), (2, 10, 2)), "1x8", "best-effort")
    assert starts(history) == [0, 100, 2]


def test_a_gang_starts_as_a_whole_and_only_where_nodes_have_room_for_its_pods():
    # 4 GPUs are free on each of two nodes, which is no room for a pod with 8.
    history = lived(trace((0, 50, 4), (0, 60, 4), (0, 70, 4), (1, 10, 16)), "2x8", "best-effort")
    assert starts(history)[3] == 70
    assert most_in_use(history) == {"node-00000": 8, "node-00001": 8}


def test_jobs_are_put_where_little_is_left_so_that_whole_nodes_stay_free():
    history = lived(trace((0, 100, 2), (1, 100, 2), (2, 100, 8)), "2x8", "fifo")
    assert starts(history) == [0, 1, 2]


def test_shortest_first():
    jobs = trace((0, 10, 8), (1, 30, 8), (2, 20, 8), (3, 5, 8))
    assert starts(lived(jobs, "1x8", "shortest")) == [0, 35, 15, 10]
    assert starts(lived(jobs, "1x8", "best-effort")) == [0, 10, 40, 60]


def test_fair_sharing_takes_back_what_is_lent_and_counts_what_that_cost():
    jobs = trace((0, 3 * HOUR, 4, "a"), (0, 3 * HOUR, 4, "a"), (1.5 * HOUR, HOUR, 4, "b"))
    history = lived(jobs, "1x8", "fair", "a=4,b=4", Options(checkpoint_seconds=HOUR))
    assert starts(history)[2] == 1.5 * HOUR
    assert history.preemptions == 1
    victim = next(life for life in history.lives if life.lost)
    assert victim.lost == 0.5 * HOUR, "an hour of the one and a half was saved"
    assert victim.ended == 2.5 * HOUR + 2 * HOUR
    assert [life.lost for life in lived(jobs, "1x8", "fair", "a=4,b=4", Options(checkpoint_seconds=0)).lives].count(
        1.5 * HOUR
    ) == 1, "without checkpoints all is lost"


def test_queues_that_cannot_take_back_wait_until_what_they_lent_ends():
    jobs = trace((0, 3 * HOUR, 8, "a"), (HOUR, HOUR, 4, "b"))
    history = lived(jobs, "1x8", "best-effort", "a=4,b=4")
    assert starts(history)[1] == 3 * HOUR
    assert history.preemptions == 0


def test_queues_are_owed_what_they_had_jobs_for_and_did_not_have_of_their_own():
    jobs = trace((0, 3 * HOUR, 8, "a"), (HOUR, HOUR, 2, "b"))
    assert lived(jobs, "1x8", "best-effort", "a=4,b=4").owed == {"a": 0, "b": 2 * 2 * HOUR}, "two, for two hours"
    assert lived(jobs, "1x8", "fair", "a=4,b=4").owed["b"] == 0, "it is given back at once"


def test_it_tells_how_far_it_has_come():
    jobs = trace(*((float(number), 1.0, 1) for number in range(250)))
    machines, told = Machines.parse("1x8"), list[int]()
    replay(Setup(jobs, machines, Shares.parse("one", jobs, 8), POLICIES["fifo"], EXACT), told.append)
    assert told == [100, 200]


def wrong_about_the_first(jobs: Trace) -> int:
    """A seed with which it is thought to take far less long than it does, and the second about what it does."""
    return next(
        seed for seed in range(10_000) if (guesses := estimates(jobs.jobs, 2, seed))[0] < 60 and 200 < guesses[1] < 400
    )


class TestBackfill:
    """A large job, and a stream of small ones that would never leave a node empty for it."""

    STREAM = trace((0, 10, 1), (0, 10, 8), *((5.0 * number, 10, 1) for number in range(1, 200)))

    def test_without_a_reservation_the_large_job_waits_until_the_stream_ends(self):
        assert starts(lived(self.STREAM, "1x8", "best-effort"))[1] > 900

    @pytest.mark.parametrize("bound", [0, 100, 300])
    def test_it_waits_little_longer_than_the_bound(self, bound):
        history = lived(self.STREAM, "1x8", "backfill", options=Options(noise=0, bound_seconds=bound))
        assert bound <= starts(history)[1] <= bound + 15

    def test_the_price_is_what_stood_idle_meanwhile(self):
        history = lived(self.STREAM, "1x8", "backfill", options=Options(noise=0, bound_seconds=100))
        # Reserved at 100, when two run: one until 105 and one, just come, until 110.
        assert starts(history)[1] == 110
        assert history.held_idle == 5 * 6 + 5 * 7
        assert lived(self.STREAM, "1x8", "best-effort").held_idle == 0

    def test_those_are_let_in_who_are_gone_in_time_and_no_others(self):
        jobs = trace((0, 100, 6), (0, 10, 8), (20, 80, 1), (20, 81, 1), (30, 5, 2))
        history = lived(jobs, "1x8", "backfill", options=Options(noise=0, bound_seconds=10))
        assert starts(history) == [0, 100, 20, 110, 110], "the last one finds one GPU free, and asks for two"

    def test_nodes_that_are_not_reserved_are_for_all(self):
        jobs = trace((0, 100, 8), (0, 50, 1), (0, 10, 8), (20, 500, 7))
        history = lived(jobs, "2x8", "backfill", options=Options(noise=0, bound_seconds=10))
        assert starts(history)[2] == 50, "the node that is free the soonest was kept for it"
        assert starts(history)[3] == 60

    @pytest.mark.parametrize("seed", range(4))
    def test_where_estimates_are_right_every_reserved_job_starts_when_promised(self, seed):
        chance = random.Random(seed)
        came = sorted(
            (chance.uniform(0, 3000), chance.uniform(5, 400), chance.choice((1, 1, 1, 2, 4, 8, 16))) for _ in range(250)
        )
        jobs = trace(*((*job, chance.choice("abc")) for job in came))
        history = lived(jobs, "3x8", "backfill", "demand", Options(noise=0, bound_seconds=200))
        assert len(history.promises) > 10
        for promise in history.promises:
            life = history.lives[promise.job]
            assert promise.made >= life.job.arrives + 200
            assert life.first_started is not None
            assert life.first_started <= promise.due

    def test_a_reservation_moves_where_somebody_takes_longer_than_estimated(self):
        """Estimates that are wrong by much: nodes are not kept for ever behind one who was to have gone."""
        jobs = trace((0, 1000, 8), (0, 300, 8), (0, 10, 8), *((5.0 * number, 20, 1) for number in range(1, 100)))
        options = Options(noise=2, bound_seconds=10, seed=wrong_about_the_first(jobs))
        history = lived(jobs, "2x8", "backfill", options=options)
        (promise,) = history.promises
        assert promise.due < 300, "the first was expected to go before the second"
        assert starts(history)[2] == 300

    def test_small_jobs_have_no_reservation(self):
        jobs = trace((0, 100, 6), (0, 10, 4), (20, 80, 2))
        assert lived(jobs, "1x8", "backfill", options=Options(noise=0, bound_seconds=0)).held_idle == 0


@pytest.mark.parametrize("policy", ["fifo", "best-effort", "fair", "shortest", "backfill"])
def test_nothing_is_lost_and_no_node_is_overfull_whatever_comes(policy):
    came = [(7.0 * (number // 3), 11.0 + number * 37 % 400, 1 + number * 13 % 16) for number in range(60)]
    jobs = trace(*((*job, "abc"[number % 3]) for number, job in enumerate(came)))
    history = lived(jobs, "3x8,2x4", policy, "demand", EXACT)
    assert all(life.ended is not None and life.took >= life.job.seconds for life in history.lives)
    assert max(history.course.busy) <= 32
    assert history.course.busy[-1] == history.course.waiting[-1] == 0
    if not history.preemptions:
        sizes = {**{f"node-{number:05}": 8 for number in range(3)}, "node-00003": 4, "node-00004": 4}
        assert all(used <= sizes[name] for name, used in most_in_use(history).items())
