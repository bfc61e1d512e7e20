"""Jobs from submission to end on virtual time: real store, real scheduler, real agent; only processes are pretended."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from muster.agent.devices import Machine
from muster.agent.node import Agent, NodeConfig
from muster.api import batch, core, errors, scheduling
from muster.api.objects import Key
from muster.api.raw import JSON, Document
from muster.controllers.garbage import GarbageCollector
from muster.controllers.jobs.batch import BatchJobController
from muster.controllers.nodes import NodeController
from muster.controllers.scheduling import SchedulingController
from muster.placement.engine import default_engine
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Delete, Patch, Selection, write_one
from muster.testing.runtimes import PretendMachine, PretendRuntime
from muster.testing.staging import running
from muster.testing.virtual import on_virtual_time

KEY = Key("default", "j")


@dataclass
class Platform:
    store: EmbeddedStore
    clock: VirtualClock
    machine: PretendMachine

    async def submit(self, *command: str, pod: Document | None = None, **spec: JSON) -> None:
        container = {"name": "main", "image": "host", "command": list(command)}
        template = {"spec": {"restartPolicy": "Never", "containers": [container], **(pod or {})}}
        document = {"metadata": {"name": "j", "namespace": "default"}, "spec": {"template": template, **spec}}
        await write_one(self.store, Create(batch.JOB, document))

    async def change(self, **spec: JSON) -> None:
        await write_one(self.store, Patch(batch.JOB, KEY, {"spec": spec}))

    async def status(self) -> Document:
        found: Document = (await self.store.get(batch.JOB, KEY)).document().get("status", {})
        return found

    async def conditions(self) -> dict[str, str]:
        """Type and reason of those that are true."""
        listed = (await self.status()).get("conditions", [])
        return {found["type"]: found["reason"] for found in listed if found["status"] == "True"}

    async def pods(self) -> list[core.Pod]:
        return [found.read(core.Pod) for found in (await self.store.list(Selection(core.POD))).items]

    async def phases(self) -> Counter[str]:
        return Counter(pod.status.phase or "" for pod in await self.pods())

    async def events(self) -> Counter[str]:
        found = [event.read(core.Event) for event in (await self.store.list(Selection(core.EVENT))).items]
        return Counter(event.reason or "" for event in found if event.involved_object.kind == "Job")


@asynccontextmanager
async def a_platform(clock: VirtualClock, directory: Path) -> AsyncIterator[Platform]:
    machine = PretendMachine(clock)
    async with EmbeddedStore.in_memory(clock=clock, entropy=random.Random(1)) as store:
        agent = Agent(
            store,
            runtime=PretendRuntime(machine),
            clock=clock,
            entropy=random.Random(2),
            config=NodeConfig("n", directory, Machine(64_000, 2**36, 500, ()), address="10.0.0.1"),
        )
        scheduler = SchedulingController(store, clock, default_engine, uses_threads=False)
        parts = (BatchJobController(store, clock), GarbageCollector(store, clock), NodeController(store, clock))
        async with running(agent.run, scheduler.run, *(part.run for part in parts)):
            await clock.sleep(1)
            yield Platform(store, clock, machine)


@on_virtual_time
async def test_a_job_runs_to_its_end_and_goes_when_its_time_is_over(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit("sleep", "5", completions=5, parallelism=2, ttlSecondsAfterFinished=60)
        await clock.sleep(2)
        status = await platform.status()
        assert (status["active"], status["ready"]) == (2, 2)
        await clock.sleep(20)
        status = await platform.status()
        assert await platform.conditions() == {
            "SuccessCriteriaMet": "CompletionsReached",
            "Complete": "CompletionsReached",
        }
        assert status["succeeded"] == len(platform.machine.launches) == 5
        assert {"active", "failed"}.isdisjoint(status)
        assert not any(pod.metadata.finalizers for pod in await platform.pods())
        assert await platform.events() == {"SuccessfulCreate": 5, "Completed": 1}

        revision = platform.store.revision
        await clock.sleep(30)
        assert await platform.status() == status
        assert platform.store.revision - revision < 10, "leases apart, nothing is written when nothing changes"
        await clock.sleep(60)
        with pytest.raises(errors.NotFound):
            await platform.status()
        assert not await platform.pods()


@on_virtual_time
async def test_each_index_is_told_which_it_is(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit(
            "sleep", "$(JOB_COMPLETION_INDEX)", completionMode="Indexed", completions=4, parallelism=4
        )
        await clock.sleep(1.5)
        assert (await platform.status())["completedIndexes"] == "0,1"
        await clock.sleep(5)
        assert (await platform.status())["completedIndexes"] == "0-3"
        assert "Complete" in await platform.conditions()
        assert {pod.spec.hostname for pod in await platform.pods()} == {"j-0", "j-1", "j-2", "j-3"}
        assert {pod.metadata.name[:4] for pod in await platform.pods()} == {"j-0-", "j-1-", "j-2-", "j-3-"}


@on_virtual_time
async def test_failures_are_tried_again_after_longer_and_longer_waits(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit("exit", "3", backoffLimit=3)
        await clock.sleep(300)
        assert await platform.conditions() == {
            "FailureTarget": "BackoffLimitExceeded",
            "Failed": "BackoffLimitExceeded",
        }
        assert (await platform.status())["failed"] == len(platform.machine.launches) == 4
        starts = sorted(process.started_at for process in platform.machine.processes.values())
        waits = [later - sooner for sooner, later in pairwise(starts)]
        assert [round(wait / 10) for wait in waits] == [1, 2, 4]
        assert (await platform.events())["BackoffLimitExceeded"] == 1


@on_virtual_time
async def test_containers_that_restart_in_place_have_the_same_limit(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit("exit", "3", backoffLimit=2, pod={"restartPolicy": "OnFailure"})
        await clock.sleep(400)
        assert (await platform.conditions())["Failed"] == "BackoffLimitExceeded"
        assert len(platform.machine.launches) == 3
        assert not await platform.pods()


@on_virtual_time
async def test_suspending_ends_the_pods_and_resuming_makes_others(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit("sleep", "100", completions=3, parallelism=3, activeDeadlineSeconds=150)
        await clock.sleep(5)
        first = {pod.metadata.uid for pod in await platform.pods()}
        await platform.change(suspend=True)
        await clock.sleep(5)
        status = await platform.status()
        assert (await platform.conditions(), await platform.pods()) == ({"Suspended": "JobSuspended"}, [])
        assert {"active", "failed", "startTime"}.isdisjoint(status)

        # A queue decides where it goes before it lets it go on.
        await platform.change(template={"spec": {"nodeSelector": {"kubernetes.io/hostname": "n"}}})
        await clock.sleep(1000)
        await platform.change(suspend=False)
        await clock.sleep(5)
        pods = await platform.pods()
        assert len(pods) == 3
        assert not first & {pod.metadata.uid for pod in pods}
        assert {(pod.spec.node_selector or {}).get("kubernetes.io/hostname") for pod in pods} == {"n"}
        await clock.sleep(120)
        assert "Complete" in await platform.conditions()
        assert {"Suspended", "Resumed"} <= set(await platform.events())


@on_virtual_time
async def test_a_job_made_suspended_waits(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit("sleep", "1", suspend=True)
        await clock.sleep(60)
        assert await platform.conditions() == {"Suspended": "JobSuspended"}
        assert not await platform.pods()
        await platform.change(suspend=False)
        await clock.sleep(5)
        assert "Complete" in await platform.conditions()


@on_virtual_time
async def test_the_deadline_ends_what_still_runs(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit("sleep", "1000", activeDeadlineSeconds=30, completions=2, parallelism=2)
        await clock.sleep(29)
        assert (await platform.status())["active"] == 2
        await clock.sleep(3)
        assert (await platform.conditions())["Failed"] == "DeadlineExceeded"
        assert (await platform.status())["failed"] == 2
        assert not await platform.pods()


@on_virtual_time
async def test_the_end_of_a_job_waits_for_its_pods(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit("ignore-term", "1000", activeDeadlineSeconds=10)
        await clock.sleep(20)
        assert await platform.conditions() == {"FailureTarget": "DeadlineExceeded"}
        assert (await platform.status())["terminating"] == 1
        await clock.sleep(30)
        assert set(await platform.conditions()) == {"FailureTarget", "Failed"}


@on_virtual_time
async def test_more_and_fewer_at_a_time(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit("sleep", "100", completions=9, parallelism=1)
        await clock.sleep(5)
        for parallelism in (6, 2, 4):
            await platform.change(parallelism=parallelism)
            await clock.sleep(5)
            assert (await platform.status())["active"] == parallelism
            assert await platform.phases() == {"Running": parallelism}
        assert "failed" not in await platform.status()


@on_virtual_time
async def test_a_pod_that_is_deleted_counts_as_failed_and_is_replaced(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit("sleep", "20", podReplacementPolicy="Failed")
        await clock.sleep(5)
        (pod,) = await platform.pods()
        await platform.store.write([Delete(core.POD, Key("default", pod.metadata.name))])
        await clock.sleep(60)
        status = await platform.status()
        assert (status["failed"], status["succeeded"]) == (1, 1)
        assert len(await platform.pods()) == 1


@on_virtual_time
async def test_a_pod_that_is_deleted_before_it_has_a_node_is_replaced(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit("sleep", "5", podReplacementPolicy="Failed", pod={"nodeSelector": {"no": "node"}})
        await clock.sleep(5)
        (pod,) = await platform.pods()
        await platform.store.write([Delete(core.POD, Key("default", pod.metadata.name))])
        await clock.sleep(30)
        (other,) = await platform.pods()
        assert other.metadata.uid != pod.metadata.uid


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
def test_deleting_a_job(tmp_path: Path, propagation: str) -> None:
    @on_virtual_time
    async def life(clock: VirtualClock) -> None:
        async with a_platform(clock, tmp_path) as platform:
            await platform.submit("sleep", "1000", completions=3, parallelism=2)
            await clock.sleep(5)
            await platform.store.write([Delete(batch.JOB, KEY, propagation)])  # type: ignore[arg-type]
            await clock.sleep(40)
            with pytest.raises(errors.NotFound):
                await platform.status()
            pods = await platform.pods()
            assert len(pods) == (2 if propagation == "Orphan" else 0)
            assert not any(pod.metadata.finalizers or pod.metadata.owner_references for pod in pods)

    life()


@on_virtual_time
async def test_success_of_one_index_may_be_enough(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit(
            "sleep", "$(JOB_COMPLETION_INDEX)0", completionMode="Indexed", completions=3, parallelism=3,
            successPolicy={"rules": [{"succeededIndexes": "0"}]},
        )  # fmt: skip
        await clock.sleep(5)
        assert (await platform.conditions())["Complete"] == "SuccessPolicy"
        status = await platform.status()
        assert (status["completedIndexes"], status["succeeded"]) == ("0", 1)
        assert "failed" not in status
        assert len(await platform.pods()) == 1


@on_virtual_time
async def test_indexes_fail_on_their_own(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit(
            "sleep", "1", "$(JOB_COMPLETION_INDEX)", completionMode="Indexed", completions=3, parallelism=3,
            backoffLimitPerIndex=1,
        )  # fmt: skip
        await clock.sleep(60)
        status = await platform.status()
        assert (status["completedIndexes"], status["failedIndexes"], status["failed"]) == ("0", "1,2", 4)
        assert (await platform.conditions())["Failed"] == "FailedIndexes"
        counts = [
            (pod.metadata.annotations or {}).get("batch.kubernetes.io/job-index-failure-count")
            for pod in await platform.pods()
        ]
        assert sorted(map(str, counts)) == ["0", "0", "0", "1", "1"]


@on_virtual_time
async def test_pods_that_fit_a_manual_selector_are_taken_in(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        pod = {
            "metadata": {"name": "early", "namespace": "default", "labels": {"app": "x"}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "m", "image": "host", "command": ["sleep", "9"]}],
            },
        }
        await write_one(platform.store, Create(core.POD, pod))
        document = {
            "metadata": {"name": "j", "namespace": "default"},
            "spec": {
                "manualSelector": True,
                "selector": {"matchLabels": {"app": "x"}},
                "template": {"metadata": {"labels": {"app": "x"}}, "spec": pod["spec"]},
            },
        }
        await write_one(platform.store, Create(batch.JOB, document))
        await clock.sleep(15)
        assert [found.metadata.name for found in await platform.pods()] == ["early"]
        assert (await platform.status())["succeeded"] == 1

        body = {"metadata": {"labels": {"app": "y"}}}
        await write_one(platform.store, Patch(core.POD, Key("default", "early"), body))
        await clock.sleep(5)
        assert not (await platform.pods())[0].metadata.owner_references


@on_virtual_time
async def test_a_job_of_another_manager_is_left_alone(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit("sleep", "1", managedBy="acme.io/jobs")
        await clock.sleep(30)
        assert (await platform.status(), await platform.pods()) == ({}, [])


@on_virtual_time
async def test_pods_that_cannot_be_made_are_told_of_and_tried_again(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit("sleep", "1", pod={"priorityClassName": "missing"})
        await clock.sleep(30)
        found = [event.read(core.Event) for event in (await platform.store.list(Selection(core.EVENT))).items]
        told = {event.message: event.count or 0 for event in found if event.reason == "FailedCreate"}
        assert all("no PriorityClass with name missing was found" in (message or "") for message in told)
        assert (len(told), sum(told.values()) < 20) == (1, True), "the same again and again, more and more rarely"
        assert "active" not in await platform.status()
        made = {"metadata": {"name": "missing"}, "value": 5}
        await write_one(platform.store, Create(scheduling.PRIORITY_CLASS, made))
        await clock.sleep(90)
        assert "Complete" in await platform.conditions()
