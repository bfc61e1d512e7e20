"""The platform on virtual time where quota decides, with Volcano's Jobs and their groups."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.simulation.quota_platform import Platform, a_flavor, a_platform, a_queue

from muster.api import core, kueue, volcano
from muster.api.kueue import names
from muster.api.objects import Key
from muster.api.raw import JSON, Document
from muster.controllers.jobs.volcano import VolcanoJobController
from muster.controllers.podgroups import PodGroupController
from muster.jobs.volcano.plugins import KeyPair
from muster.runtime.clock import VirtualClock
from muster.store.protocol import Create, Patch, Selection, write_one

QUEUE = "team"


def a_task(name: str, replicas: int, *command: str, cpu: int = 1, **fields: JSON) -> Document:
    resources = {"requests": {"cpu": str(cpu)}, "limits": {"cpu": str(cpu)}}
    container = {"name": "main", "image": "host", "command": list(command), "resources": resources}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"name": name, "replicas": replicas, "template": template, **fields}


def a_volcano_job(name: str, *tasks: Document, metadata: Document | None = None, **spec: JSON) -> Document:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", **(metadata or {})},
        "spec": {"queue": QUEUE, "tasks": list(tasks), **spec},
    }


async def a_key() -> KeyPair:
    return KeyPair("private", "public")


class VolcanoPlatform:
    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.store, self.clock = platform.store, platform.clock

    async def submit(self, name: str, *tasks: Document, metadata: Document | None = None, **spec: JSON) -> None:
        await self.platform.make(a_volcano_job(name, *tasks, metadata=metadata, **spec))

    async def job(self, name: str) -> volcano.Job:
        return (await self.store.get(volcano.JOB, Key("default", name))).read(volcano.Job)

    async def phase(self, name: str) -> tuple[str | None, str | None]:
        state = (await self.job(name)).status.state
        return state.phase, state.reason

    async def command(self, name: str, action: str) -> None:
        target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": name}
        document = {"metadata": {"generateName": "c-", "namespace": "default"}, "action": action, "target": target}
        await write_one(self.store, Create(volcano.COMMAND, document))

    async def resize(self, name: str, replicas: Mapping[str, int], minimum: int | None = None) -> None:
        document = (await self.store.get(volcano.JOB, Key("default", name))).document()
        tasks = document["spec"]["tasks"]
        for task in tasks:
            task["replicas"] = replicas.get(task["name"], task["replicas"])
            task["minAvailable"] = min(task["minAvailable"], task["replicas"])
        spec: Document = {"tasks": tasks}
        if minimum is not None:
            spec["minAvailable"] = minimum
        await write_one(self.store, Patch(volcano.JOB, Key("default", name), {"spec": spec}))

    async def pods(self, name: str) -> dict[str, core.Pod]:
        listed = [found.read(core.Pod) for found in (await self.store.list(Selection(core.POD))).items]
        mine = [pod for pod in listed if (pod.metadata.labels or {}).get("volcano.sh/job-name") == name]
        return {pod.metadata.name: pod for pod in mine}

    async def phases(self, name: str) -> Counter[str]:
        return Counter(pod.status.phase or "" for pod in (await self.pods(name)).values())

    async def group(self, name: str) -> str | None:
        for found in (await self.store.list(Selection(volcano.POD_GROUP))).items:
            if found.meta.owner_references[0].name == name:
                return found.read(volcano.PodGroup).status.phase
        return "none"

    async def workloads(self, name: str) -> tuple[list[kueue.Workload], list[kueue.Workload]]:
        """The job's own, and its parts, that are not over."""
        found = [found.read(kueue.Workload) for found in (await self.store.list(Selection(kueue.WORKLOAD))).items]
        mine = [w for w in found if w.metadata.owner_references[0].name == name and not holds(w, "Finished")]
        parts = [w for w in mine if names.PART_OF_ANNOTATION in (w.metadata.annotations or {})]
        return [w for w in mine if w not in parts], parts


def holds(workload: kueue.Workload, condition: str) -> bool:
    return any(found.type == condition and found.status == "True" for found in workload.status.conditions)


@asynccontextmanager
async def a_volcano_platform(
    clock: VirtualClock,
    directory: Path,
    cpu: int,
    nodes: Mapping[str, Mapping[str, str]] | None = None,
    cpus: int = 64,
    **queue: JSON,
) -> AsyncIterator[VolcanoPlatform]:
    """One queue, of so many CPUs."""
    async with a_platform(clock, directory, nodes, cpus=cpus) as platform:
        more = [
            platform.group.create_task(part.run())
            for part in (VolcanoJobController(platform.store, clock, a_key), PodGroupController(platform.store, clock))
        ]
        named = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": QUEUE}}
        await platform.make(a_flavor(), named, *a_queue(f"volcano-{QUEUE}", cpu, **queue))
        await clock.sleep(1)
        yield VolcanoPlatform(platform)
        for task in more:
            task.cancel()
