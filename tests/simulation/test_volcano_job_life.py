"""Volcano Jobs from submission to end on virtual time: real store, real scheduler, real agent; only processes are
pretended."""

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.simulation.refusing import Refusing

from muster.agent.devices import Machine
from muster.agent.node import Agent, NodeConfig
from muster.api import core, errors, volcano
from muster.api.objects import Key
from muster.api.raw import JSON, Document
from muster.controllers.garbage import GarbageCollector
from muster.controllers.jobs.volcano import VolcanoJobController
from muster.controllers.nodes import NodeController
from muster.controllers.podgroups import PodGroupController
from muster.controllers.scheduling import SchedulingController
from muster.jobs.volcano.plugins import KeyPair
from muster.placement.engine import default_engine
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Delete, Patch, Selection, write_one
from muster.testing.runtimes import PretendMachine, PretendRuntime
from muster.testing.staging import running
from muster.testing.virtual import on_virtual_time

KEY = Key("default", "j")


def a_task(name: str, replicas: int, *command: str, pod: Document | None = None, **fields: JSON) -> Document:
    container = {"name": "main", "image": "host", "command": list(command)}
    template = {"spec": {"restartPolicy": "Never", "containers": [container], **(pod or {})}}
    return {"name": name, "replicas": replicas, "template": template, **fields}


@dataclass
class Platform:
    store: EmbeddedStore
    clock: VirtualClock
    machine: PretendMachine

    async def submit(self, *tasks: Document, **spec: JSON) -> None:
        document = {"metadata": {"name": "j", "namespace": "default"}, "spec": {"tasks": list(tasks), **spec}}
        await write_one(self.store, Create(volcano.JOB, document))

    async def command(self, action: str) -> None:
        job = await self.store.get(volcano.JOB, KEY)
        target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j", "uid": job.uid}
        document = {
            "metadata": {"generateName": "j-", "namespace": "default"}, "action": action,
            "target": {**target, "controller": True, "blockOwnerDeletion": True},
        }  # fmt: skip
        await write_one(self.store, Create(volcano.COMMAND, document))

    async def job(self) -> volcano.Job:
        return (await self.store.get(volcano.JOB, KEY)).read(volcano.Job)

    async def phase(self) -> str | None:
        return (await self.job()).status.state.phase

    async def pods(self) -> dict[str, core.Pod]:
        found = [found.read(core.Pod) for found in (await self.store.list(Selection(core.POD))).items]
        return {pod.metadata.name: pod for pod in found}

    async def uids(self) -> dict[str, str]:
        return {name: pod.metadata.uid for name, pod in (await self.pods()).items()}

    async def phases(self) -> Counter[str]:
        return Counter(pod.status.phase or "" for pod in (await self.pods()).values())

    async def groups(self) -> list[volcano.PodGroup]:
        return [found.read(volcano.PodGroup) for found in (await self.store.list(Selection(volcano.POD_GROUP))).items]

    async def events(self) -> Counter[str]:
        found = [event.read(core.Event) for event in (await self.store.list(Selection(core.EVENT))).items]
        return Counter(event.reason or "" for event in found if event.involved_object.kind == "Job")


async def a_key() -> KeyPair:
    return KeyPair("private", "public")


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
        parts = (
            VolcanoJobController(store, clock, a_key), PodGroupController(store, clock),
            GarbageCollector(store, clock), NodeController(store, clock),
        )  # fmt: skip
        async with running(agent.run, scheduler.run, *(part.run for part in parts)):
            await clock.sleep(1)
            yield Platform(store, clock, machine)


@on_virtual_time
async def test_two_tasks_run_to_their_end_and_the_job_goes_when_its_time_is_over(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit(
            a_task("ps", 1, "sleep", "5"), a_task("worker", 3, "sleep", "8"), ttlSecondsAfterFinished=60
        )
        await clock.sleep(3)
        job = await platform.job()
        assert (job.status.state.phase, job.status.running, job.status.min_available) == ("Running", 4, 4)
        assert await platform.phases() == {"Running": 4}
        (group,) = await platform.groups()
        assert group.spec.min_task_member == {"ps": 1, "worker": 3}
        await clock.sleep(10)
        job = await platform.job()
        assert (job.status.state.phase, job.status.succeeded) == ("Completed", 4)
        assert [condition.status for condition in job.status.conditions] == ["Pending", "Running", "Completed"]
        assert not await platform.groups()

        revision = platform.store.revision
        await clock.sleep(30)
        assert platform.store.revision - revision < 10, "leases apart, nothing is written when nothing changes"
        await clock.sleep(60)
        with pytest.raises(errors.NotFound):
            await platform.job()
        assert not await platform.pods()


# Restarts


@on_virtual_time
async def test_a_job_is_restarted_as_often_as_it_may_and_its_last_pods_stay(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit(
            a_task("bad", 1, "sleep", "2", "3"), a_task("good", 2, "sleep", "1000"), maxRetry=3,
            policies=[{"event": "PodFailed", "action": "RestartJob"}],
        )  # fmt: skip
        await clock.sleep(120)
        job = await platform.job()
        assert (job.status.state.phase, job.status.retry_count, job.status.failed) == ("Failed", 3, 1)
        assert len(platform.machine.launches) == 9, "three pods, three times"
        assert await platform.phases() == {"Failed": 1}
        assert not await platform.groups()
        assert (await platform.events())["ExecuteAction"] == 1, "the same event, counted"


@on_virtual_time
async def test_exit_codes_choose_what_is_done(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit(
            a_task("w", 1, "sleep", "2", "7", policies=[{"exitCode": 7, "action": "CompleteJob"}]),
            a_task("good", 2, "sleep", "1000"),
            policies=[{"event": "PodFailed", "action": "AbortJob"}],
        )
        await clock.sleep(60)
        job = await platform.job()
        assert (job.status.state.phase, job.status.failed, job.status.succeeded) == ("Completed", 1, None)
        assert job.status.state.reason is None
        assert await platform.phases() == {"Failed": 1}


@pytest.mark.parametrize(
    ("action", "same"),
    {
        "RestartPod": {"j-good-0", "j-good-1", "j-bad-1", "j-bad-2", "j-bad-3"},
        "RestartTask": {"j-good-0", "j-good-1"},
        "RestartPartition": {"j-good-0", "j-good-1", "j-bad-2", "j-bad-3"},
        "RestartJob": set(),
    }.items(),
)
def test_a_restart_ends_exactly_the_right_pods(tmp_path: Path, action: str, same: set[str]) -> None:
    @on_virtual_time
    async def life(clock: VirtualClock) -> None:
        async with a_platform(clock, tmp_path) as platform:
            await platform.submit(
                a_task(
                    "bad", 4, "sleep", "1000", policies=[{"event": "PodEvicted", "action": action}],
                    partitionPolicy={"totalPartitions": 2, "partitionSize": 2},
                ),
                a_task("good", 2, "sleep", "1000"), maxRetry=5,
            )  # fmt: skip
            await clock.sleep(5)
            before = await platform.uids()
            await platform.store.write([Delete(core.POD, Key("default", "j-bad-0"))])
            await clock.sleep(60)
            after = await platform.uids()
            assert {name for name, uid in before.items() if after[name] == uid} == same
            assert len(after) == 6
            job = await platform.job()
            assert (job.status.state.phase, job.status.retry_count, job.status.running) == ("Running", 1, 6)
            assert (job.status.version or 0) == (action == "RestartJob")

    life()


@on_virtual_time
async def test_a_pod_that_pends_too_long_is_restarted(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit(
            a_task("w", 1, "sleep", "9", pod={"nodeSelector": {"no": "node"}}), maxRetry=2,
            policies=[{"event": "PodPending", "action": "RestartJob", "timeout": "30s"}],
        )  # fmt: skip
        await clock.sleep(29)
        first = await platform.uids()
        assert (await platform.job()).status.retry_count is None
        await clock.sleep(5)
        assert (await platform.job()).status.retry_count == 1
        assert await platform.uids() != first
        await clock.sleep(40)
        assert await platform.phase() == "Failed"


@on_virtual_time
async def test_a_delayed_restart_is_called_off_when_the_pod_is_back(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit(
            a_task("w", 2, "sleep", "200"),
            policies=[{"event": "PodEvicted", "action": "RestartJob", "timeout": "20s"}],
        )
        await clock.sleep(5)
        before = await platform.uids()
        await platform.store.write([Delete(core.POD, Key("default", "j-w-0"))])
        await clock.sleep(60)
        after = await platform.uids()
        assert after["j-w-1"] == before["j-w-1"]
        assert (await platform.job()).status.retry_count is None


@on_virtual_time
async def test_containers_that_restart_in_place_fail_their_task(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit(
            a_task("w", 1, "exit", "3", pod={"restartPolicy": "OnFailure"}, maxRetry=2),
            policies=[{"event": "TaskFailed", "action": "TerminateJob"}],
        )
        await clock.sleep(200)
        assert await platform.phase() == "Terminated"
        assert len(platform.machine.launches) == 3
        assert not await platform.pods()


@on_virtual_time
async def test_the_end_of_one_task_may_be_the_end_of_the_job(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit(
            a_task("worker", 2, "sleep", "9", policies=[{"event": "TaskCompleted", "action": "CompleteJob"}]),
            a_task("ps", 1, "sleep", "1000"),
        )
        await clock.sleep(60)
        job = await platform.job()
        assert (job.status.state.phase, job.status.succeeded) == ("Completed", 2)
        assert set(await platform.pods()) == {"j-worker-0", "j-worker-1"}


# Commands


@on_virtual_time
async def test_suspending_and_resuming_by_command(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit(a_task("w", 2, "sleep", "100"))
        await clock.sleep(5)
        await platform.command("AbortJob")
        await clock.sleep(20)
        job = await platform.job()
        assert (job.status.state.phase, await platform.pods(), await platform.groups()) == ("Aborted", {}, [])
        assert not (await platform.store.list(Selection(volcano.COMMAND))).items
        revision = platform.store.revision
        await clock.sleep(100)
        assert platform.store.revision - revision < 25, "leases apart, nothing is written when nothing changes"
        await platform.command("ResumeJob")
        await clock.sleep(10)
        job = await platform.job()
        assert (job.status.state.phase, job.status.running, job.status.retry_count) == ("Running", 2, 1)
        await platform.command("TerminateJob")
        await clock.sleep(20)
        assert (await platform.phase(), await platform.pods()) == ("Terminated", {})
        await platform.command("ResumeJob")
        await clock.sleep(20)
        assert await platform.phase() == "Terminated"


@on_virtual_time
async def test_a_command_outlives_the_controller_that_could_not_carry_it_out(clock: VirtualClock) -> None:
    async with EmbeddedStore.in_memory(clock=clock, entropy=random.Random(1)) as store:
        platform, refusing = Platform(store, clock, PretendMachine(clock)), Refusing(store, volcano.JOB)
        async with running(VolcanoJobController(refusing, clock, a_key).run):
            await platform.submit(a_task("w", 1, "sleep", "100"))
            await clock.sleep(1)
            refusing.left = 1000
            await platform.command("AbortJob")
            await clock.sleep(5)
            assert await platform.phase() == "Pending"
        async with running(VolcanoJobController(store, clock, a_key).run):
            await clock.sleep(5)
            assert await platform.phase() == "Aborted"
            assert not (await store.list(Selection(volcano.COMMAND))).items


@on_virtual_time
async def test_a_command_that_comes_during_a_restart_is_not_forgotten(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit(a_task("w", 2, "ignore-term", "100"))
        await clock.sleep(5)
        await platform.command("RestartJob")
        await clock.sleep(2)
        assert await platform.phase() == "Restarting"
        await platform.command("AbortJob")
        await clock.sleep(90)
        assert (await platform.phase(), await platform.pods()) == ("Aborted", {})


# What the job is made of


@on_virtual_time
async def test_a_task_waits_for_those_it_depends_on(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        before = {"initContainers": [{"name": "before", "image": "host", "command": ["sleep", "10"]}]}
        await platform.submit(
            a_task("first", 1, "sleep", "20", pod=before),
            a_task("second", 2, "sleep", "5", dependsOn={"name": ["first"]}), minAvailable=1,
        )  # fmt: skip
        await clock.sleep(9)
        assert set(await platform.pods()) == {"j-first-0"}
        await clock.sleep(5)
        assert set(await platform.pods()) == {"j-first-0", "j-second-0", "j-second-1"}
        await clock.sleep(30)
        assert await platform.phase() == "Completed"


@on_virtual_time
async def test_a_running_job_grows_and_shrinks(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit(
            a_task("w", 2, "sleep", "1000", minAvailable=1), minAvailable=1, plugins={"svc": []},
            policies=[{"event": "PodEvicted", "action": "RestartJob"}],
        )  # fmt: skip
        await clock.sleep(5)
        first = await platform.uids()
        for replicas in (5, 1, 3):
            task = {**(await platform.store.get(volcano.JOB, KEY)).document()["spec"]["tasks"][0], "replicas": replicas}
            await write_one(platform.store, Patch(volcano.JOB, KEY, {"spec": {"tasks": [task]}}))
            await clock.sleep(40)
            job = await platform.job()
            assert (job.status.state.phase, job.status.running, job.status.retry_count) == ("Running", replicas, None)
            hosts = (await platform.store.get(core.CONFIG_MAP, Key("default", "j-svc"))).read(core.ConfigMap)
            assert (hosts.data or {})["VC_W_NUM"] == str(replicas)
        assert (await platform.uids())["j-w-0"] == first["j-w-0"]


@on_virtual_time
async def test_enough_successes_end_the_job(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit(a_task("quick", 2, "sleep", "5"), a_task("slow", 1, "sleep", "1000"), minSuccess=2)
        await clock.sleep(60)
        job = await platform.job()
        assert (job.status.state.phase, job.status.succeeded) == ("Completed", 2)
        assert set(await platform.pods()) == {"j-quick-0", "j-quick-1"}


@on_virtual_time
async def test_plugins_keep_their_objects_while_the_job_lives(clock: VirtualClock, tmp_path: Path) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit(
            a_task("master", 1, "sleep", "$(VC_TASK_INDEX)"), a_task("worker", 2, "sleep", "20"),
            plugins={"env": [], "ssh": [], "svc": [], "pytorch": ["--port=1234"]},
        )  # fmt: skip
        await clock.sleep(5)
        secret = (await platform.store.get(core.SECRET, Key("default", "j-ssh"))).read(core.Secret)
        assert set(secret.data or {}) == {"id_rsa", "id_rsa.pub", "authorized_keys", "config"}
        await platform.store.get(core.SERVICE, Key("default", "j"))
        worker = (await platform.pods())["j-worker-1"]
        env = {variable.name: variable.value for variable in worker.spec.containers[0].env}
        assert (env["RANK"], env["WORLD_SIZE"], env["MASTER_PORT"]) == ("2", "3", "1234")
        assert (worker.spec.hostname, worker.spec.subdomain) == ("j-worker-1", "j")
        await clock.sleep(60)
        assert await platform.phase() == "Completed"
        for kind, name in ((core.SECRET, "j-ssh"), (core.SERVICE, "j"), (core.CONFIG_MAP, "j-svc")):
            with pytest.raises(errors.NotFound):
                await platform.store.get(kind, Key("default", name))


# What cannot be


@on_virtual_time
async def test_a_job_without_its_queue_says_so_and_begins_when_there_is_one(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with a_platform(clock, tmp_path) as platform:
        await platform.submit(a_task("w", 1, "sleep", "5"), queue="gold")
        await clock.sleep(30)
        job = await platform.job()
        assert (job.status.state.phase, job.status.state.reason) == ("Pending", "QueueNotFound")
        assert '"gold"' in (job.status.state.message or "")
        assert not await platform.groups()
        await write_one(platform.store, Create(volcano.QUEUE, {"metadata": {"name": "gold"}, "spec": {}}))
        await clock.sleep(20)
        job = await platform.job()
        assert (job.status.state.phase, job.status.state.reason) == ("Completed", None)


@on_virtual_time
async def test_what_is_not_the_jobs_is_left_alone(clock: VirtualClock, tmp_path: Path) -> None:
    """A Service of somebody else under the job's name stays, and a pod that has the name of one is waited for."""
    async with a_platform(clock, tmp_path) as platform:
        meta = {"name": "j", "namespace": "default"}
        await write_one(platform.store, Create(core.SERVICE, {"metadata": meta, "spec": {"ports": [{"port": 80}]}}))
        other = {"metadata": {**meta, "name": "j-w-0"}, **a_task("", 1, "sleep", "20")["template"]}
        await write_one(platform.store, Create(core.POD, other))
        await platform.submit(a_task("w", 2, "sleep", "5"), plugins={"svc": []})
        await clock.sleep(10)
        assert (await platform.job()).status.state.phase == "Pending"
        assert "FailedCreatePods" in await platform.events()
        await platform.store.write([Delete(core.POD, Key("default", "j-w-0"))])
        await clock.sleep(120)
        assert await platform.phase() == "Completed"
        await platform.store.get(core.SERVICE, Key("default", "j"))


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_deleting_a_job_leaves_nothing(tmp_path: Path, propagation: str) -> None:
    @on_virtual_time
    async def life(clock: VirtualClock) -> None:
        async with a_platform(clock, tmp_path) as platform:
            await platform.submit(a_task("w", 3, "sleep", "1000"), plugins={"svc": []})
            await clock.sleep(5)
            await platform.store.write([Delete(volcano.JOB, KEY, propagation)])  # type: ignore[arg-type]
            await clock.sleep(60)
            assert (await platform.pods(), await platform.groups()) == ({}, [])
            assert not (await platform.store.list(Selection(core.CONFIG_MAP))).items

    life()
