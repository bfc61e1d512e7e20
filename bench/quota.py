"""Admission: Kueue's own three load shapes in real time through the embedded store, and the core alone.

The load creates workloads at the given intervals; each runs for its `runtimeMs` after it is admitted and is then
finished, by a write. One that is evicted stops, gives back its quota and starts from the beginning when it is admitted
again, as a job would. `seconds` counts from the first creation until the last workload is finished, durably.
"""

import asyncio
import heapq
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from bench.figures import Figure, Progress
from bench.quota_core import core_figures
from muster.api import core, kueue
from muster.api.objects import Object
from muster.api.raw import Document
from muster.controllers.quota import QuotaController
from muster.controllers.quota.writer import status_patch
from muster.quota import status
from muster.quota.gates import Gates
from muster.quota.settings import Settings
from muster.quota.workloads import ADMITTED, EVICTED, FINISHED
from muster.runtime.clock import SystemClock
from muster.runtime.collector import calm
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Refused, Selection, Write, Written

_SHAPES = {
    "baseline": ("baseline", 75.0, 351.0),
    "topology": ("tas", 80.0, 401.0),
    "large": ("large-scale", 60.0, 1179.0),
}
_KUEUE = {
    "baseline": {"large": 16.5, "medium": 76.8, "small": 215.0},
    "large": {"large": 106.0, "medium": 256.0, "small": 700.0},
}
_NAMESPACE = "default"
_TICK = 0.01
_PATIENCE = 600.0


def run(progress: Progress) -> list[Figure]:
    calm()
    progress("the core alone")
    figures = core_figures()
    folder = Path(__file__).parents[2] / "shared" / "data" / "kueue-load"
    if not folder.is_dir():
        progress(f"Kueue's load shapes are not here ({folder.name}): only the core was measured")
        return figures
    for name, (file, asked, kueue_needs) in _SHAPES.items():
        progress(f"{name}: Kueue needs {kueue_needs:.0f} s")
        shape = _Shape(json.loads((folder / f"{file}.json").read_text()))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            load = runner.run(_drive(shape))
        note = f"{len(load.plans)} workloads, {load.evictions} evictions; Kueue {kueue_needs:.0f} s"
        figures.append(Figure(f"{name}.seconds", load.seconds, "s", asked, at_most=True, note=note))
        for kind, mean in sorted(load.means().items()):
            theirs = _KUEUE.get(name, {}).get(kind)
            note = "" if theirs is None else f"Kueue {theirs:g} s"
            figures.append(Figure(f"{name}.admission_seconds.{kind}", mean, "s", note=note))
    return figures


@dataclass(frozen=True, slots=True)
class _Plan:
    at: float
    name: str
    kind: str
    runtime: float
    document: Document


@dataclass(slots=True)
class _Shape:
    """The objects of a load shape."""

    data: Document

    @property
    def settings(self) -> Settings:
        return Settings(gates=Gates.default().changed({"TASBalancedPlacement": True}))

    def setup(self) -> Iterator[Write]:
        flavor: Document = {"metadata": {"name": self._flavor}, "spec": {}}
        if "topology" in self.data:
            label = self.data["resourceFlavor"]["nodeLabel"]
            flavor["spec"] = {"nodeLabels": {label: "true"}, "topologyName": self.data["topology"]["name"]}
            yield from self._topology(label)
        yield Create(kueue.RESOURCE_FLAVOR, flavor)
        for queue, spec in self._queues():
            yield Create(kueue.CLUSTER_QUEUE, self._cluster_queue(queue, spec))
            local = {"metadata": {"name": queue, "namespace": _NAMESPACE}, "spec": {"clusterQueue": queue}}
            yield Create(kueue.LOCAL_QUEUE, local)

    @property
    def _flavor(self) -> str:
        return self.data["resourceFlavor"]["name"] if "topology" in self.data else "default"

    def _queues(self) -> Iterator[tuple[str, Document]]:
        for cohorts in self.data["cohorts"]:
            for number in range(cohorts["count"]):
                cohort = f"{cohorts['className']}-{number}"
                for queues in cohorts["queuesSets"]:
                    for index in range(queues["count"]):
                        yield f"{cohort}-{queues['className']}-{index}", queues | {"cohort": cohort}

    def _cluster_queue(self, name: str, spec: Document) -> Document:
        quota = {
            "name": "cpu",
            "nominalQuota": str(spec["nominalQuota"]),
            "borrowingLimit": str(spec["borrowingLimit"]),
        }
        group = {"coveredResources": ["cpu"], "flavors": [{"name": self._flavor, "resources": [quota]}]}
        preemption = {key: spec[key] for key in ("reclaimWithinCohort", "withinClusterQueue")}
        return {
            "metadata": {"name": name},
            "spec": {
                "cohortName": spec["cohort"],
                "namespaceSelector": {},
                "resourceGroups": [group],
                "preemption": preemption,
            },
        }

    def _topology(self, label: str) -> Iterator[Write]:
        topology = self.data["topology"]
        levels = topology["levels"]
        yield Create(
            kueue.TOPOLOGY,
            {
                "metadata": {"name": topology["name"]},
                "spec": {"levels": [{"nodeLabel": level["nodeLabel"]} for level in levels]},
            },
        )
        block, rack, node = levels
        for b in range(block["count"]):
            for r in range(rack["count"]):
                for n in range(node["count"]):
                    name = f"node-{b}-{r}-{n}"
                    labels = {label: "true", block["nodeLabel"]: f"b{b}", rack["nodeLabel"]: f"b{b}-r{r}"}
                    yield Create(
                        core.NODE,
                        {
                            "metadata": {"name": name, "labels": labels | {node["nodeLabel"]: name}},
                            "status": {
                                "allocatable": node["capacity"] | {"pods": "110"},
                                "conditions": [{"type": "Ready", "status": "True"}],
                            },
                        },
                    )

    def plans(self) -> list[_Plan]:
        found = []
        for queue, spec in self._queues():
            for number, several in enumerate(spec["workloadsSets"]):
                for index in range(several["count"]):
                    at = index * several["creationIntervalMs"] / 1000
                    for one in several["workloads"]:
                        name = f"{queue}-{number}-{one['className']}-{index}"
                        document = _workload(name, queue, one)
                        found.append(_Plan(at, name, one["className"], one["runtimeMs"] / 1000, document))
        return sorted(found, key=lambda plan: plan.at)


def _workload(name: str, queue: str, one: Document) -> Document:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": str(one["request"])}}}
    pods: Document = {
        "name": "main",
        "count": one.get("podCount", 1),
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    constraint = one.get("tasConstraint")
    if constraint == "balanced":
        pods["topologyRequest"] = {
            "preferred": one["tasLevel"],
            "podSetSliceRequiredTopology": "kubernetes.io/hostname",
            "podSetSliceSize": one["sliceSize"],
        }
    elif constraint is not None:
        pods["topologyRequest"] = {constraint: one["tasLevel"]}
    return {
        "metadata": {"name": name, "namespace": _NAMESPACE},
        "spec": {"queueName": queue, "priority": one["priority"], "podSets": [pods]},
    }


@dataclass(slots=True)
class _Load:
    """Creates, watches, finishes: what jobs and their users would do."""

    store: EmbeddedStore
    plans: list[_Plan]
    seconds: float = 0.0
    evictions: int = 0
    waits: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _created: dict[str, float] = field(default_factory=dict)
    _ends: list[tuple[float, str, int]] = field(default_factory=list)
    _running: dict[str, int] = field(default_factory=dict)
    _last: dict[str, Object] = field(default_factory=dict)
    _attempts: dict[str, int] = field(default_factory=dict)
    _stopping: set[str] = field(default_factory=set)
    _finished: int = 0

    def means(self) -> dict[str, float]:
        return {kind: sum(waits) / len(waits) for kind, waits in self.waits.items()}

    async def run(self) -> None:
        started = time.perf_counter()
        by_name = {plan.name: plan for plan in self.plans}
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(self._watch(by_name))
            creating = tasks.create_task(self._create(started))
            await self._end(started)
            await creating
            watching.cancel()
        self.seconds = time.perf_counter() - started

    async def _create(self, started: float) -> None:
        position = 0
        while position < len(self.plans):
            passed = time.perf_counter() - started
            due: list[Write] = []
            while position < len(self.plans) and self.plans[position].at <= passed and len(due) < 500:
                plan = self.plans[position]
                self._created[plan.name] = time.perf_counter()
                due.append(Create(kueue.WORKLOAD, plan.document))
                position += 1
            if due:
                for result in await self.store.write(due):
                    assert isinstance(result, Written), result
            else:
                await asyncio.sleep(_TICK)

    async def _watch(self, by_name: dict[str, _Plan]) -> None:
        async for events in self.store.watch(Selection(kueue.WORKLOAD)):
            for event in events:
                if event.object is not None:
                    self._see(event.object, by_name[event.object.key.name])

    def _see(self, found: Object, plan: _Plan) -> None:
        self._last[plan.name] = found
        true = {c.type for c in found.read(kueue.Workload).status.conditions if c.status == "True"}
        if FINISHED in true:
            return
        if EVICTED in true and plan.name in self._running:
            del self._running[plan.name]
            self._stopping.add(plan.name)
            self.evictions += 1
        elif ADMITTED in true and EVICTED not in true and plan.name not in self._running:
            now = time.perf_counter()
            attempt = self._attempts[plan.name] = self._attempts.get(plan.name, 0) + 1
            if attempt == 1:
                self.waits[plan.kind].append(now - self._created[plan.name])
            self._running[plan.name] = attempt
            heapq.heappush(self._ends, (now + plan.runtime, plan.name, attempt))

    async def _end(self, started: float) -> None:
        """Finishes what has run long enough, and stops what was told to. Jobs do not wait for each other's writes."""
        async with asyncio.TaskGroup() as tasks:
            while self._finished < len(self.plans):
                now = time.perf_counter()
                if now - started > _PATIENCE:
                    raise TimeoutError(f"{self._finished} of {len(self.plans)} finished in {_PATIENCE:.0f} s")
                over: list[str] = []
                while self._ends and self._ends[0][0] <= now:
                    _, name, attempt = heapq.heappop(self._ends)
                    if self._running.get(name) == attempt:
                        over.append(name)
                stopped, self._stopping = self._stopping, set()
                if over or stopped:
                    tasks.create_task(self._write(over, list(stopped)))
                wait = self._ends[0][0] - time.perf_counter() if self._ends else _TICK
                await asyncio.sleep(min(max(wait, 0.0005), _TICK / 2))

    async def _write(self, over: list[str], stopped: list[str]) -> None:
        now, gates = SystemClock().now(), Gates.default()
        writes: list[Write] = []
        for name in over:
            found = self._last[name]
            done = status.finish(found.document(), "Succeeded", "Job finished successfully", now)
            writes.append(status_patch(found, done))
        for name in stopped:
            found = self._last[name]
            released = status.release(found.document(), status.Pending.PENDING_EVALUATION, now, gates)
            writes.append(status_patch(found, released))
        results = await self.store.write(writes)
        for name, result in zip([*over, *stopped], results, strict=True):
            self._settle(name, name in over, isinstance(result, Refused))

    def _settle(self, name: str, is_over: bool, is_refused: bool) -> None:
        if is_refused and is_over and name in self._running:
            heapq.heappush(self._ends, (time.perf_counter() + _TICK, name, self._running[name]))
        elif is_refused and not is_over:
            self._stopping.add(name)
        elif is_over:
            self._running.pop(name, None)
            self._finished += 1


async def _drive(shape: _Shape) -> _Load:
    with tempfile.TemporaryDirectory() as folder:
        async with EmbeddedStore.on_disk(Path(folder) / "store.db", clock=SystemClock(), remembered=200_000) as store:
            setup = list(shape.setup())
            for start in range(0, len(setup), 500):
                for result in await store.write(setup[start : start + 500]):
                    assert isinstance(result, Written), result
            async with asyncio.TaskGroup() as tasks:
                controller = tasks.create_task(QuotaController(store, SystemClock(), shape.settings).run())
                await asyncio.sleep(1.0)
                load = _Load(store, shape.plans())
                await load.run()
                controller.cancel()
            return load
