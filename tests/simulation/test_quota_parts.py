"""Jobs that are part of other jobs, on virtual time: they stop and go on with the one at the top."""

from pathlib import Path

from tests.simulation.quota_platform import Platform, a_flavor, a_job, a_platform, a_queue

from muster.api import batch, core, kueue
from muster.api.kinds import Kind
from muster.api.objects import Key
from muster.controllers.quota.ancestry import Ancestry
from muster.quota.settings import Settings
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, write_one
from muster.testing.virtual import on_virtual_time


async def owner_of(platform: Platform, kind: Kind, name: str) -> dict:
    found = await platform.store.get(kind, Key("default", name))
    reference = {"apiVersion": kind.api_version, "kind": kind.name, "name": name, "uid": found.uid}
    return {"ownerReferences": [{**reference, "controller": True}]}


async def names_of_workload_owners(platform: Platform) -> set[str]:
    return {owner.name for found in (await platform.workloads()).values() for owner in found.meta.owner_references}


@on_virtual_time
async def test_parts_of_any_depth_run_only_while_the_job_at_the_top_is_admitted(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.make(a_flavor(), *a_queue("team", 2))
        await platform.submit("blocker", "sleep", "10", queue="team", cpu=2)
        await clock.sleep(1)
        await platform.submit("top", "sleep", "30", queue="team", cpu=2)
        await platform.submit("part", "sleep", "60", metadata=await owner_of(platform, batch.JOB, "top"))
        await platform.submit("leaf", "sleep", "60", queue="team", metadata=await owner_of(platform, batch.JOB, "part"))
        resting = a_job("resting", "sleep", "60", metadata=await owner_of(platform, batch.JOB, "part"), suspend=True)
        await platform.make(resting)
        assert (await platform.job("part")).spec.suspend is True, "from the start: its pods never run too early"
        await clock.sleep(3)
        assert [(await platform.job(name)).spec.suspend for name in ("part", "leaf", "resting")] == [True] * 3

        await clock.sleep(12)  # the blocker is over, and the top is admitted
        assert [(await platform.job(name)).spec.suspend for name in ("part", "leaf", "resting")] == [False, False, True]
        assert await platform.phases("leaf") == {"Running": 1}
        assert await names_of_workload_owners(platform) == {"blocker", "top"}

        stopped = {"spec": {"stopPolicy": "HoldAndDrain"}}
        await platform.patch(kueue.CLUSTER_QUEUE, "team", stopped)
        await clock.sleep(5)
        assert [(await platform.job(name)).spec.suspend for name in ("top", "part", "leaf")] == [True] * 3
        assert not await platform.pods("leaf")

        await platform.patch(kueue.CLUSTER_QUEUE, "team", {"spec": {"stopPolicy": "None"}})
        await clock.sleep(5)
        assert [(await platform.job(name)).spec.suspend for name in ("top", "part", "leaf")] == [False] * 3
        assert (await platform.events("part"))["Started"] >= 1


@on_virtual_time
async def test_what_a_jobs_pod_makes_is_part_of_the_job(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.make(a_flavor(), *a_queue("team", 2))
        await platform.submit("top", "sleep", "30", queue="team", cpu=2)
        await clock.sleep(2)
        (pod,) = await platform.pods("top")
        await platform.submit("made", "sleep", "9", metadata=await owner_of(platform, core.POD, pod.metadata.name))
        await clock.sleep(2)
        assert await platform.phases("made") == {"Running": 1}
        assert await names_of_workload_owners(platform) == {"top"}


@on_virtual_time
async def test_a_circle_of_owners_and_too_many_of_them_are_told(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        ancestry = Ancestry(store, {})
        above: dict = {}
        for number in range(12):
            made = a_job(f"j{number}", "true", metadata=above)
            found = await write_one(store, Create(batch.JOB, made))
            reference = {"apiVersion": "batch/v1", "kind": "Job", "name": f"j{number}", "uid": found.uid}
            above = {"ownerReferences": [{**reference, "controller": True}]}
        assert "more than 10" in (await ancestry.above(found)).problem
        tenth = await store.get(batch.JOB, Key("default", "j9"))
        assert (await ancestry.above(tenth)).problem == ""
        lost = a_job("lost", "true", metadata={"ownerReferences": [{**reference, "uid": "other", "controller": True}]})
        assert (await ancestry.above(await write_one(store, Create(batch.JOB, lost)))).is_orphan


@on_virtual_time
async def test_only_chosen_namespaces_queue(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path, settings=Settings()) as platform:
        outside = a_job("outside", "sleep", "5")
        outside["metadata"]["namespace"] = "kube-system"
        await platform.make(outside)
        await clock.sleep(2)
        assert (await platform.store.get(batch.JOB, Key("kube-system", "outside"))).document()["spec"][
            "suspend"
        ] is False
        assert not await platform.workloads()
