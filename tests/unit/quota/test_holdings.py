"""What the engine itself counts, for metrics: who holds how much and who asks for how much, against a plain count."""

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota.queue_worlds import PLAIN, START, World, a_workload

from muster.api import kueue
from muster.quota.queueing import RequeueReason
from muster.quota.state import QuotaState
from muster.quota.workloads import WorkloadInfo

QUEUES, DOORS = ("q", "r"), ("a", "b")


def a_holder(name: str, queue: str, door: str, cpu: int, *, is_admitted: bool) -> WorkloadInfo:
    given_ = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": str(cpu)}, "count": 1}
    true = ["QuotaReserved", *(["Admitted"] if is_admitted else [])]
    document = {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"queueName": door, "podSets": [{"name": "main", "count": 1}]},
        "status": {
            "conditions": [{"type": type, "status": "True"} for type in true],
            "admission": {"clusterQueue": queue, "podSetAssignments": [given_]},
        },
    }
    return WorkloadInfo(msgspec.convert(document, kueue.Workload), queue, PLAIN)


def a_cluster_queue(name: str) -> kueue.ClusterQueue:
    return msgspec.convert({"metadata": {"name": name}, "spec": {"namespaceSelector": {}}}, kueue.ClusterQueue)


HOLDERS = st.builds(
    a_holder,
    st.sampled_from("xyz"),
    st.sampled_from(QUEUES),
    st.sampled_from(DOORS),
    st.integers(0, 3),
    is_admitted=st.booleans(),
)


@given(st.lists(st.one_of(HOLDERS, st.sampled_from(["x", "y", "z", *QUEUES]))))
def test_tallies_of_queues_and_local_queues_are_what_a_count_would_find(changes: list) -> None:
    """A name of a workload: it goes. That of a queue: it goes, or comes back."""
    state, live = QuotaState(PLAIN), dict[str, WorkloadInfo]()
    for name in QUEUES:
        state.set_queue(a_cluster_queue(name))
    for change in changes:
        if isinstance(change, WorkloadInfo):
            state.add(change)
            live[change.key] = change
        elif change not in QUEUES:
            state.remove(f"ns/{change}")
            live.pop(f"ns/{change}", None)
        elif change in state.queues:
            state.remove_queue(change)
        else:
            state.set_queue(a_cluster_queue(change))
    held = [info for info in live.values() if info.queue in state.queues]
    reserving, admitted = Counter[str](), Counter[str]()
    reserved, used = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for info in held:
        for name in (info.queue, info.local_queue):
            reserving[name] += 1
            admitted[name] += info.is_admitted
            for what, value in info.usage.quota.items():
                reserved[name, what.resource] += value
                used[name, what.resource] += value * info.is_admitted
    tallies = {name: queue.tally for name, queue in state.queues.items()} | state.by_local_queue
    assert {name for name in tallies if "/" in name} == {info.local_queue for info in held}
    for name, tally in tallies.items():
        assert (tally.reserving, tally.admitted) == (reserving[name], admitted[name])
        assert sum(tally.reserved.values()) == reserved[name, "cpu"]
        assert tally.used_by_resource().get("cpu", 0) == used[name, "cpu"]


STEPS = st.one_of(
    st.tuples(
        st.just("push"), st.sampled_from("uvwxyz"), st.sampled_from(DOORS), st.sampled_from("12"), st.integers(1, 9)
    ),
    st.tuples(st.just("delete"), st.sampled_from("uvwxyz")),
    st.tuples(st.just("pop")),
    st.tuples(st.just("requeue")),
    st.tuples(st.just("flush")),
)


@given(st.lists(STEPS, max_size=30))
def test_what_waits_is_what_a_count_would_find(steps: list) -> None:
    pending = World({"cq": ""}, dict.fromkeys(DOORS, "cq")).pending
    flying: list[WorkloadInfo] = []
    for step in steps:
        match step:
            case ("push", name, door, cpu, generation):
                pending.push(a_workload(name, door, cpu=cpu, generation=generation), START)
            case ("delete", name):
                pending.delete(f"ns/{name}")
            case ("pop",):
                found = pending.pop("cq")
                flying += [found] if found is not None else []
            case ("requeue",):
                while flying:
                    pending.requeue(flying.pop(), RequeueReason.NO_FIT, START)
            case ("flush",):
                pending.flush(["cq"], START)
    everyone, parked = list(pending), pending.inadmissible("cq")
    assert pending.asked("cq").get("cpu", 0) == sum(info.pod_sets[0].requests["cpu"] for info in everyone)
    for door, counts in pending.local_counts("cq").items():
        assert counts.inadmissible == sum(info.local_queue == door for info in parked)
        assert sum(counts) == sum(info.local_queue == door for info in everyone)
    shapes = pending.shapes("cq")
    assert shapes.inadmissible == len({info.shape for info in parked})
    assert shapes.active == len({info.shape for info in everyone if info not in parked})
