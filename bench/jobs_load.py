"""One load of jobs on a platform of its own, for `bench.jobs`: `python -m bench.jobs_load WHAT DIALECT JOBS PODS`.

The platform is the one of `muster up`, in this process and with its store on disk; only its nodes are simulated. What
was measured is printed as JSON. A process for each load: what one leaves behind in memory is not the other's burden.
"""

import asyncio
import contextlib
import json
import logging
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import uvloop

from muster.api import batch, core, kubeflow, kueue, volcano
from muster.api.kinds import Kind
from muster.api.kueue import names
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.assembly.configured import ServeSettings
from muster.assembly.whole import without_nodes
from muster.controllers.jobs.batch import BatchJobController
from muster.controllers.jobs.pytorch import PyTorchJobController
from muster.controllers.jobs.volcano import VolcanoJobController
from muster.controllers.podgroups import PodGroupController
from muster.runtime import collector
from muster.runtime.clock import SystemClock
from muster.settings.sections import Log, LogLevel, PlatformSettings
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Change, Create, Selection, Store, Write, Written
from muster.testing.builders import a_node
from muster.testing.nodes import SimulatedNodes
from muster.testing.staging import running

_NODES = 1_000
_QUEUE = "bench"
_NAMESPACE = "default"
_AT_ONCE = 500
_PATIENCE = 600.0
_SETTLE_SECONDS = 2.0
_ALLOWED = {"cpu": "64000", "memory": "256Ti"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """`make`: a job of that name with so many pods. `is_running` and `is_over`: whether a job says so itself."""

    kind: Kind
    make: Callable[[str, int], Document]
    is_running: Callable[[Document, int], bool]
    is_over: Callable[[Document], bool]


def _template(**spec: object) -> Document:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    container = {"name": "main", "image": "host", "command": ["train"], "resources": resources}
    return {"spec": {"containers": [container], **spec}}


def _in_queue(name: str) -> Document:
    return {"name": name, "namespace": _NAMESPACE, "labels": {names.QUEUE_LABEL: _QUEUE}}


def _volcano_job(name: str, pods: int) -> Document:
    task = {"name": "worker", "replicas": pods, "template": _template(restartPolicy="Never")}
    metadata = {"name": name, "namespace": _NAMESPACE}
    spec = {"minAvailable": pods, "queue": _QUEUE, "tasks": [task], "plugins": {"env": [], "svc": []}}
    return {"metadata": metadata, "spec": spec}


def _batch_job(name: str, pods: int) -> Document:
    spec = {"parallelism": pods, "completions": pods, "template": _template(restartPolicy="Never")}
    return {"metadata": _in_queue(name), "spec": spec}


def _pytorch_job(name: str, pods: int) -> Document:
    def role(replicas: int) -> Document:
        template = _template()
        template["spec"]["containers"][0]["name"] = "pytorch"
        return {"replicas": replicas, "restartPolicy": "OnFailure", "template": template}

    return {"metadata": _in_queue(name), "spec": {"pytorchReplicaSpecs": {"Master": role(1), "Worker": role(pods - 1)}}}


def _has_condition(job: Document, type: str) -> bool:
    listed = job.get("status", {}).get("conditions", ())
    return any(found["type"] == type and found["status"] == "True" for found in listed)


def _volcano_phase(job: Document) -> str:
    return str(job.get("status", {}).get("state", {}).get("phase", ""))


DIALECTS: Mapping[str, Dialect] = {
    "volcano": Dialect(
        volcano.JOB,
        _volcano_job,
        lambda job, pods: job.get("status", {}).get("running") == pods and _volcano_phase(job) == "Running",
        lambda job: _volcano_phase(job) == "Completed",
    ),
    "batch": Dialect(
        batch.JOB,
        _batch_job,
        lambda job, pods: job.get("status", {}).get("ready") == pods,
        lambda job: _has_condition(job, "Complete"),
    ),
    "pytorch": Dialect(
        kubeflow.PYTORCH_JOB,
        _pytorch_job,
        lambda job, pods: (
            sum(role.get("active", 0) for role in job.get("status", {}).get("replicaStatuses", {}).values()) == pods
        ),
        lambda job: _has_condition(job, "Succeeded"),
    ),
}


@dataclass(slots=True)
class Stopwatch:
    """Seconds since the start by the clock, and of this process's own work on any core."""

    started: float = field(default_factory=time.perf_counter)
    worked: float = field(default_factory=time.process_time)

    def read(self) -> dict[str, float]:
        return {"seconds": time.perf_counter() - self.started, "cpu": time.process_time() - self.worked}


@dataclass(slots=True)
class Lookout:
    """How many pods there are, are placed, and run; how many jobs say that all of theirs run, or that they are over."""

    store: Store
    dialect: Dialect
    pods_each: int
    known: set[Key] = field(default_factory=set)
    placed: set[Key] = field(default_factory=set)
    running: set[Key] = field(default_factory=set)
    jobs_running: set[Key] = field(default_factory=set)
    jobs_over: set[Key] = field(default_factory=set)
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def watch_pods(self) -> None:
        async for events in self.store.watch(Selection(core.POD)):
            for event in events:
                assert event.object is not None
                self._see(event.change, event.object)
            await self._tell()

    async def watch_jobs(self) -> None:
        async for events in self.store.watch(Selection(self.dialect.kind)):
            for job in {event.object.key: event.object for event in events if event.object is not None}.values():
                document = job.document()
                if self.dialect.is_running(document, self.pods_each):
                    self.jobs_running.add(job.key)
                if self.dialect.is_over(document):
                    self.jobs_over.add(job.key)
            await self._tell()

    def _see(self, change: Change, pod: Object) -> None:
        if change is Change.DELETED:
            return
        view = pod.read(core.Pod)
        self.known.add(pod.key)
        if view.spec.node_name:
            self.placed.add(pod.key)
        if view.status.phase == "Running":
            self.running.add(pod.key)

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def until(self, counted: Callable[[], int], wanted: int) -> None:
        """Raises TimeoutError that says how far it came."""
        try:
            async with asyncio.timeout(_PATIENCE), self._news:
                await self._news.wait_for(lambda: counted() >= wanted)
        except TimeoutError as error:
            raise TimeoutError(f"{counted()} of {wanted} in {_PATIENCE:.0f} s") from error


async def create(store: Store, writes: Sequence[Write]) -> None:
    for start in range(0, len(writes), _AT_ONCE):
        for result in await store.write(writes[start : start + _AT_ONCE]):
            assert isinstance(result, Written), result


def _setup() -> Iterator[Write]:
    quotas = [{"name": resource, "nominalQuota": amount} for resource, amount in _ALLOWED.items()]
    group = {"coveredResources": list(_ALLOWED), "flavors": [{"name": "default", "resources": quotas}]}
    yield Create(kueue.RESOURCE_FLAVOR, {"metadata": {"name": "default"}, "spec": {}})
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    yield Create(kueue.CLUSTER_QUEUE, {"metadata": {"name": _QUEUE}, "spec": spec})
    local = {"metadata": {"name": _QUEUE, "namespace": _NAMESPACE}, "spec": {"clusterQueue": _QUEUE}}
    yield Create(kueue.LOCAL_QUEUE, local)
    yield Create(volcano.QUEUE, {"metadata": {"name": _QUEUE}, "spec": {"weight": 1, "capability": _ALLOWED}})


@contextlib.asynccontextmanager
async def _a_platform() -> AsyncIterator[tuple[Store, SimulatedNodes]]:
    """With its nodes and queues, when it has come to rest."""
    with tempfile.TemporaryDirectory() as folder:
        settings = PlatformSettings(port=0, log=Log(LogLevel.WARNING))
        async with without_nodes(ServeSettings(Path(folder), settings)) as platform:
            built = [a_node(f"n{number}").cpu(64).memory("256Gi") for number in range(_NODES)]
            nodes = SimulatedNodes(platform.store, platform.clock, built)
            await nodes.register()
            await create(platform.store, list(_setup()))
            async with running(nodes.run):
                await asyncio.sleep(_SETTLE_SECONDS)
                yield platform.store, nodes


async def through_the_platform(dialect: Dialect, jobs: int, pods: int, *, to_the_end: bool) -> Document:
    """Seconds from the first creation until each stage is reached by all."""
    stages: Document = {}
    async with _a_platform() as (store, nodes):
        lookout = Lookout(store, dialect, pods)
        async with running(lookout.watch_pods, lookout.watch_jobs):
            await asyncio.sleep(0)
            watch = Stopwatch()
            await create(store, [Create(dialect.kind, dialect.make(f"job-{n}", pods)) for n in range(jobs)])
            stages["accepted"] = watch.read()
            for stage, seen in (("created", lookout.known), ("placed", lookout.placed), ("running", lookout.running)):
                await lookout.until(seen.__len__, jobs * pods)
                stages[stage] = watch.read()
            await lookout.until(lookout.jobs_running.__len__, jobs)
            stages["jobs_running"] = watch.read()
            if to_the_end:
                await nodes.finish(dict.fromkeys(nodes.running, 0))
                stages["pods_over"] = watch.read()
                await lookout.until(lookout.jobs_over.__len__, jobs)
                stages["succeeded"] = watch.read()
    return stages


async def by_the_controller(name: str, jobs: int, pods: int) -> Document:
    """Until all pods have been created, durably, with nobody at work but the job's controller; Volcano's waits for the
    groups of its pods to be let in."""
    dialect, clock = DIALECTS[name], SystemClock()
    controllers = {"volcano": VolcanoJobController, "batch": BatchJobController, "pytorch": PyTorchJobController}
    with tempfile.TemporaryDirectory() as folder:
        async with EmbeddedStore.on_disk(Path(folder) / "store.db", clock=clock) as store:
            await create(store, list(_setup()))
            lookout = Lookout(store, dialect, pods)
            parts = [controllers[name](store, clock).run, lookout.watch_pods]
            if name == "volcano":
                parts.append(PodGroupController(store, clock).run)
            async with running(*parts):
                await asyncio.sleep(0.5)
                watch = Stopwatch()
                await create(store, [Create(dialect.kind, dialect.make(f"job-{n}", pods)) for n in range(jobs)])
                await lookout.until(lookout.known.__len__, jobs * pods)
                return {"created": watch.read()}


async def memory(dialect: Dialect, jobs: int, pods: int) -> Document:
    """Of the whole process in MiB, before the jobs and when all of them run."""
    process = psutil.Process()
    async with _a_platform() as (store, _):
        empty = process.memory_info().rss
        lookout = Lookout(store, dialect, pods)
        async with running(lookout.watch_jobs):
            await create(store, [Create(dialect.kind, dialect.make(f"job-{n}", pods)) for n in range(jobs)])
            await lookout.until(lookout.jobs_running.__len__, jobs)
        await asyncio.sleep(_SETTLE_SECONDS)
        return {"empty": empty / 2**20, "full": process.memory_info().rss / 2**20}


async def main(what: str, dialect: str, jobs: int, pods: int) -> Document:
    match what:
        case "controller":
            return await by_the_controller(dialect, jobs, pods)
        case "memory":
            return await memory(DIALECTS[dialect], jobs, pods)
        case "running" | "whole":
            return await through_the_platform(DIALECTS[dialect], jobs, pods, to_the_end=what == "whole")
        case _:
            raise SystemExit(f"there is no {what}: running, whole, controller or memory")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    collector.calm()  # as `muster up` does
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))))
