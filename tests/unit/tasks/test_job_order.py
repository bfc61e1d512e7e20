"""The order of jobs: what is shown, and which times put a job before or behind another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import kueue, muster
from muster.api.meta import Instant, ObjectMeta, OwnerReference
from muster.api.muster.names import Phase
from muster.tasks import job_views
from muster.tasks.job_control import placed
from muster.tasks.job_views import JobState, JobType, JobView, Search, Standings

NAMES = "abcdefgh"


def an_allocation(
    name: str, phase: str = Phase.QUEUED, *, job: str = "", pool: str = "gold", priority: int = 42, slots: int = 2
) -> muster.Allocation:
    made = "2026-01-01T00:00:00Z"
    return muster.Allocation(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", creation_timestamp=made),
        spec=muster.AllocationSpec(
            task_id=f"task-{name}", job_id=job or f"job-{name}", name=name, task_type="TRIAL" if job else "COMMAND",
            pool=pool, priority=priority, slots=slots,
        ),
        status=muster.AllocationStatus(phase=phase),
    )  # fmt: skip


def a_workload(name: str, owner: str = "") -> kueue.Workload:
    owners = (OwnerReference(kind="Job", name=owner, controller=True),) if owner else ()
    meta = ObjectMeta(name=f"wl-{name}", namespace="default", uid=f"uid-wl-{name}", owner_references=owners)
    return kueue.Workload(metadata=meta)


def lined_up(*allocations: muster.Allocation, waiting: str = "") -> list[JobView]:
    standings = Standings(
        {"gold": [f"default/wl-{name}" for name in waiting]},
        {"gold": "nvidia.com/gpu"},
        searches={"exp": Search(7, "mnist")},
    )
    found = [(each, a_workload(each.metadata.name)) for each in allocations]
    return job_views.jobs(found, [], standings)


def test_what_runs_comes_first_then_what_has_quota_then_the_queue() -> None:
    found = lined_up(
        an_allocation("a"), an_allocation("b"), an_allocation("c", Phase.PENDING),
        an_allocation("d", Phase.PENDING, priority=1), an_allocation("e", Phase.RUNNING),
        an_allocation("f", Phase.TERMINATED), an_allocation("g"),
        waiting="ba",
    )  # fmt: skip
    assert [(job.name, job.jobs_ahead) for job in found] == [
        ("e", -1),
        ("d", 0),
        ("c", 1),
        ("b", 2),
        ("a", 3),
        ("g", 4),
    ]
    assert [job.state for job in found][:2] == [JobState.SCHEDULED, JobState.QUEUED]
    assert [(job.allocated_slots, job.requested_slots) for job in found][:2] == [(2, 2), (0, 2)]


def test_trials_of_an_experiment_are_one_job() -> None:
    (job,) = lined_up(an_allocation("a", Phase.RUNNING, job="exp"), an_allocation("b", job="exp"), waiting="b")
    assert (job.id, job.type, job.state) == ("exp", JobType.EXPERIMENT, JobState.SCHEDULED)
    assert (job.name, job.entity) == ("mnist", "7")
    assert (job.allocated_slots, job.requested_slots, job.tasks) == (2, 4, ["task-a", "task-b"])


def test_other_jobs_of_the_queue_are_shown_as_external() -> None:
    standings = Standings({"gold": ["default/wl-x"]}, {"gold": "cpu"})
    (job,) = job_views.jobs([], [(a_workload("x", owner="train"), "gold")], standings)
    assert (job.type, job.name, job.priority, job.id) == (JobType.EXTERNAL, "Job default/train", None, "uid-wl-x")
    assert job_views.counts([job], "gold") == job_views.Counts(queued=1)


@st.composite
def queues(draw: st.DrawFn) -> tuple[list[tuple[str, Instant]], set[str], set[str], bool]:
    """In order; many at the same time, as seconds have it."""
    size = draw(st.integers(2, len(NAMES)))
    times = sorted(draw(st.lists(st.sampled_from([1.7e9, 1.7e9 + 1, 1.7e9 + 2]), min_size=size, max_size=size)))
    names = list(NAMES[:size])
    mine = set(draw(st.lists(st.sampled_from(names), min_size=1, max_size=2)))
    theirs = set(draw(st.lists(st.sampled_from(names), min_size=1, max_size=2))) - mine
    return [(name, Instant(at)) for name, at in zip(names, times, strict=True)], mine, theirs, draw(st.booleans())


@given(queues())
def test_a_moved_job_stands_right_where_it_should_and_the_others_as_before(
    case: tuple[list[tuple[str, Instant]], set[str], set[str], bool],
) -> None:
    times, mine, theirs, is_ahead = case
    wanted = placed(times, mine, theirs, is_ahead=is_ahead)
    if not theirs:
        assert wanted == {}
        return
    # Equal times are told apart by something else, here by name, as before.
    after = sorted((wanted.get(name, at), name) for name, at in times)
    order = [name for _, name in after]
    others = [name for name in order if name not in mine]
    assert others == [name for name, _ in times if name not in mine]
    anchor = next(n for n in others if n in theirs) if is_ahead else [n for n in others if n in theirs][-1]
    place = order.index(anchor)
    beside = order[place - len(mine) : place] if is_ahead else order[place + 1 : place + 1 + len(mine)]
    assert set(beside) == mine
    moved_times = [wanted[name] for name in mine]
    assert all(wanted[name] != at for name, at in times if name not in mine and name in wanted)
    assert len(set(moved_times)) == len(moved_times)


@pytest.mark.parametrize("is_ahead", [True, False])
def test_whoever_is_not_there_moves_nothing(is_ahead: bool) -> None:
    assert placed([("a", Instant(1.0))], {"x"}, {"a"}, is_ahead=is_ahead) == {}
    assert placed([("a", Instant(1.0))], {"a"}, {"x"}, is_ahead=is_ahead) == {}
