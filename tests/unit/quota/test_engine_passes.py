"""A pass of the engine against plain single-head cycles: the same admissions and evictions, on random clusters."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.api import core, kueue, timestamps
from muster.api.kinds import Kind
from muster.api.meta import Instant, ObjectMeta
from muster.api.objects import view_of
from muster.api.raw import Document
from muster.quota import status
from muster.quota.cycle import Cycle
from muster.quota.decisions import Admission, Eviction, Requeue
from muster.quota.engine import Engine
from muster.quota.gates import Gates
from muster.quota.queueing import PendingQueues
from muster.quota.settings import FairSharing, Settings
from muster.quota.state import QuotaState
from muster.quota.workloads import WorkloadInfo

NOW = Instant(1_800_000_000.0)
FLAVORS = ("spot", "on-demand")


@dataclass
class World:
    """Documents of a cluster, and what the store would hold of its workloads."""

    is_fair: bool
    queues: list[Document]
    cohorts: list[Document]
    workloads: dict[str, Document] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        return Settings(fair_sharing=FairSharing() if self.is_fair else None)


@dataclass(frozen=True)
class Outcome:
    admitted: dict[str, Document]
    evicted: frozenset[str]


quotas = st.integers(0, 8)
limits = st.none() | st.integers(0, 8)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    cohort_count = draw(st.integers(1, 3))
    cohorts = []
    for number in range(cohort_count):
        parent = draw(st.sampled_from(["", *(f"c{other}" for other in range(number))]))
        cohorts.append({"metadata": {"name": f"c{number}"}, "spec": {"parentName": parent}})
    queues = [draw(_queues(f"q{number}", cohort_count)) for number in range(draw(st.integers(1, 5)))]
    world = World(draw(st.booleans()), queues, cohorts)
    for number in range(draw(st.integers(1, 12))):
        queue = draw(st.sampled_from(queues))["metadata"]["name"]
        document = draw(_workloads(f"w{number:02}", queue, number))
        world.workloads[f"ns/w{number:02}"] = document
    return world


@st.composite
def _queues(draw: st.DrawFn, name: str, cohort_count: int) -> Document:
    cohort = draw(st.sampled_from(["", *(f"c{number}" for number in range(cohort_count))]))
    flavors = []
    for flavor in draw(st.sampled_from([FLAVORS, FLAVORS[:1], FLAVORS[::-1]])):
        nominal = draw(quotas)
        quota: Document = {"name": "cpu", "nominalQuota": str(nominal)}
        if cohort and (borrowing := draw(limits)) is not None:
            quota["borrowingLimit"] = str(borrowing)
        if cohort and (lending := draw(limits)) is not None:
            quota["lendingLimit"] = str(min(lending, nominal))
        flavors.append({"name": flavor, "resources": [quota]})
    fungibility = st.sampled_from(["MayStopSearch", "TryNextFlavor"])
    return {
        "metadata": {"name": name},
        "spec": {
            "cohortName": cohort,
            "namespaceSelector": {},
            "queueingStrategy": draw(st.sampled_from(["StrictFIFO", "BestEffortFIFO"])),
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
            "flavorFungibility": {"whenCanBorrow": draw(fungibility), "whenCanPreempt": draw(fungibility)},
            "preemption": {
                "withinClusterQueue": draw(st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"])),
                "reclaimWithinCohort": draw(st.sampled_from(["Never", "LowerPriority", "Any"])),
            },
        },
    }


@st.composite
def _workloads(draw: st.DrawFn, name: str, queue: str, number: int) -> Document:
    container = {"name": "c", "resources": {"requests": {"cpu": str(draw(st.integers(1, 6)))}}}
    pods: Document = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": name,
            "generation": 1,
            "creationTimestamp": timestamps.to_text(Instant(NOW - 1000 + draw(st.integers(0, 3)) * 20 + number)),
        },
        "spec": {"queueName": queue, "priority": draw(st.integers(0, 2)), "podSets": [pods]},
    }


def _view(kind: Kind, document: Document) -> object:
    return view_of(kind, document)


def passed(world: World) -> Outcome:
    """By the engine."""
    engine = Engine(world.settings)
    _load(engine, world)
    admitted: dict[str, Document] = {}
    evicted: set[str] = set()
    for _ in range(2_000):
        if not engine.has_work(NOW):
            return Outcome(admitted, frozenset(evicted))
        for decision in engine.step(NOW).decisions:
            if isinstance(decision, Admission):
                admitted[decision.info.key] = decision.apply(world.workloads[decision.info.key])["status"]["admission"]
            elif isinstance(decision, Eviction):
                evicted.add(decision.info.key)
    raise AssertionError("the engine does not come to rest")


def _load(engine: Engine, world: World) -> None:
    engine.namespace_changed(core.Namespace(metadata=_named("ns")))
    for flavor in FLAVORS:
        engine.flavor_changed(kueue.ResourceFlavor(metadata=_named(flavor)))
    for cohort in world.cohorts:
        view = _view(kueue.COHORT, cohort)
        assert isinstance(view, kueue.Cohort)
        engine.cohort_changed(view)
    for queue in world.queues:
        found = _view(kueue.CLUSTER_QUEUE, queue)
        assert isinstance(found, kueue.ClusterQueue)
        engine.queue_changed(found, NOW)
        engine.local_queue_changed(_local(queue["metadata"]["name"]), NOW)
    for document in world.workloads.values():
        engine.workload_changed(_workload(document), NOW)


def cycled(world: World) -> Outcome:
    """By single cycles over the heads of all queues, until many in a row change nothing."""
    state = QuotaState(world.settings)
    state.namespaces["ns"] = {}
    pending = PendingQueues(world.settings, state.tree, state.namespaces)
    for flavor in FLAVORS:
        state.set_flavor(kueue.ResourceFlavor(metadata=_named(flavor)))
    for cohort in world.cohorts:
        view = _view(kueue.COHORT, cohort)
        assert isinstance(view, kueue.Cohort)
        state.set_cohort(view)
    for queue in world.queues:
        found = _view(kueue.CLUSTER_QUEUE, queue)
        assert isinstance(found, kueue.ClusterQueue)
        state.set_queue(found)
        pending.set_queue(state.queues[found.metadata.name].policy, NOW)
        pending.set_local_queue(_local(found.metadata.name), NOW)
    state.settle()
    for document in world.workloads.values():
        info = _info(document, world.settings)
        if info.holds_quota:
            state.add(info)
        else:
            pending.push(info, NOW)
    admitted: dict[str, Document] = {}
    evicted: set[str] = set()
    quiet, number = 0, 0
    while quiet < 8:  # more than a workload has flavors to try, one in each cycle
        number += 1
        assert number < 2_000
        heads = pending.heads(lambda name: state.is_active(state.queues[name]))
        result = Cycle(state, pending).run(heads, NOW, number)
        for decision in result.decisions:
            if isinstance(decision, Admission):
                admitted[decision.info.key] = decision.apply(world.workloads[decision.info.key])["status"]["admission"]
                pending.delete(decision.info.key)
            elif isinstance(decision, Eviction):
                evicted.add(decision.info.key)
            elif isinstance(decision, Requeue):
                pending.requeue(decision.info, decision.reason, NOW, decision.entry.pending_reason)
        quiet = 0 if result.has_progress or _moves(result.decisions, pending) else quiet + 1
    return Outcome(admitted, frozenset(evicted))


def _moves(decisions: Sequence[object], pending: PendingQueues) -> bool:
    """Whether somebody else is at the front of a queue now."""
    requeued = {decision.info.key for decision in decisions if isinstance(decision, Requeue)}
    heads = {head.key for name in pending.queues if (head := pending.peek(name)) is not None}
    return not heads <= requeued


def _named(name: str) -> ObjectMeta:
    return ObjectMeta(name=name)


def _local(queue: str) -> kueue.LocalQueue:
    return kueue.LocalQueue(
        metadata=ObjectMeta(name=queue, namespace="ns"), spec=kueue.LocalQueueSpec(cluster_queue=queue)
    )


def _workload(document: Document) -> kueue.Workload:
    view = _view(kueue.WORKLOAD, document)
    assert isinstance(view, kueue.Workload)
    return view


def _info(document: Document, settings: Settings) -> WorkloadInfo:
    view = _workload(document)
    admission = view.status.admission
    return WorkloadInfo(
        view, admission.cluster_queue if admission is not None else view.spec.queue_name or "", settings
    )


def follow(world: World, outcome: Outcome, finished: Sequence[int]) -> None:
    """What the store holds next: admissions and evictions written, evicted ones stopped, some finished."""
    gates = Gates.default()
    for key, admission in outcome.admitted.items():
        reserved = status.reserve(world.workloads[key], admission, NOW)
        world.workloads[key] = status.admit(reserved, NOW, gates)
    for key in outcome.evicted:
        evicted = status.evict(world.workloads[key], "Preempted", "for another", NOW)
        world.workloads[key] = status.release(evicted, "PendingEvaluation", NOW, gates)
    running = sorted(key for key, document in world.workloads.items() if document.get("status", {}).get("admission"))
    for number in finished:
        if running:
            del world.workloads[running.pop(number % len(running))]


@given(worlds(), st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=1, max_size=3))
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_a_pass_decides_what_single_head_cycles_would(world: World, endings: list[list[int]]) -> None:
    for finished in endings:
        found, wanted = passed(world), cycled(world)
        assert found == wanted
        follow(world, found, finished)


def test_a_head_that_began_in_the_middle_of_its_flavors_is_looked_at_again() -> None:
    """Found by the test above: where the other head waits on one flavor, it fits on the other, a cycle later."""
    queues = [
        _strict("q0", {"spot": 5, "on-demand": 7}),
        _strict("q1", {"on-demand": 1, "spot": 2}),
    ]
    sizes = [("q1", 1), ("q1", 1), ("q1", 2), ("q0", 1), ("q1", 1), ("q0", 1), ("q0", 2), ("q0", 5), ("q0", 3)]
    world = World(True, queues, [{"metadata": {"name": "c0"}, "spec": {"parentName": ""}}])
    for number, (queue, cpu) in enumerate(sizes):
        seconds = 45 if number == 5 else 20 + number
        world.workloads[f"ns/w{number:02}"] = _asking(f"w{number:02}", queue, cpu, seconds)
    found = passed(world)
    assert "ns/w04" in found.admitted
    assert found == cycled(world)


def _strict(name: str, nominal: dict[str, int]) -> Document:
    flavors = [
        {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": str(quota)}]}
        for flavor, quota in nominal.items()
    ]
    return {
        "metadata": {"name": name},
        "spec": {
            "cohortName": "c0",
            "namespaceSelector": {},
            "queueingStrategy": "StrictFIFO",
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
            "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"},
            "preemption": {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"},
        },
    }


def _asking(name: str, queue: str, cpu: int, seconds: int) -> Document:
    container = {"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}
    pods: Document = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    created = timestamps.to_text(Instant(NOW - 1000 + seconds))
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "generation": 1, "creationTimestamp": created},
        "spec": {"queueName": queue, "priority": 0, "podSets": [pods]},
    }
