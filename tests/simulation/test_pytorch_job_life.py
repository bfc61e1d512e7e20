"""PyTorchJobs from submission to end on virtual time: real store, quota, scheduler and agent; only processes are
pretended."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.simulation import quota_platform

from muster.api import core, errors, kubeflow, kueue, volcano
from muster.api.objects import Key
from muster.api.raw import JSON, Document
from muster.controllers.jobs.pytorch import PyTorchJobController
from muster.controllers.podgroups import PodGroupController
from muster.runtime.clock import VirtualClock
from muster.store.protocol import Selection
from muster.testing.staging import running
from muster.testing.virtual import on_virtual_time

KEY = Key("default", "j")


def a_role(replicas: int, *command: str, restarts: str = "OnFailure", cpu: int = 1) -> Document:
    container = {
        "name": "pytorch", "image": "host", "command": list(command), "resources": {"requests": {"cpu": str(cpu)}},
    }  # fmt: skip
    return {"replicas": replicas, "restartPolicy": restarts, "template": {"spec": {"containers": [container]}}}


@dataclass
class Platform:
    inner: quota_platform.Platform

    async def submit(self, master: Document, worker: Document, **policy: JSON) -> None:
        await self.inner.make(
            {
                "apiVersion": "kubeflow.org/v1",
                "kind": "PyTorchJob",
                "metadata": {"name": "j", "namespace": "default"},
                "spec": {"runPolicy": policy, "pytorchReplicaSpecs": {"Master": master, "Worker": worker}},
            }
        )

    async def job(self) -> Document:
        return (await self.inner.store.get(kubeflow.PYTORCH_JOB, KEY)).document()

    async def true(self) -> set[str]:
        listed = (await self.job()).get("status", {}).get("conditions", [])
        return {found["type"] for found in listed if found["status"] == "True"}

    async def counts(self) -> dict[str, Document]:
        listed = (await self.job())["status"]["replicaStatuses"]
        return {role: {name: n for name, n in found.items() if name != "selector"} for role, found in listed.items()}

    async def phases(self) -> Counter[str]:
        return await self.inner.phases()


@asynccontextmanager
async def a_platform(clock: VirtualClock, directory: Path, cpus: int = 8) -> AsyncIterator[Platform]:
    async with quota_platform.a_platform(clock, directory, cpus=cpus) as inner:
        parts = (PyTorchJobController(inner.store, clock), PodGroupController(inner.store, clock))
        async with running(*(part.run for part in parts)):
            yield Platform(inner)


@on_virtual_time
async def test_a_gang_runs_to_its_end_and_goes_in_time(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit(
            a_role(1, "sleep", "20"), a_role(3, "sleep", "10"), cleanPodPolicy="All", ttlSecondsAfterFinished=60
        )
        await clock.sleep(5)
        assert await platform.phases() == {"Running": 4}
        assert await platform.true() == {"Created", "Running"}
        assert await platform.counts() == {"Master": {"active": 1}, "Worker": {"active": 3}}
        store = platform.inner.store
        assert (await store.get(volcano.POD_GROUP, KEY)).read(volcano.PodGroup).spec.min_member == 4
        assert (await store.get(core.SERVICE, Key("default", "j-master-0"))).document()["spec"]["clusterIP"] == "None"
        (workload,) = (await platform.inner.workloads()).values()
        sets = workload.read(kueue.Workload).spec.pod_sets
        assert [(pods.name, pods.count) for pods in sets] == [("master", 1), ("worker", 3)]

        await clock.sleep(10)
        assert await platform.counts() == {"Master": {"active": 1}, "Worker": {"succeeded": 3}}
        await clock.sleep(10)
        assert await platform.true() == {"Created", "Succeeded"}
        assert await platform.counts() == {"Master": {"succeeded": 1}, "Worker": {"succeeded": 3}}
        assert not await platform.inner.pods(), "cleaned up"
        assert not (await store.list(Selection(core.SERVICE))).items
        assert not (await store.list(Selection(volcano.POD_GROUP))).items
        assert len(platform.inner.machine.launches) == 4
        assert "Finished" in await platform.inner.true("j")

        revision = store.revision
        await clock.sleep(30)
        assert store.revision - revision < 20, "leases apart, nothing is written when nothing changes"
        await clock.sleep(60)
        with pytest.raises(errors.NotFound):
            await platform.job()


@on_virtual_time
async def test_a_gang_that_does_not_fit_starts_none_of_its_pods(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path, cpus=4) as platform:
        await platform.submit(a_role(1, "sleep", "20"), a_role(2, "sleep", "20", cpu=2))
        await clock.sleep(10)
        assert await platform.phases() == {"Pending": 3}
        assert await platform.true() == {"Created"}


@on_virtual_time
async def test_a_job_is_suspended_and_resumed(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit(a_role(1, "sleep", "20"), a_role(3, "sleep", "20"))
        await clock.sleep(5)
        await platform.inner.patch(kueue.WORKLOAD, await _workload(platform), {"spec": {"active": False}})
        await clock.sleep(40)
        assert await platform.true() == {"Created", "Suspended"}
        assert not await platform.inner.pods()
        await platform.inner.patch(kueue.WORKLOAD, await _workload(platform), {"spec": {"active": True}})
        await clock.sleep(10)
        assert await platform.true() == {"Created", "Running"}
        assert await platform.phases() == {"Running": 4}
        await clock.sleep(20)
        assert await platform.true() == {"Created", "Succeeded"}
        assert await platform.phases() == {"Succeeded": 4}


async def _workload(platform: Platform) -> str:
    (name,) = await platform.inner.workloads()
    return name


@on_virtual_time
async def test_exit_codes_decide_whether_a_pod_is_replaced(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        worker = a_role(1, "exit", "137", restarts="ExitCode")
        await platform.submit(a_role(1, "sleep", "900"), worker, backoffLimit=2)
        await clock.sleep(5)
        assert await platform.true() == {"Created", "Restarting"}
        await clock.sleep(60)
        assert await platform.true() == {"Created", "Failed"}
        assert not await platform.inner.pods(), "the limit ends all of it"
        commands = Counter(launch.argv[0] for launch in platform.inner.machine.launches)
        assert commands == {"sleep": 1, "exit": 3}
        assert (await platform.inner.events("j"))["PyTorchJobFailed"] == 1


@on_virtual_time
async def test_an_exit_code_below_128_is_final(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        worker = a_role(1, "exit", "3", restarts="ExitCode")
        await platform.submit(a_role(1, "sleep", "900"), worker, cleanPodPolicy="Running")
        await clock.sleep(20)
        assert await platform.true() == {"Created", "Failed"}
        assert await platform.phases() == {"Failed": 1}
