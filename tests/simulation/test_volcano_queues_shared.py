"""Volcano's queues share the nodes: borrowed while nobody needs it, given back to whom it belongs, on virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.simulation.quota_platform import a_platform
from tests.simulation.volcano_quota_platform import VolcanoPlatform, a_key, a_task

from muster.api import core, kueue, volcano
from muster.api.objects import Key
from muster.api.raw import JSON
from muster.controllers.jobs.queues import QueueController
from muster.controllers.jobs.volcano import VolcanoJobController
from muster.controllers.podgroups import PodGroupController
from muster.controllers.quota.volcano_queues import VolcanoQuotaController
from muster.runtime.clock import VirtualClock
from muster.store.protocol import Create, Delete, Patch, Selection, write_one
from muster.testing.virtual import on_virtual_time


@asynccontextmanager
async def shared(clock: VirtualClock, directory: Path) -> AsyncIterator[VolcanoPlatform]:
    """One node of eight CPUs."""
    async with a_platform(clock, directory, cpus=8) as platform:
        store = platform.store
        parts = (
            VolcanoJobController(store, clock, a_key),
            PodGroupController(store, clock),
            QueueController(store, clock),
            VolcanoQuotaController(store, clock),
        )
        tasks = [platform.group.create_task(part.run()) for part in parts]
        await clock.sleep(2)
        yield VolcanoPlatform(platform)
        for task in tasks:
            task.cancel()


async def make_queue(up: VolcanoPlatform, name: str, **spec: JSON) -> None:
    await write_one(up.store, Create(volcano.QUEUE, {"metadata": {"name": name}, "spec": {"parent": "root", **spec}}))


async def running(up: VolcanoPlatform) -> dict[str, int]:
    """By job, how many of its pods run."""
    pods = [found.read(core.Pod) for found in (await up.store.list(Selection(core.POD))).items]
    alive = [pod for pod in pods if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp]
    names = sorted({(pod.metadata.labels or {})["volcano.sh/job-name"] for pod in alive})
    return {name: sum((pod.metadata.labels or {})["volcano.sh/job-name"] == name for pod in alive) for name in names}


@on_virtual_time
async def test_a_platform_without_set_up_runs_jobs_that_name_no_queue(clock: VirtualClock, tmp_path: Path) -> None:
    async with shared(clock, tmp_path) as up:
        await up.submit("j", a_task("w", 2, "sleep", "10"), queue="default")
        await clock.sleep(3)
        assert await running(up) == {"j": 2}
        await clock.sleep(12)
        assert await up.phase("j") == ("Completed", None)


@on_virtual_time
async def test_an_elastic_job_fills_what_is_idle_and_gives_it_back_to_whom_it_belongs(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with shared(clock, tmp_path) as up:
        await make_queue(up, "gold", deserved={"cpu": "5"}, capability={"cpu": "6"})
        await make_queue(up, "rest")
        await clock.sleep(2)
        await up.submit("filler", a_task("w", 10, "sleep", "1000", minAvailable=2), minAvailable=2, queue="rest")
        await clock.sleep(4)
        assert await running(up) == {"filler": 8}, "all that there is, since nobody else wants it"

        await up.submit("gold-1", a_task("w", 4, "sleep", "40"), queue="gold")
        await clock.sleep(8)
        assert await running(up) == {"filler": 4, "gold-1": 4}, "taken back, pod by pod"
        await up.submit("gold-2", a_task("w", 3, "sleep", "40"), queue="gold")
        await clock.sleep(5)
        assert await up.phase("gold-2") == ("Pending", "WaitingForQuota"), "seven would be beyond its capability"
        assert await running(up) == {"filler": 4, "gold-1": 4}
        await clock.sleep(60)
        assert (await running(up)).get("gold-2") == 3


@on_virtual_time
async def test_a_closed_queue_admits_nothing_and_lets_run_what_runs(clock: VirtualClock, tmp_path: Path) -> None:
    async with shared(clock, tmp_path) as up:
        await make_queue(up, "team")
        await clock.sleep(2)
        await up.submit("early", a_task("w", 1, "sleep", "60"), queue="team")
        await clock.sleep(3)
        await write_one(
            up.store, Patch(volcano.QUEUE, Key("", "team"), {"status": {"state": "Closed"}}, subresource="status")
        )
        await clock.sleep(3)
        await up.submit("late", a_task("w", 1, "sleep", "60"), queue="team")
        await clock.sleep(5)
        assert await running(up) == {"early": 1}
        assert await up.phase("late") == ("Pending", "QueueNotOpen")
        await clock.sleep(60)
        await write_one(up.store, Delete(volcano.JOB, Key("default", "early")))
        await write_one(
            up.store, Patch(volcano.QUEUE, Key("", "team"), {"status": {"state": "Open"}}, subresource="status")
        )
        await clock.sleep(8)
        assert await running(up) == {"late": 1}
        queue = await up.store.get(kueue.CLUSTER_QUEUE, Key("", "volcano-team"))
        assert queue.document()["spec"]["stopPolicy"] == "None"
