"""One queue: who is first, who is parked, and what brings it back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.quota.queue_worlds import PLAIN, START, a_condition, a_queue, a_workload, after, text

from muster.api.meta import Instant
from muster.quota.gates import Gates
from muster.quota.queueing import PendingQueue, RequeueReason, Verdict
from muster.quota.queueing.backoff import is_backoff_over
from muster.quota.queueing.lanes import Lanes
from muster.quota.settings import Settings
from muster.quota.workloads import EVICTED, QUOTA_RESERVED, REQUEUED, ScanPosition, WorkloadInfo

ALL = frozenset({"ns"})
KEYS = st.integers(0, 12)


def a_pending(*infos: WorkloadInfo, strict: bool = False, config: Settings = PLAIN) -> PendingQueue:
    queue = PendingQueue(a_queue(strict=strict), config)
    for info in infos:
        queue.push(info, START)
    return queue


def popped(queue: PendingQueue) -> list[str]:
    found = []
    while (info := queue.pop()) is not None:
        found.append(info.view.metadata.name)
    return found


def parked(queue: PendingQueue) -> set[str]:
    return {info.key for info in queue.parked()}


def fail(queue: PendingQueue, reason: RequeueReason = RequeueReason.NO_FIT) -> WorkloadInfo:
    """The first is looked at in vain."""
    info = queue.pop()
    assert info is not None
    queue.requeue(info, reason, START)
    return info


# Order


def test_higher_priority_then_longer_wait_then_uid_then_name() -> None:
    infos = [
        a_workload("late", priority=1, at=5),
        a_workload("early", priority=1, at=1),
        a_workload("urgent", priority=2, at=9),
        a_workload("twin-b", at=3, uid="same"),
        a_workload("twin-a", at=3, uid="same"),
        a_workload("older-uid", at=3, uid="rather"),
    ]
    expected = ["urgent", "early", "late", "older-uid", "twin-a", "twin-b"]
    assert popped(a_pending(*infos)) == expected
    assert popped(a_pending(*reversed(infos), strict=True)) == expected


def test_an_eviction_counts_as_the_start_of_the_wait_where_so_set() -> None:
    evicted = [a_condition(EVICTED, reason="PodsReadyTimeout", at=7)]
    assert popped(a_pending(a_workload("old", at=0, conditions=evicted), a_workload("new", at=5))) == ["new", "old"]
    by_creation = Settings(requeues_by_eviction_time=False)
    old = a_workload("old", at=0, conditions=evicted, settings=by_creation)
    assert popped(a_pending(old, a_workload("new", at=5))) == ["old", "new"]


def test_a_changed_priority_moves_an_active_workload() -> None:
    queue = a_pending(a_workload("a", priority=1), a_workload("b"))
    queue.push(a_workload("b", priority=2, generation=2), START)
    assert popped(queue) == ["b", "a"]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), KEYS, st.integers(-2, 2)), st.tuples(st.just("out"), KEYS, st.just(0)), st.none()
        )
    )
)
def test_lanes_agree_with_a_sorted_list(steps: list[tuple[str, int, int] | None]) -> None:
    lanes, model = Lanes(), dict[str, WorkloadInfo]()
    for step in steps:
        if step is None:
            first = min(model.values(), key=lambda info: (-info.priority, info.uid), default=None)
            assert lanes.peek() is first
            assert lanes.pop() is first
            if first is not None:
                del model[first.key]
        elif step[0] == "put":
            info = a_workload(f"w{step[1]}", priority=step[2])
            lanes.put(info, 1)
            model[info.key] = info
        else:
            assert lanes.discard(f"ns/w{step[1]}") is model.pop(f"ns/w{step[1]}", None)
        assert {info.key for info in lanes} == set(model)
    assert len(lanes) == len(model)


def test_lanes_do_not_grow_with_every_change() -> None:
    lanes = Lanes()
    lanes.put(a_workload("first", priority=9), 1)
    for number in range(10_000):
        lanes.put(a_workload("busy", at=number), 1)
    assert lanes._stored < 200
    assert [lanes.pop(), lanes.pop(), lanes.pop()][2] is None


@given(st.dictionaries(KEYS, st.integers(-2, 2)), st.dictionaries(KEYS, st.integers(-2, 2)), KEYS)
def test_many_at_once_come_out_as_one_by_one(before: dict[int, int], more: dict[int, int], first: int) -> None:
    together, single = Lanes(), Lanes()
    for lanes in (together, single):
        for number, priority in before.items():
            lanes.put(a_workload(f"w{number}", priority=priority), 1)
    infos = [a_workload(f"w{number}", priority=priority) for number, priority in more.items()]
    together.put_all(infos, f"ns/w{first}")
    for info in infos:
        single.put(info, 0 if info.key == f"ns/w{first}" else 1)
    while len(together):
        one, other = together.pop(), single.pop()
        assert one is not None
        assert other is not None
        assert one.key == other.key
    assert single.pop() is None


# Back to the queue


@pytest.mark.parametrize(
    ("reason", "strict", "is_parked"),
    [
        (RequeueReason.GENERIC, False, True),
        (RequeueReason.NO_FIT, False, True),
        (RequeueReason.PREEMPTION_NO_CANDIDATES, False, True),
        (RequeueReason.PREEMPTION_GATED, False, True),
        (RequeueReason.NAMESPACE_MISMATCH, False, True),
        (RequeueReason.FAILED_AFTER_NOMINATION, False, False),
        (RequeueReason.PENDING_PREEMPTION, False, False),
        (RequeueReason.PENDING_MIGRATION, False, False),
        (RequeueReason.PREEMPTION_FAILED, False, False),
        (RequeueReason.NAMESPACE_MISMATCH, True, True),
        (RequeueReason.GENERIC, True, False),
        (RequeueReason.NO_FIT, True, False),
        (RequeueReason.PREEMPTION_GATED, True, False),
    ],
)
def test_the_reason_decides_whether_it_is_parked(reason: RequeueReason, strict: bool, is_parked: bool) -> None:
    queue = a_pending(a_workload("a"), strict=strict)
    info = fail(queue, reason)
    assert (info.key in parked(queue)) is is_parked
    assert queue.has_active() is not is_parked
    assert queue.counts() == ((0, 1) if is_parked else (1, 0))


def test_what_still_rests_is_parked_whatever_the_reason() -> None:
    resting = a_workload("a", status={"requeueState": {"requeueAt": text(60)}})
    queue = PendingQueue(a_queue(), PLAIN)
    queue.push(resting, START)
    assert sorted(parked(queue)) == ["ns/a"]
    assert queue.flush(ALL, after(59)) == 0
    assert queue.flush(ALL, after(60)) == 1
    assert queue.pop() is resting
    queue.requeue(resting, RequeueReason.PENDING_PREEMPTION, START)
    assert sorted(parked(queue)) == ["ns/a"]


def test_untried_flavors_bring_it_back_at_once() -> None:
    queue = a_pending(a_workload("a"))
    info = queue.pop()
    assert info is not None
    info.scan = ScanPosition([{"cpu": 0}])
    queue.requeue(info, RequeueReason.NO_FIT, START)
    assert queue.has_active()
    info = queue.pop()
    assert info is not None
    info.scan = ScanPosition([{"cpu": -1}])
    queue.requeue(info, RequeueReason.NO_FIT, START)
    assert not queue.has_active()


def test_a_flush_during_the_look_counts_for_what_was_looked_at() -> None:
    queue = a_pending(a_workload("a"), a_workload("b"))
    queue.flush(ALL, START)
    first = queue.pop()
    queue.flush(ALL, START)
    second = queue.pop()
    assert first is not None
    assert second is not None
    queue.requeue(second, RequeueReason.GENERIC, START)
    queue.requeue(first, RequeueReason.GENERIC, START)
    assert sorted(parked(queue)) == [second.key]


def test_what_is_there_already_is_not_requeued() -> None:
    queue = a_pending(a_workload("a"))
    info = fail(queue, RequeueReason.GENERIC)
    assert not queue.requeue(info, RequeueReason.GENERIC, START)
    assert queue.requeue(info, RequeueReason.FAILED_AFTER_NOMINATION, START)
    assert not queue.requeue(info, RequeueReason.FAILED_AFTER_NOMINATION, START)
    assert queue.counts() == (1, 0)


def test_a_change_while_in_flight_waits_for_the_requeue() -> None:
    queue = a_pending(a_workload("a"))
    old = queue.pop()
    assert old is not None
    old.scan = ScanPosition([{"cpu": -1}])
    queue.push(a_workload("a", conditions=[a_condition(QUOTA_RESERVED, "False", "WaitingForQuota")]), START)
    assert not queue.has_active()
    queue.requeue(old, RequeueReason.NO_FIT, START)
    kept = queue.get_parked("ns/a")
    assert kept is not None
    assert QUOTA_RESERVED in kept.conditions
    assert kept.scan is old.scan


def test_a_verdict_about_what_has_changed_meanwhile_does_not_count() -> None:
    queue = a_pending(a_workload("a", cpu="8"))
    old = queue.pop()
    assert old is not None
    queue.push(a_workload("a", cpu="1", generation=2), START)
    queue.requeue(old, RequeueReason.NO_FIT, START)
    assert queue.has_active()
    assert not queue.shapes


# What a change of a parked workload does


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(a_workload("a", generation=2), id="generation"),
        pytest.param(a_workload("a", priority=1), id="priority"),
        pytest.param(a_workload("a", status={"reclaimablePods": [{"name": "main", "count": 1}]}), id="reclaimable"),
        pytest.param(a_workload("a", conditions=[a_condition(EVICTED)]), id="evicted"),
        pytest.param(a_workload("a", conditions=[a_condition(REQUEUED)]), id="requeued"),
    ],
)
def test_a_change_that_may_matter_makes_it_active(changed: WorkloadInfo) -> None:
    queue = a_pending(a_workload("a"))
    fail(queue, RequeueReason.GENERIC)
    queue.push(changed, START)
    assert queue.pop() is changed


def test_other_changes_leave_it_parked() -> None:
    queue = a_pending(a_workload("a"))
    info = fail(queue)
    info.scan = ScanPosition([{"cpu": -1}])
    told = a_workload("a", conditions=[a_condition(QUOTA_RESERVED, "False", "WaitingForQuota")])
    queue.push(told, START)
    assert queue.get_parked("ns/a") is told
    assert told.scan is info.scan


def test_without_generations_specs_are_compared() -> None:
    queue = a_pending(a_workload("a", generation=0))
    fail(queue, RequeueReason.GENERIC)
    queue.push(a_workload("a", generation=0), START)
    assert "ns/a" in parked(queue)
    queue.push(a_workload("a", generation=0, cpu="2"), START)
    assert queue.has_active()


def test_an_opened_gate_makes_it_active() -> None:
    def gated(*positions: str) -> WorkloadInfo:
        states = [{"name": f"g{number}", "position": position} for number, position in enumerate(positions)]
        return a_workload("a", gates=["g0", "g1"], status={"preemptionGates": states})

    queue = a_pending(gated())
    fail(queue, RequeueReason.PREEMPTION_GATED)
    queue.push(gated("Open", "Closed"), START)
    assert not queue.has_active()
    queue.push(gated("Open", "Open"), START)
    assert queue.has_active()


# Preemptors


def test_whoever_has_others_preempted_stays_first() -> None:
    queue = a_pending(a_workload("a", priority=5), a_workload("b", priority=3))
    fail(queue, RequeueReason.PENDING_PREEMPTION)
    queue.push(a_workload("urgent", priority=9), START)
    assert queue.preemptor == ("ns/a", 1, True)
    assert [position.info.key for position in queue.positions().values()] == ["ns/a", "ns/urgent", "ns/b"]
    first = queue.pop()
    assert first is not None
    assert first.key == "ns/a"
    assert queue.is_preemptor(first)
    assert not queue.is_preemptor(a_workload("a", generation=2))


def test_another_preemptor_takes_the_place_of_the_first() -> None:
    queue = a_pending(a_workload("a", priority=1), a_workload("b", priority=2))
    fail(queue, RequeueReason.PENDING_PREEMPTION)
    first, second = queue.pop(), queue.pop()
    assert first is not None
    assert second is not None
    queue.requeue(first, RequeueReason.FAILED_AFTER_NOMINATION, START)
    queue.requeue(second, RequeueReason.PENDING_MIGRATION, START)
    assert popped(queue) == ["a", "b"]


def test_a_deleted_preemptor_is_forgotten() -> None:
    queue = a_pending(a_workload("a"))
    fail(queue, RequeueReason.PENDING_PREEMPTION)
    queue.delete("ns/a")
    assert queue.preemptor is None


def test_a_strict_queue_has_a_preemptor_that_gives_way() -> None:
    queue = a_pending(a_workload("a"), strict=True)
    fail(queue, RequeueReason.PENDING_PREEMPTION)
    queue.push(a_workload("urgent", priority=9), START)
    assert queue.preemptor == ("ns/a", 1, False)
    assert popped(queue) == ["urgent", "a"]


def test_a_queue_that_becomes_strict_serves_by_priority() -> None:
    queue = a_pending(a_workload("a"))
    fail(queue, RequeueReason.PENDING_PREEMPTION)
    queue.push(a_workload("urgent", priority=9), START)
    queue.set_policy(a_queue(strict=True))
    assert popped(queue) == ["urgent", "a"]


# Shapes


def test_one_that_cannot_fit_parks_all_of_its_shape() -> None:
    queue = a_pending(a_workload("big-1", cpu="9", at=1), a_workload("big-2", cpu="9", at=2), a_workload("small", at=3))
    queue.pop()
    queue.requeue(a_workload("big-1", cpu="9", at=1), RequeueReason.NO_FIT, START, "ExceedsMaxQuota")
    queue.push(a_workload("big-3", cpu="9"), START)
    assert parked(queue) == {"ns/big-1", "ns/big-2", "ns/big-3"}
    assert queue.verdict("ns/big-3") == Verdict("ExceedsMaxQuota", "ns/big-1")
    assert queue.verdict("ns/small") is None
    told = queue.take_moved()
    assert [(info.key, verdict.reason) for info, verdict in told] == [
        ("ns/big-2", "ExceedsMaxQuota"),
        ("ns/big-3", "ExceedsMaxQuota"),
    ]
    assert queue.take_moved() == []
    assert popped(queue) == ["small"]


def test_after_a_flush_the_next_of_a_shape_follows_the_one_before() -> None:
    infos = [a_workload(f"w{number}", at=2 * number, cpu="9" if number % 2 else "1") for number in range(6)]
    queue = a_pending(*infos)
    fail(queue)
    fail(queue)
    assert queue.counts() == (0, 6)
    assert queue.flush(ALL, START) == 6
    assert queue.counts() == (6, 0)
    queue.push(a_workload("w2", at=20, generation=2), START)  # now the last
    queue.delete("ns/w3")
    queue.push(a_workload("new", at=9), START)
    assert popped(queue) == ["w0", "w1", "w4", "new", "w5", "w2"]


def test_the_same_verdict_is_told_once() -> None:
    queue = a_pending(*(a_workload(f"w{number}", at=number) for number in range(3)))
    for shown, told in (("WaitingForQuota", 2), ("WaitingForQuota", 0), ("ExceedsMaxQuota", 2), ("ExceedsMaxQuota", 0)):
        info = queue.pop()
        assert info is not None
        queue.requeue(info, RequeueReason.NO_FIT, START, shown)
        assert queue.counts() == (0, 3)
        assert len(queue.take_moved()) == told
        queue.flush(ALL, START)


def test_what_nobody_asked_for_in_time_is_told_with_the_next_verdict() -> None:
    queue = a_pending(a_workload("a", at=1), a_workload("b", at=2))
    fail(queue)
    queue.flush(ALL, START)
    assert queue.take_moved() == []
    fail(queue)
    assert [info.key for info, _verdict in queue.take_moved()] == ["ns/b"]


def test_one_of_a_shape_that_has_to_rest_is_not_flushed_with_the_others() -> None:
    queue = a_pending(a_workload("a", at=1), a_workload("b", at=2))
    fail(queue)
    queue.push(a_workload("b", at=2, status={"requeueState": {"requeueAt": text(60)}}), START)
    assert queue.flush(ALL, START) == 1
    assert parked(queue) == {"ns/b"}


def test_a_preemptor_whose_shape_is_held_is_first_after_the_flush() -> None:
    queue = a_pending(a_workload("a", at=1), a_workload("b", at=2), a_workload("c", at=3))
    first, second = queue.pop(), queue.pop()
    assert first is not None
    assert second is not None
    queue.requeue(second, RequeueReason.PENDING_PREEMPTION, START)
    queue.requeue(first, RequeueReason.NO_FIT, START)
    assert queue.counts() == (0, 3)
    assert queue.flush(ALL, START) == 3
    assert popped(queue) == ["b", "a", "c"]


def test_a_flush_forgets_verdicts() -> None:
    queue = a_pending(a_workload("a", at=1), a_workload("b", at=2))
    fail(queue)
    assert queue.flush(ALL, START) == 2
    queue.push(a_workload("c", at=3), START)
    assert queue.take_moved() == []
    assert popped(queue) == ["a", "b", "c"]


def test_other_shapes_have_other_verdicts() -> None:
    queue = a_pending(a_workload("a", cpu="9"), a_workload("b", cpu="9", priority=-1))
    fail(queue)
    assert popped(queue) == ["b"]


@pytest.mark.parametrize(
    ("strict", "config"),
    [(True, PLAIN), (False, Settings(gates=Gates.default().changed({"SchedulingEquivalenceHashing": False})))],
)
def test_no_verdict_is_shared_in_a_strict_queue_or_without_the_gate(strict: bool, config: Settings) -> None:
    queue = a_pending(a_workload("a"), a_workload("b"), strict=strict, config=config)
    fail(queue)
    assert not queue.shapes
    assert queue.has_active()


def test_a_workload_that_takes_on_a_held_shape_is_parked() -> None:
    queue = a_pending(a_workload("big", cpu="9", priority=0), a_workload("small"))
    fail(queue)
    queue.push(a_workload("small", cpu="9", generation=2), START)
    assert parked(queue) == {"ns/big", "ns/small"}
    assert queue.counts() == (0, 2)


# Flush


def test_a_flush_brings_back_only_namespaces_that_the_queue_takes() -> None:
    queue = a_pending(a_workload("a", cpu="1"), a_workload("b", cpu="2", namespace="other"))
    fail(queue, RequeueReason.GENERIC)
    fail(queue, RequeueReason.GENERIC)
    assert queue.flush(frozenset({"other"}), START) == 1
    assert popped(queue) == ["b"]


# Anything at all


class Plain:
    """The same rules with nothing clever: every workload by itself, everything looked through."""

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.active = dict[str, WorkloadInfo]()
        self.parked = dict[str, WorkloadInfo]()
        self.flying = dict[str, tuple[WorkloadInfo, int]]()
        self.shapes = set[str]()
        self.first = ""
        self.pops, self.flushed_at = 0, -1

    def push(self, info: WorkloadInfo, now: Instant) -> None:
        if info.key in self.flying:
            self.flying[info.key] = info, self.flying[info.key][1]
            return
        self.parked.pop(info.key, None)  # each push of these tests has a generation of its own
        was_active = self.active.pop(info.key, None) is not None
        rests = not was_active and not is_backoff_over(info, now)
        (self.parked if rests or info.shape in self.shapes else self.active)[info.key] = info

    def pop(self) -> str | None:
        self.pops += 1
        ordered = sorted(
            self.active.values(), key=lambda i: (i.key != self.first, -i.priority, i.queued_since, i.uid, i.key)
        )
        if not ordered:
            return None
        self.flying[ordered[0].key] = ordered[0], self.pops
        return self.active.pop(ordered[0].key).key

    def requeue(self, looked_at: WorkloadInfo, reason: RequeueReason, now: Instant) -> None:
        info, pops = self.flying.pop(looked_at.key)
        waits_for_victims = reason in (RequeueReason.PENDING_PREEMPTION, RequeueReason.PENDING_MIGRATION)
        if waits_for_victims and not self.strict:
            self.first = info.key
        if info is not looked_at:
            self.push(info, now)
            return
        retried = waits_for_victims or reason in (
            RequeueReason.FAILED_AFTER_NOMINATION,
            RequeueReason.PREEMPTION_FAILED,
        )
        again = reason is not RequeueReason.NAMESPACE_MISMATCH if self.strict else retried
        if (again or self.flushed_at >= pops) and is_backoff_over(info, now):
            self.active[info.key] = info
            return
        self.parked[info.key] = info
        if not self.strict and reason in (RequeueReason.NO_FIT, RequeueReason.PREEMPTION_NO_CANDIDATES):
            self.shapes.add(info.shape)
            for key in [key for key, found in self.active.items() if found.shape == info.shape]:
                self.parked[key] = self.active.pop(key)

    def flush(self, namespaces: frozenset[str], now: Instant) -> int:
        self.flushed_at = self.pops
        self.shapes.clear()
        back = [
            key
            for key, info in self.parked.items()
            if info.view.metadata.namespace in namespaces and is_backoff_over(info, now)
        ]
        for key in back:
            self.active[key] = self.parked.pop(key)
        return len(back)

    def delete(self, key: str) -> None:
        for place in (self.active, self.parked, self.flying):
            place.pop(key, None)
        if self.first == key:
            self.first = ""


PUSH = st.tuples(st.just("push"), KEYS, st.integers(0, 11))
OTHERS = st.tuples(st.sampled_from(["delete", "pop", "pop", "pop", "flush", "wait"]), KEYS, st.just(0))
BACK = st.tuples(st.just("requeue"), KEYS, st.integers(0, len(RequeueReason) - 1))
NO_FIT = st.tuples(st.just("requeue"), KEYS, st.just(list(RequeueReason).index(RequeueReason.NO_FIT)))


@given(st.lists(st.one_of(PUSH, PUSH, OTHERS, OTHERS, BACK, NO_FIT), max_size=80), st.booleans())
@settings(max_examples=50)
def test_the_same_as_with_every_workload_by_itself(actions: list[tuple[str, int, int]], strict: bool) -> None:
    queue, plain, now = PendingQueue(a_queue(strict=strict), PLAIN), Plain(strict=strict), START
    looked_at = dict[str, WorkloadInfo]()
    for turn, (what, number, extra) in enumerate(actions, start=1):
        key = f"ns/w{number}"
        if what == "push":
            status = {"requeueState": {"requeueAt": text(30)}} if extra == 11 else {}
            lane, cpu = "xy"[extra % 2], str(extra // 2 % 2 + 1)
            namespace = "other" if extra == 10 else "ns"
            info = a_workload(
                f"w{number}", lane, cpu=cpu, at=extra % 3, generation=turn, status=status, namespace=namespace
            )
            queue.push(info, now)
            plain.push(info, now)
        elif what == "delete":
            queue.delete(key)
            plain.delete(key)
        elif what == "flush":
            assert queue.flush(ALL, now) == plain.flush(ALL, now)
        elif what == "wait":
            now = after(now - START + 10)
        elif what == "pop":
            first = queue.pop()
            assert (first and first.key) == plain.pop()
            if first is not None:
                looked_at[first.key] = first
        elif key in plain.flying:
            reason = list(RequeueReason)[extra]
            queue.requeue(looked_at[key], reason, now)
            plain.requeue(looked_at[key], reason, now)
        assert {info.key for info in queue.active()} == set(plain.active)
        assert parked(queue) == set(plain.parked)
        assert queue.counts() == (len(plain.active) + len(plain.flying), len(plain.parked))
        assert queue.has_active() is bool(plain.active)
        assert set(queue.positions()) == {*plain.active, *plain.parked, *plain.flying}
        for told, _verdict in queue.take_moved() if turn % 5 == 0 else ():
            assert told.key in plain.parked
