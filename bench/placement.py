"""Placement at scheduler_perf's load shapes: the engine alone, then through the embedded store with durable binds.

The shapes follow kube-scheduler's own benchmarks (5,000 nodes; see docs/benchmarks.md for its floors): what is asked
stands in `_TARGETS`. `core` counts decisions from a full queue to an empty one, reading the objects not included;
`end_to_end` counts from the moment the pods are being created in the store until the last is durably bound.
"""

import asyncio
import gc
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import uvloop

from bench.figures import Figure, Progress
from muster.api import core, raw, volcano
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.controllers.scheduling import SchedulingController
from muster.placement.engine import Engine, Faulted, default_engine
from muster.runtime import collector
from muster.runtime.clock import SystemClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Delete, Selection, Write, Written
from muster.testing.builders import a_node, a_pod, a_pod_group

_NODES = 5_000
_ZONE = "topology.kubernetes.io/zone"
_HOST = "kubernetes.io/hostname"
_TARGETS = {
    "basic": (20_000, 3_000),
    "node_affinity": (10_000, 3_000),
    "topology_spread": (3_000, 1_500),
    "preferred_affinity": (3_000, 1_500),
    "required_affinity": (2_000, 1_000),
    "anti_affinity": (2_000, 1_000),
    "preemption": (2_000, 1_000),
    "gangs": (10_000, 3_000),
}
"""Pods a second that were asked for: of the core, and end to end."""


@dataclass(frozen=True)
class Shape:
    """`present` are on nodes before, `measured` are then placed."""

    name: str
    measured: Sequence[Document]
    present: Sequence[Document] = ()
    groups: Sequence[Document] = ()
    zones: int = 10


def run(progress: Progress) -> list[Figure]:
    collector.calm()  # as `muster up` does
    figures: list[Figure] = []
    for make in _SHAPES:
        shape = make()
        progress(f"{shape.name}: {len(shape.measured)} pods on {_NODES} nodes")
        core_asked, whole_asked = _TARGETS[shape.name]
        best = max(_core(shape) for _ in range(2))
        figures.append(Figure(f"{shape.name}.core", best, "pods/s", core_asked))
        gc.collect()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            whole, slowest = runner.run(_end_to_end(shape))
        note = f"API p99 {slowest:.0f} ms meanwhile" if shape.name == "basic" else ""
        figures.append(Figure(f"{shape.name}.end_to_end", whole, "pods/s", whole_asked, note=note))
    for nodes in (1_000, 5_000, 20_000, 100_000):
        progress(f"growth: {nodes} nodes")
        per_pod = 1e6 / _core(_basic(5_000), nodes)
        figures.append(Figure(f"microseconds_per_pod.{nodes}_nodes", per_pod, "µs"))
    progress("memory: 5,000 nodes, 50,000 pods")
    figures.append(_memory())
    return figures


# The engine alone


def _core(shape: Shape, nodes: int = _NODES) -> float:
    engine = default_engine()
    _fill(engine, shape, nodes)
    for document in shape.measured:
        engine.take(None, _object(core.POD, document), 1.0)
    placed = 0
    started = time.perf_counter()
    while (outcome := engine.step(2.0)) is not None:
        assert not isinstance(outcome, Faulted), outcome
        assert outcome.assigned, outcome.refusal
        placed += len(outcome.assigned)
        for victim in outcome.victims:
            engine.cluster.release(victim.uid)
    seconds = time.perf_counter() - started
    assert placed == len(shape.measured)
    return placed / seconds


def _fill(engine: Engine, shape: Shape, nodes: int) -> None:
    for document in _nodes(nodes, shape.zones):
        engine.take(None, _object(core.NODE, document), 0.0)
    for group in shape.groups:
        engine.take(None, _object(volcano.POD_GROUP, group), 0.0)
    for number, document in enumerate(shape.present):
        document["spec"]["nodeName"] = f"n{number % nodes}"
        engine.take(None, _object(core.POD, document), 0.0)


def _object(kind: Kind, document: Document) -> Object:
    head = {"apiVersion": kind.api_version, "kind": kind.name}
    metadata = {**document["metadata"], "uid": f"{kind.plural}-{document['metadata']['name']}", "resourceVersion": "1"}
    return Object(kind, raw.encode({**head, **document, "metadata": metadata}))


# Through the store


async def _end_to_end(shape: Shape) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        async with EmbeddedStore.on_disk(Path(folder) / "store.db", clock=SystemClock(), remembered=60_000) as store:
            await _write(store, [Create(core.NODE, document) for document in _nodes(_NODES, shape.zones)])
            for number, document in enumerate(shape.present):
                document["spec"]["nodeName"] = f"n{number % _NODES}"
            await _write(store, [Create(core.POD, document) for document in shape.present])
            await _write(store, [Create(volcano.POD_GROUP, document) for document in shape.groups])
            async with asyncio.TaskGroup() as tasks:
                controller = SchedulingController(store, SystemClock(), default_engine)
                running = tasks.create_task(controller.run())
                tending = tasks.create_task(_let_victims_go(store))
                slow: list[float] = []
                asking = tasks.create_task(_ask(store, slow))
                await asyncio.sleep(2.0)  # the scheduler has read what is there
                slow.clear()
                bound = tasks.create_task(_all_bound(store, {d["metadata"]["name"] for d in shape.measured}))
                await asyncio.sleep(0)
                started = time.perf_counter()
                await _write(store, [Create(core.POD, document) for document in shape.measured])
                await bound
                seconds = time.perf_counter() - started
                for task in (running, tending, asking):
                    task.cancel()
    slow.sort()
    return len(shape.measured) / seconds, 1000 * slow[int(len(slow) * 0.99)] if slow else 0.0


async def _write(store: EmbeddedStore, writes: Sequence[Write]) -> None:
    for start in range(0, len(writes), 500):
        for result in await store.write(writes[start : start + 500]):
            assert isinstance(result, Written), result


async def _all_bound(store: EmbeddedStore, names: set[str]) -> None:
    async for events in store.watch(Selection(core.POD)):
        for event in events:
            if event.object is not None and event.object.key.name in names and b'"nodeName"' in event.object.raw:
                names.discard(event.object.key.name)
        if not names:
            return


async def _let_victims_go(store: EmbeddedStore) -> None:
    """Plays the agents: a pod that is told to end has ended."""
    async for events in store.watch(Selection(core.POD)):
        gone = [e.object.key for e in events if e.object is not None and e.object.is_terminating]
        if gone:
            await store.write([Delete(core.POD, key, grace_seconds=0) for key in gone])


async def _ask(store: EmbeddedStore, slow: list[float]) -> None:
    """How long a small request waits for its turn while the scheduler works: what an API client would feel."""
    while True:
        started = time.perf_counter()
        await asyncio.sleep(0.005)
        await store.get(core.NAMESPACE, Key("", "default"))
        slow.append(time.perf_counter() - started - 0.005)


# Shapes


def _nodes(count: int, zones: int) -> Iterator[Document]:
    for number in range(count):
        node = a_node(f"n{number}").cpu("4").memory("32Gi").label(_HOST, f"n{number}")
        yield node.label(_ZONE, f"zone{number % zones}").document()


def _pods(prefix: str, count: int, **labels: str) -> list[Document]:
    made = []
    for number in range(count):
        document = a_pod(f"{prefix}-{number}").cpu("100m").memory("500Mi").document()
        document["metadata"].setdefault("labels", {}).update(labels)
        made.append(document)
    return made


def _basic(count: int = 10_000) -> Shape:
    return Shape("basic", _pods("measured", count), _pods("present", 1_000))


def _node_affinity() -> Shape:
    pods = _pods("measured", 10_000)
    term = {"matchExpressions": [{"key": _ZONE, "operator": "In", "values": ["zone1", "zone2"]}]}
    for pod in pods:
        pod["spec"]["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        }
    return Shape("node_affinity", pods, _pods("present", 5_000))


def _topology_spread() -> Shape:
    pods = _pods("measured", 5_000, app="spread")
    for pod in pods:
        pod["spec"]["topologySpreadConstraints"] = [
            {
                "maxSkew": 5,
                "topologyKey": _ZONE,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "spread"}},
            }
        ]
    return Shape("topology_spread", pods, _pods("present", 5_000))


def _with_affinity(name: str, affinity: Document, count: int, present: int, zones: int, **labels: str) -> Shape:
    pods, there = _pods("measured", count, **labels), _pods("present", present, **labels)
    for pod in (*pods, *there):
        pod["spec"]["affinity"] = affinity
    return Shape(name, pods, there, zones=zones)


def _term(key: str, **labels: str) -> Document:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": key, "namespaces": ["default"]}


def _preferred_affinity() -> Shape:
    preferred = [{"weight": 1, "podAffinityTerm": _term(_HOST, color="red")}]
    affinity = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    return _with_affinity("preferred_affinity", affinity, 5_000, 5_000, 10, color="red")


def _required_affinity() -> Shape:
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_term(_ZONE, color="blue")]}}
    return _with_affinity("required_affinity", affinity, 5_000, 5_000, 1, color="blue")


def _anti_affinity() -> Shape:
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_term(_HOST, color="green")]}}
    return _with_affinity("anti_affinity", affinity, 2_000, 1_000, 10, color="green")


def _preemption() -> Shape:
    low = [a_pod(f"low-{number}").cpu("900m").memory("500Mi").document() for number in range(20_000)]
    high = [a_pod(f"measured-{number}").cpu("3").memory("500Mi").document() for number in range(5_000)]
    for pod in low:
        pod["spec"]["terminationGracePeriodSeconds"] = 0  # as in scheduler_perf, which has no kubelets
    for pod in high:
        pod["spec"]["priority"] = 10
    return Shape("preemption", high, low)


def _gangs() -> Shape:
    groups = [a_pod_group(f"gang-{number}").min_member(1_000).document() for number in range(9)]
    pods = []
    for number in range(9_000):
        pods.append(a_pod(f"measured-{number}").cpu("100m").memory("500Mi").in_group(f"gang-{number % 9}").document())
    return Shape("gangs", pods, groups=groups)


_SHAPES: Sequence[Callable[[], Shape]] = (
    _basic,
    _node_affinity,
    _topology_spread,
    _preferred_affinity,
    _required_affinity,
    _anti_affinity,
    _preemption,
    _gangs,
)


def _memory() -> Figure:
    """Of a fresh process with the store, the scheduler and everything they know."""
    program = "import asyncio, bench.placement; asyncio.run(bench.placement.print_memory())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    note = "the whole process: store on disk, scheduler, 5,000 nodes, 50,000 bound pods"
    return Figure("memory_50000_pods", float(done.stdout), "MiB", 1024, at_most=True, note=note)


async def print_memory() -> None:
    collector.calm()
    with tempfile.TemporaryDirectory() as folder:
        async with EmbeddedStore.on_disk(Path(folder) / "store.db", clock=SystemClock()) as store:
            await _write(store, [Create(core.NODE, document) for document in _nodes(_NODES, 10)])
            for start in range(0, 50_000, 5_000):
                pods = _pods(f"present-{start}", 5_000)
                for number, document in enumerate(pods):
                    document["spec"]["nodeName"] = f"n{number % _NODES}"
                await _write(store, [Create(core.POD, document) for document in pods])
            async with asyncio.TaskGroup() as tasks:
                running = tasks.create_task(SchedulingController(store, SystemClock(), default_engine).run())
                await asyncio.sleep(15)
                print(psutil.Process().memory_info().rss / 2**20)
                running.cancel()
