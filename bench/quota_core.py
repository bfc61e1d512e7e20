"""The admission engine without a store: one large pass, one topology assignment, one search for victims."""

import time

from bench.figures import Figure
from muster.api import core, kueue
from muster.api.kinds import Kind
from muster.api.meta import Instant, ObjectMeta, Resource
from muster.api.objects import view_of
from muster.api.raw import Document
from muster.quota.decisions import Admission, Eviction
from muster.quota.engine import Engine
from muster.quota.settings import Settings

_NOW = Instant(1_800_000_000.0)
_PENDING, _QUEUES = 10_000, 1_000
_NODES, _GANG = 20_000, 512
_ADMITTED = 10_000


def core_figures() -> list[Figure]:
    passed = min(_pass() for _ in range(3))
    placed = min(_placement() for _ in range(3))
    searched = min(_search() for _ in range(3))
    return [
        Figure("core.pass_seconds", passed, "s", 1.0, at_most=True, note=f"{_PENDING} pending in {_QUEUES} queues"),
        Figure(
            "core.topology_ms",
            1000 * placed,
            "ms",
            20.0,
            at_most=True,
            note=f"{_GANG} pods in one rack of {_NODES} nodes",
        ),
        Figure(
            "core.preemption_ms", 1000 * searched, "ms", 100.0, at_most=True, note=f"victims among {_ADMITTED} admitted"
        ),
    ]


def _view(kind: Kind, document: Document) -> Resource:
    return view_of(kind, document)


def _engine() -> Engine:
    engine = Engine(Settings())
    engine.namespace_changed(core.Namespace(metadata=_meta("default")))
    return engine


def _meta(name: str) -> ObjectMeta:
    return ObjectMeta(name=name)


def _queue(engine: Engine, name: str, cohort: str, quota: int, **spec: object) -> None:
    resource = {"name": "cpu", "nominalQuota": str(quota), "borrowingLimit": "100000"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [resource]}]}
    preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    document = {
        "metadata": {"name": name},
        "spec": {
            "cohortName": cohort,
            "namespaceSelector": {},
            "resourceGroups": [group],
            "preemption": preemption,
            **spec,
        },
    }
    view = _view(kueue.CLUSTER_QUEUE, document)
    assert isinstance(view, kueue.ClusterQueue)
    engine.queue_changed(view, _NOW)
    local = _view(
        kueue.LOCAL_QUEUE, {"metadata": {"name": name, "namespace": "default"}, "spec": {"clusterQueue": name}}
    )
    assert isinstance(local, kueue.LocalQueue)
    engine.local_queue_changed(local, _NOW)


def _flavor(engine: Engine, spec: Document | None = None) -> None:
    view = _view(kueue.RESOURCE_FLAVOR, {"metadata": {"name": "default"}, "spec": spec or {}})
    assert isinstance(view, kueue.ResourceFlavor)
    engine.flavor_changed(view)


def _workload(name: str, queue: str, cpu: str, priority: int, count: int = 1, **pods: object) -> kueue.Workload:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    pod_set = {"name": "main", "count": count, "template": {"spec": {"containers": [container]}}, **pods}
    view = _view(
        kueue.WORKLOAD,
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "generation": 1,
                "creationTimestamp": "2026-11-01T00:00:00Z",
            },
            "spec": {"queueName": queue, "priority": priority, "podSets": [pod_set]},
        },
    )
    assert isinstance(view, kueue.Workload)
    return view


def _settle(engine: Engine) -> tuple[int, int]:
    """Admissions and evictions until nothing moves any more."""
    admitted = evicted = 0
    while engine.has_work(_NOW):
        for decision in engine.step(_NOW).decisions:
            admitted += isinstance(decision, Admission)
            evicted += isinstance(decision, Eviction)
    return admitted, evicted


def _pass() -> float:
    """Small, medium and large ones wait in every queue; only some fit."""
    engine = _engine()
    _flavor(engine)
    for number in range(_QUEUES):
        _queue(engine, f"q{number}", f"c{number // 100}", 20)
    sizes = (("1", 50), ("5", 100), ("20", 200))
    for number in range(_PENDING):
        cpu, priority = sizes[number // _QUEUES % 3]
        engine.workload_changed(_workload(f"w{number}", f"q{number % _QUEUES}", cpu, priority), _NOW)
    started = time.perf_counter()
    admitted, _ = _settle(engine)
    assert admitted >= _QUEUES
    return time.perf_counter() - started


def _placement() -> float:
    engine = _engine()
    for number in range(_NODES):
        labels = {"rack": f"r{number // 100}", "block": f"b{number // 1000}", "kubernetes.io/hostname": f"n{number}"}
        document = {
            "metadata": {"name": f"n{number}", "labels": labels},
            "status": {
                "allocatable": {"cpu": "64", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        node = _view(core.NODE, document)
        assert isinstance(node, core.Node)
        engine.state.cluster.node_changed(node)
    levels = [{"nodeLabel": label} for label in ("block", "rack", "kubernetes.io/hostname")]
    topology = _view(kueue.TOPOLOGY, {"metadata": {"name": "t"}, "spec": {"levels": levels}})
    assert isinstance(topology, kueue.Topology)
    engine.topology_changed(topology)
    _flavor(engine, {"topologyName": "t"})
    _queue(engine, "q", "c", 1_000_000)
    request = {"topologyRequest": {"required": "rack"}}
    engine.workload_changed(_workload("first", "q", "1", 0, 2, **request), _NOW)
    _settle(engine)  # what is worked out once for all nodes is there now
    engine.workload_changed(_workload("gang", "q", "8", 0, _GANG, **request), _NOW)
    started = time.perf_counter()
    admitted, _ = _settle(engine)
    assert admitted == 1
    return time.perf_counter() - started


def _search() -> float:
    engine = _engine()
    _flavor(engine)
    for number in range(10):
        _queue(engine, f"q{number}", "c", 1_000)
    for number in range(_ADMITTED):
        engine.workload_changed(_workload(f"w{number}", "q0", "1", number % 100), _NOW)
    admitted, _ = _settle(engine)
    assert admitted == _ADMITTED
    engine.workload_changed(_workload("late", "q1", "500", 1_000), _NOW)
    started = time.perf_counter()
    _, evicted = _settle(engine)
    assert evicted == 500
    return time.perf_counter() - started
