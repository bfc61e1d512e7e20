"""An elastic PyTorchJob on virtual time: its workers come and go with quota."""

from pathlib import Path

from tests.simulation.quota_platform import Platform, a_class, a_flavor, a_platform, a_queue

from muster.api import core, kubeflow
from muster.api.objects import Key
from muster.api.raw import Document
from muster.controllers.jobs.pytorch import PyTorchJobController
from muster.controllers.podgroups import PodGroupController
from muster.runtime.clock import VirtualClock
from muster.store.protocol import Selection
from muster.testing.virtual import on_virtual_time

PRIORITY = "kueue.x-k8s.io/priority-class"


def an_elastic_job(workers: int, least: int) -> Document:
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    container = {"name": "pytorch", "image": "host", "command": ["sleep", "1000"], "resources": resources}
    role = {"replicas": workers, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}
    labels = {"kueue.x-k8s.io/queue-name": "team", PRIORITY: "low"}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "e", "namespace": "default", "labels": labels},
        "spec": {"elasticPolicy": {"minReplicas": least, "maxReplicas": 8}, "pytorchReplicaSpecs": {"Worker": role}},
    }


async def workers(platform: Platform) -> list[str]:
    listed = [found.read(core.Pod) for found in (await platform.store.list(Selection(core.POD))).items]
    return sorted(
        pod.metadata.name
        for pod in listed
        if pod.metadata.name.startswith("e-") and pod.status.phase == "Running" and not pod.metadata.deletion_timestamp
    )


@on_virtual_time
async def test_workers_come_and_go_with_quota(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        more = [
            platform.group.create_task(part.run())
            for part in (PyTorchJobController(platform.store, clock), PodGroupController(platform.store, clock))
        ]
        await platform.make(a_flavor(), a_class("low", 1), a_class("high", 9))
        await platform.make(*a_queue("team", 4, preemption={"withinClusterQueue": "LowerPriority"}))
        high = {"labels": {PRIORITY: "high"}}
        await platform.submit("first", "sleep", "20", queue="team", cpu=2, metadata=high)
        await clock.sleep(2)
        await platform.make(an_elastic_job(4, 1))
        await clock.sleep(4)
        assert await workers(platform) == ["e-worker-0", "e-worker-1"]
        await clock.sleep(25)
        assert len(await workers(platform)) == 4
        uids = (await platform.store.get(core.POD, Key("default", "e-worker-0"))).uid

        await platform.submit("second", "sleep", "20", queue="team", cpu=3, metadata=high)
        await clock.sleep(10)
        assert (await platform.phases("second")) == {"Running": 1}
        assert await workers(platform) == ["e-worker-0"]
        await clock.sleep(30)
        assert len(await workers(platform)) == 4

        await platform.patch(kubeflow.PYTORCH_JOB, "e", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
        await clock.sleep(10)
        assert await workers(platform) == ["e-worker-0", "e-worker-1"]
        assert (await platform.store.get(core.POD, Key("default", "e-worker-0"))).uid == uids, "never stopped"
        owned = [name for name in await platform.workloads() if "-part-" in name]
        assert len(owned) == 1
        for task in more:
            task.cancel()
