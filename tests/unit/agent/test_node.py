"""The agent on virtual time: pods that are pretended, a real store, hours in milliseconds."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from muster.agent.devices import Gpu, Machine
from muster.agent.node import Agent, NodeConfig
from muster.agent.runtime import Executed, Launch, Runtime
from muster.api import coordination, core, errors, timestamps
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import (
    Create,
    Delete,
    Event,
    Page,
    Patch,
    Replace,
    Result,
    Revision,
    Selection,
    Store,
    Write,
    write_one,
)
from muster.testing.runtimes import PretendMachine, PretendRuntime
from muster.testing.virtual import on_virtual_time

MACHINE = Machine(4000, 2**33, 20, tuple(Gpu(i, "fake", 2**34) for i in range(2)))


def a_pod(name: str, *argv: str, policy: str = "Never", limits: dict[str, str] | None = None, **spec: Any) -> Document:
    container = {"name": "main", "image": "host", "command": list(argv), "resources": {"limits": limits or {}}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": "n1", "restartPolicy": policy, "containers": [container], **spec},
    }


class Interrupted:
    """A store that can be out of reach."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_away = False

    def _check(self) -> None:
        if self.is_away:
            raise errors.Unavailable("away")

    async def get(self, kind: Kind, key: Key) -> Object:
        self._check()
        return await self._store.get(kind, key)

    async def list(self, selection: Selection, *, limit: int = 0, token: str = "") -> Page:
        self._check()
        return await self._store.list(selection, limit=limit, token=token)

    async def watch(
        self, selection: Selection, *, since: Revision | None = None, bookmarks: bool = False
    ) -> AsyncIterator[Sequence[Event]]:
        self._check()
        async for events in self._store.watch(selection, since=since, bookmarks=bookmarks):
            self._check()
            yield events

    async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
        self._check()
        return await self._store.write(writes)


class AskedRuntime(PretendRuntime):
    """Remembers what was run beside containers."""

    def __init__(self, machine: PretendMachine, asked: list[Sequence[str]]) -> None:
        super().__init__(machine)
        self._asked = asked

    async def execute(self, launch: Launch, argv: Sequence[str], timeout: float) -> Executed:
        self._asked.append(argv)
        return await super().execute(launch, argv, timeout)


@dataclass
class House:
    store: EmbeddedStore
    seen_by_agent: Interrupted
    machine: PretendMachine
    agent: Agent
    clock: VirtualClock
    directory: Path
    tasks: asyncio.TaskGroup
    running: asyncio.Task[None]
    asked: list[Sequence[str]]

    async def create(self, document: Document) -> Object:
        return await write_one(self.store, Create(core.POD, document))

    async def pod(self, name: str) -> core.Pod:
        return (await self.store.get(core.POD, Key("default", name))).read(core.Pod)

    async def node(self) -> core.Node:
        return (await self.store.get(core.NODE, Key("", "n1"))).read(core.Node)

    async def restart(self, *, is_new: bool = True) -> None:
        self.running.cancel()
        await asyncio.wait([self.running])
        if is_new:
            self.agent = _agent(self.seen_by_agent, AskedRuntime(self.machine, self.asked), self.clock, self.directory)
        self.running = self.tasks.create_task(self.agent.run())

    def attempts(self, name: str = "main") -> list[int]:
        return [launch.attempt.number for launch in self.machine.launches if launch.attempt.directory.name == name]


def _agent(store: Store, runtime: Runtime, clock: VirtualClock, directory: Path) -> Agent:
    config = NodeConfig(
        "n1", directory, MACHINE, labels={"rack": "r1"}, address="10.0.0.7", port=7078, base={"PATH": "/bin"}
    )
    return Agent(store, runtime=runtime, clock=clock, entropy=random.Random(1), config=config)


@asynccontextmanager
async def house(clock: VirtualClock, tmp_path: Path) -> AsyncIterator[House]:
    machine = PretendMachine(clock)
    async with EmbeddedStore.in_memory(clock=clock) as store, asyncio.TaskGroup() as tasks:
        seen = Interrupted(store)
        asked: list[Sequence[str]] = []
        agent = _agent(seen, AskedRuntime(machine, asked), clock, tmp_path)
        running = tasks.create_task(agent.run())
        await clock.sleep(0.5)
        found = House(store, seen, machine, agent, clock, tmp_path, tasks, running, asked)
        yield found
        found.running.cancel()


@on_virtual_time
async def test_the_node_says_what_it_is(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        node = await home.node()
        assert node.metadata.labels is not None
        assert node.metadata.labels["kubernetes.io/hostname"] == "n1"
        assert node.metadata.labels["rack"] == "r1"
        assert set(node.metadata.labels) >= {"kubernetes.io/os", "kubernetes.io/arch", "muster.dev/machine"}
        assert node.status.capacity == {
            "cpu": "4",
            "memory": "8388608Ki",
            "pods": "20",
            "nvidia.com/gpu": "2",
            "muster.dev/gpu-milli": "2000",
        }
        assert node.status.allocatable == node.status.capacity
        assert {(a.type, a.address) for a in node.status.addresses} == {("InternalIP", "10.0.0.7"), ("Hostname", "n1")}
        assert {c.type: c.status for c in node.status.conditions}["Ready"] == "True"
        assert node.status.node_info is not None
        assert node.status.node_info.kubelet_version.startswith("muster-")
        assert node.status.daemon_endpoints is not None
        assert node.status.daemon_endpoints.kubelet_endpoint is not None
        assert node.status.daemon_endpoints.kubelet_endpoint.port == 7078


@on_virtual_time
async def test_the_lease_is_renewed_without_writing_the_node(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        before = await home.store.get(core.NODE, Key("", "n1"))
        renewals = set()
        for _ in range(12):
            await clock.sleep(10)
            lease = (await home.store.get(coordination.LEASE, Key("kube-node-lease", "n1"))).read(coordination.Lease)
            assert lease.spec.renew_time is not None
            assert clock.now() - timestamps.parse(lease.spec.renew_time) <= 10
            renewals.add(lease.spec.renew_time)
        assert len(renewals) == 12
        assert (await home.store.get(core.NODE, Key("", "n1"))).revision == before.revision
        await clock.sleep(300)
        assert (await home.store.get(core.NODE, Key("", "n1"))).revision > before.revision


@on_virtual_time
async def test_what_operators_set_stays_and_what_others_said_of_readiness_is_put_right(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with house(clock, tmp_path) as home:
        taint = {"key": "k", "effect": "NoSchedule"}
        body = {
            "metadata": {"labels": {"mine": "1", "rack": "other"}},
            "spec": {"unschedulable": True, "taints": [taint]},
        }
        await write_one(home.store, Patch(core.NODE, Key("", "n1"), body))
        document = (await home.store.get(core.NODE, Key("", "n1"))).document()
        for condition in document["status"]["conditions"]:
            condition["status"] = "Unknown"
        await write_one(home.store, Replace(core.NODE, Key("", "n1"), document, subresource="status"))
        await home.restart()
        await clock.sleep(1)
        node = await home.node()
        assert node.metadata.labels is not None
        assert (node.metadata.labels["mine"], node.metadata.labels["rack"]) == ("1", "r1")
        assert node.spec.unschedulable is True
        assert [t.key for t in node.spec.taints] == ["k"]
        assert {c.type: c.status for c in node.status.conditions}["Ready"] == "True"


@on_virtual_time
async def test_a_node_that_was_deleted_comes_back(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        await write_one(home.store, Delete(core.NODE, Key("", "n1")))
        await clock.sleep(30)
        assert {c.type: c.status for c in (await home.node()).status.conditions}["Ready"] == "True"


@on_virtual_time
async def test_a_pod_runs_and_ends(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        await home.create(a_pod("a", "sleep", "60", "3"))
        await clock.sleep(1)
        assert (await home.pod("a")).status.phase == "Running"
        await clock.sleep(60)
        found = await home.pod("a")
        assert found.status.phase == "Failed"
        state = found.status.container_statuses[0].state
        assert state is not None
        assert state.terminated is not None
        assert state.terminated.exit_code == 3


@on_virtual_time
async def test_a_crash_loop_waits_longer_each_time_and_says_so(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        await home.create(a_pod("a", "exit", "1", policy="Always"))
        await clock.sleep(5)
        assert home.attempts() == [0, 1]
        waiting = (await home.pod("a")).status.container_statuses[0]
        assert waiting.state is not None
        assert waiting.state.waiting is not None
        assert waiting.state.waiting.reason == "CrashLoopBackOff"
        await clock.sleep(3600)
        kept = {path.name for path in tmp_path.glob("pods/*/containers/main/*")}
        assert kept == {f"{number}.state.json" for number in home.attempts()[-2:]}, "older ones would fill the disk"
        # 0, 10, 20, 40, 80, 160 and then 300 s apart.
        assert len(home.attempts()) == 2 + 5 + (3600 - 310) // 300
        assert (await home.pod("a")).status.container_statuses[0].restart_count == len(home.attempts()) - 1


@on_virtual_time
async def test_trouble_is_told_as_events_and_what_goes_well_is_not(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        loop = await home.create(a_pod("loop", "exit", "1", policy="Always"))
        volumes = [{"name": "conf", "configMap": {"name": "settings"}}]
        await home.create(a_pod("unmounted", "exit", "0", volumes=volumes))
        await home.create(a_pod("fine", "exit", "0"))
        await home.create(a_pod("fails", "exit", "3"))
        await clock.sleep(100)
        events = [found.read(core.Event) for found in (await home.store.list(Selection(core.EVENT))).items]
        told = {(event.involved_object.name, event.reason): event for event in events}
        assert set(told) == {("loop", "BackOff"), ("unmounted", "FailedMount")}
        assert told["loop", "BackOff"].involved_object.uid == loop.uid
        assert told["loop", "BackOff"].count == 4, "said again, it is counted"
        assert told["unmounted", "FailedMount"].message == 'configmap "settings" not found'


@on_virtual_time
async def test_the_deadline(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        await home.create(
            a_pod("a", "ignore-term", "9999", activeDeadlineSeconds=100, terminationGracePeriodSeconds=20)
        )
        await clock.sleep(110)
        assert (await home.pod("a")).status.phase == "Running"
        await clock.sleep(15)
        found = await home.pod("a")
        assert (found.status.phase, found.status.reason) == ("Failed", "DeadlineExceeded")


@on_virtual_time
async def test_a_deleted_pod_goes_when_it_has_ended(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        made = await home.create(a_pod("a", "ignore-term", "9999", terminationGracePeriodSeconds=20))
        await clock.sleep(1)
        await write_one(home.store, Delete(core.POD, made.key))
        await clock.sleep(15)
        assert (await home.pod("a")).metadata.deletion_timestamp is not None
        await clock.sleep(10)
        with pytest.raises(errors.NotFound):
            await home.pod("a")
        assert list((tmp_path / "pods").iterdir()) == []


@on_virtual_time
async def test_what_does_not_fit_is_refused_and_what_is_freed_is_given_again(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with house(clock, tmp_path) as home:
        await home.create(a_pod("a", "sleep", "10", limits={"nvidia.com/gpu": "2"}))
        await home.create(a_pod("b", "sleep", "10", limits={"nvidia.com/gpu": "1"}))
        await clock.sleep(1)
        refused = await home.pod("b")
        assert (refused.status.phase, refused.status.reason) == ("Failed", "OutOfnvidia.com/gpu")
        assert home.machine.launches[0].env["CUDA_VISIBLE_DEVICES"] == "0,1"
        await clock.sleep(10)
        await home.create(a_pod("c", "exit", "0", limits={"nvidia.com/gpu": "1"}))
        await clock.sleep(1)
        assert (await home.pod("c")).status.phase == "Succeeded"


@on_virtual_time
async def test_a_pod_waits_for_what_an_ending_pod_still_holds(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        old = await home.create(
            a_pod("a", "ignore-term", "999", limits={"nvidia.com/gpu": "2"}, terminationGracePeriodSeconds=20)
        )
        await clock.sleep(1)
        # The node was taken for lost: the scheduler believes that its GPUs are free.
        body = {"status": {"phase": "Failed", "reason": "NodeLost"}}
        await write_one(home.store, Patch(core.POD, old.key, body, subresource="status"))
        await home.create(a_pod("b", "exit", "0", limits={"nvidia.com/gpu": "2"}))
        await clock.sleep(10)
        assert (await home.pod("b")).status.phase == "Pending"
        await clock.sleep(15)
        assert (await home.pod("b")).status.phase == "Succeeded"
        assert (await home.pod("a")).status.reason == "NodeLost", "what somebody else has ended is not reported on"


@on_virtual_time
async def test_missing_configuration_is_waited_for(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        document = a_pod("a", "say", "$(WORD)")
        reference = {"name": "settings", "key": "word"}
        document["spec"]["containers"][0]["env"] = [{"name": "WORD", "valueFrom": {"configMapKeyRef": reference}}]
        await home.create(document)
        await clock.sleep(20)
        state = (await home.pod("a")).status.container_statuses[0].state
        assert state is not None
        assert state.waiting is not None
        assert (state.waiting.reason, state.waiting.message) == (
            "CreateContainerConfigError",
            'configmap "settings" not found',
        )
        settings = {"metadata": {"name": "settings", "namespace": "default"}, "data": {"word": "hello"}}
        await write_one(home.store, Create(core.CONFIG_MAP, settings))
        await clock.sleep(31)
        assert (await home.pod("a")).status.phase == "Succeeded"
        assert home.machine.launches[0].argv == ["say", "hello"]


@on_virtual_time
async def test_a_runtime_in_trouble_is_tried_again(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        home.machine.refusals = 2
        await home.create(a_pod("a", "exit", "0"))
        await clock.sleep(0.5)
        state = (await home.pod("a")).status.container_statuses[0].state
        assert state is not None
        assert state.waiting is not None
        assert state.waiting.reason == "RunContainerError"
        await clock.sleep(5)
        assert (await home.pod("a")).status.phase == "Succeeded"


@on_virtual_time
async def test_without_a_command_it_says_what_is_needed(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        await home.create(a_pod("a"))
        await clock.sleep(1)
        state = (await home.pod("a")).status.container_statuses[0].state
        assert state is not None
        assert state.terminated is not None
        assert state.terminated.reason == "StartError"
        assert "`command`" in (state.terminated.message or "")


@on_virtual_time
async def test_pods_go_on_while_the_store_is_away(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        await home.create(a_pod("a", "sleep", "30"))
        await home.create(a_pod("b", "sleep", "20", "1", policy="OnFailure"))
        await clock.sleep(1)
        home.seen_by_agent.is_away = True
        await clock.sleep(60)
        assert len(home.attempts()) >= 3, "restarts need no store"
        assert (await home.pod("a")).status.phase == "Running"
        home.seen_by_agent.is_away = False
        await clock.sleep(30)
        assert (await home.pod("a")).status.phase == "Succeeded"


@pytest.mark.parametrize("is_new", [True, False], ids=["a new agent", "the same one, run again"])
@on_virtual_time
async def test_the_next_agent_takes_up_what_the_last_one_left(
    clock: VirtualClock, tmp_path: Path, is_new: bool
) -> None:
    async with house(clock, tmp_path) as home:
        await home.create(a_pod("runs", "sleep", "100", "4", limits={"nvidia.com/gpu": "1"}))
        await home.create(a_pod("ends", "sleep", "10", "5"))
        await clock.sleep(1)
        home.running.cancel()
        await clock.sleep(30)
        await home.restart(is_new=is_new)
        await clock.sleep(1)
        ended = (await home.pod("ends")).status.container_statuses[0].state
        assert ended is not None
        assert ended.terminated is not None
        assert ended.terminated.exit_code == 5
        assert (await home.pod("runs")).status.phase == "Running"
        await home.create(a_pod("more", "sleep", "1", limits={"nvidia.com/gpu": "1"}))
        await clock.sleep(1)
        shown = [launch.env["CUDA_VISIBLE_DEVICES"] for launch in home.machine.launches]
        assert shown == ["0", "", "1"], "devices that an adopted pod holds are not given again"
        await clock.sleep(100)
        assert (await home.pod("runs")).status.container_statuses[0].restart_count == 0
        assert len(home.attempts()) == 3, "nothing was started twice"


@on_virtual_time
async def test_a_pod_seen_before_those_to_adopt_is_not_given_their_devices(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        removed = await home.create(a_pod("old", "ignore-term", "999", limits={"nvidia.com/gpu": "1"}))
        await home.create(a_pod("runs", "sleep", "100", limits={"nvidia.com/gpu": "1"}))
        await clock.sleep(1)
        home.running.cancel()
        await clock.sleep(1)
        await write_one(home.store, Delete(core.POD, removed.key, grace_seconds=0))
        await home.create(a_pod("a-new", "sleep", "100", limits={"nvidia.com/gpu": "1"}))
        await home.restart()
        await clock.sleep(1)
        assert (await home.pod("a-new")).status.phase == "Pending", "what the removed pod holds is not free yet"
        await clock.sleep(60)
        assert (await home.pod("a-new")).status.phase == "Running"
        shown = {launch.attempt.directory: launch.env["CUDA_VISIBLE_DEVICES"] for launch in home.machine.launches}
        assert list(shown.values()) == ["0", "1", "0"]


@on_virtual_time
async def test_devices_that_the_scheduler_chose_are_used_and_kept(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        half = a_pod("half", "sleep", "100", limits={"muster.dev/gpu-milli": "500"})
        half["metadata"]["annotations"] = {"muster.dev/gpu-devices": "0:500"}
        await home.create(half)
        await clock.sleep(1)
        await home.restart()
        await clock.sleep(1)
        taken = a_pod("taken", "sleep", "100", limits={"nvidia.com/gpu": "1"})
        taken["metadata"]["annotations"] = {"muster.dev/gpu-devices": "0"}
        await home.create(taken)
        other = a_pod("other", "sleep", "100")
        other["metadata"]["annotations"] = {"muster.dev/gpu-devices": "0:300", "muster.dev/gpu-milli": "300"}
        await home.create(other)
        await clock.sleep(1)
        assert (await home.pod("taken")).status.reason == "OutOfnvidia.com/gpu"
        first, second = (launch.env for launch in home.machine.launches)
        assert (first["CUDA_VISIBLE_DEVICES"], first["MUSTER_GPU_MILLI"]) == ("0", "500")
        assert (second["CUDA_VISIBLE_DEVICES"], second["MUSTER_GPU_MILLI"]) == ("0", "300")


@on_virtual_time
async def test_pods_that_were_removed_while_no_agent_ran_are_ended(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        made = await home.create(a_pod("a", "sleep", "9999"))
        await clock.sleep(1)
        home.running.cancel()
        await clock.sleep(1)
        await write_one(home.store, Delete(core.POD, made.key, grace_seconds=0))
        # Another pod of the same name must not be taken for it.
        await home.create(a_pod("a", "exit", "0"))
        await home.restart()
        await clock.sleep(5)
        (old,) = [p for p in home.machine.processes.values() if p.launch.argv[0] == "sleep"]
        assert old.end is not None
        assert (await home.pod("a")).status.phase == "Succeeded"
        assert [path.name for path in (tmp_path / "pods").iterdir()] == [(await home.pod("a")).metadata.uid]


@on_virtual_time
async def test_a_pod_that_is_gone_from_the_store_is_ended_and_its_directory_removed(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with house(clock, tmp_path) as home:
        made = await home.create(a_pod("a", "sleep", "9999"))
        await clock.sleep(1)
        await write_one(home.store, Delete(core.POD, made.key, grace_seconds=0))
        await clock.sleep(5)
        assert all(process.end is not None for process in home.machine.processes.values())
        assert list((tmp_path / "pods").iterdir()) == []


@on_virtual_time
async def test_draining_ends_all_pods_and_takes_no_new_ones(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        await home.create(a_pod("a", "sleep", "9999"))
        await home.create(a_pod("b", "ignore-term", "9999", terminationGracePeriodSeconds=10))
        await clock.sleep(1)
        await home.agent.drain()
        for name in ("a", "b"):
            found = await home.pod(name)
            assert (found.status.phase, found.status.reason) == ("Failed", "Terminated")
        await home.create(a_pod("c", "exit", "0"))
        await clock.sleep(1)
        assert (await home.pod("c")).status.reason == "NodeShutdown"


@on_virtual_time
async def test_a_failing_liveness_probe_restarts_the_container(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        document = a_pod("a", "sleep", "9999", policy="Always")
        document["spec"]["containers"][0]["livenessProbe"] = {"exec": {"command": ["exit", "1"]}, "periodSeconds": 5}
        document["spec"]["containers"][0]["readinessProbe"] = {"exec": {"command": ["exit", "0"]}}
        await home.create(document)
        await clock.sleep(8)
        assert (await home.pod("a")).status.container_statuses[0].ready is True
        await clock.sleep(5)
        found = (await home.pod("a")).status.container_statuses[0]
        assert found.restart_count == 1
        assert found.last_state is not None
        assert found.last_state.terminated is not None
        assert found.last_state.terminated.exit_code == 143


@on_virtual_time
async def test_probes_go_on_while_the_store_is_away_and_after_their_configuration_is_gone(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with house(clock, tmp_path) as home:
        settings = {"metadata": {"name": "settings", "namespace": "default"}, "data": {"word": "hello"}}
        await write_one(home.store, Create(core.CONFIG_MAP, settings))
        document = a_pod("a", "sleep", "9999")
        container = document["spec"]["containers"][0]
        container["envFrom"] = [{"configMapRef": {"name": "settings"}}]
        probe = {"exec": {"command": ["exit", "0"]}, "periodSeconds": 5}
        container["livenessProbe"] = container["readinessProbe"] = probe
        await home.create(document)
        await clock.sleep(6)
        await write_one(home.store, Delete(core.CONFIG_MAP, Key("default", "settings")))
        home.seen_by_agent.is_away = True
        await clock.sleep(100)
        home.seen_by_agent.is_away = False
        before = len(home.asked)
        await clock.sleep(100)
        assert len(home.asked) >= before + 2 * 19
        assert (await home.pod("a")).status.container_statuses[0].ready is True
        await home.restart()
        await clock.sleep(100)
        found = (await home.pod("a")).status.container_statuses[0]
        assert (found.restart_count, found.ready) == (0, False), "what cannot be asked is not taken for ill"
        await write_one(home.store, Create(core.CONFIG_MAP, settings))
        await clock.sleep(20)
        assert (await home.pod("a")).status.container_statuses[0].ready is True


@on_virtual_time
async def test_a_post_start_hook_runs_once_however_often_the_agent_does(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        document = a_pod("a", "sleep", "100")
        document["spec"]["containers"][0]["lifecycle"] = {"postStart": {"exec": {"command": ["exit", "0"]}}}
        await home.create(document)
        await clock.sleep(1)
        assert len(home.asked) == 1
        await home.restart()
        await clock.sleep(1)
        assert len(home.asked) == 1
        assert (await home.pod("a")).status.container_statuses[0].ready is True


@on_virtual_time
async def test_a_message_survives_the_agent(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        made = await home.create(a_pod("a", "sleep", "10", "3"))
        await clock.sleep(1)
        home.running.cancel()
        path = Path(home.machine.launches[0].env["MUSTER_TERMINATION_LOG"])
        assert path.is_relative_to(tmp_path / "pods" / made.uid)
        path.write_text("the reason")
        await clock.sleep(30)
        await home.restart()
        await clock.sleep(1)
        state = (await home.pod("a")).status.container_statuses[0].state
        assert state is not None
        assert state.terminated is not None
        assert (state.terminated.exit_code, state.terminated.message) == (3, "the reason")


@on_virtual_time
async def test_slots_that_are_not_to_be_used_are_not_offered_nor_chosen(clock: VirtualClock, tmp_path: Path) -> None:
    async with house(clock, tmp_path) as home:
        node = await home.node()
        assert (node.metadata.annotations or {})["muster.dev/gpu-uuids"].count(",") == 1
        disabled = {"metadata": {"annotations": {"muster.dev/disabled-slots": "0"}}}
        await write_one(home.store, Patch(core.NODE, Key("", "n1"), disabled))
        await clock.sleep(15)
        node = await home.node()
        assert (node.status.allocatable or {})["nvidia.com/gpu"] == "1"
        assert (node.status.capacity or {})["nvidia.com/gpu"] == "2"
        await home.create(a_pod("p", "train", limits={"nvidia.com/gpu": "1"}))
        await clock.sleep(1)
        assert home.machine.launches[-1].env["CUDA_VISIBLE_DEVICES"] == "1"
