"""Agents that are killed, with their store, and what the next one makes of it."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
from tests.integration.agent_process import MACHINE

from muster.agent import cgroups
from muster.agent.host_process import HostProcessRuntime
from muster.agent.logs import LogOptions
from muster.agent.node import Agent, NodeConfig
from muster.api import core
from muster.api.objects import Key
from muster.api.raw import Document
from muster.runtime.clock import SystemClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Delete, write_one


def shell(name: str, script: str, policy: str = "Never") -> Document:
    container = {"name": "main", "image": "host", "command": ["sh", "-c", script]}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": "n1",
            "restartPolicy": policy,
            "containers": [container],
            "terminationGracePeriodSeconds": 2,
        },
    }


async def put(directory: Path, *documents: Document) -> dict[str, str]:
    async with EmbeddedStore.on_disk(directory / "store.db", clock=SystemClock()) as store:
        made = [await write_one(store, Create(core.POD, document)) for document in documents]
    return {found.key.name: found.uid for found in made}


def begin(directory: Path) -> subprocess.Popen[bytes]:
    script = Path(__file__).with_name("agent_process.py")
    return subprocess.Popen([sys.executable, str(script), str(directory)])


def until(path: Path, word: str = "") -> None:
    deadline = time.monotonic() + 15
    while not path.exists() or word not in path.read_text():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.01)


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


@asynccontextmanager
async def next_agent(directory: Path) -> AsyncIterator[tuple[EmbeddedStore, Agent]]:
    clock = SystemClock()
    runtime = HostProcessRuntime(clock, groups=cgroups.find(), drain_seconds=0.3)
    config = NodeConfig("n1", directory / "node", MACHINE, address="127.0.0.1")
    async with (
        EmbeddedStore.on_disk(directory / "store.db", clock=clock) as store,
        asyncio.TaskGroup() as tasks,
    ):
        agent = Agent(store, runtime=runtime, clock=clock, entropy=random.Random(1), config=config)
        running = tasks.create_task(agent.run())
        yield store, agent
        await asyncio.wait_for(agent.drain(), 20)
        running.cancel()
    await runtime.close()


async def ended(store: EmbeddedStore, name: str) -> core.Pod:
    async with asyncio.timeout(20):
        while True:
            found = (await store.get(core.POD, Key("default", name))).read(core.Pod)
            if found.status.phase in ("Succeeded", "Failed"):
                return found
            await asyncio.sleep(0.02)


def code(pod: core.Pod) -> int:
    state = pod.status.container_statuses[0].state
    assert state is not None
    assert state.terminated is not None
    return state.terminated.exit_code


async def test_processes_outlive_a_killed_agent_and_their_exit_codes_are_kept(tmp_path: Path) -> None:
    uids = await put(
        tmp_path,
        shell("ends-while-dead", "echo up; sleep 0.5; echo bye; exit 21"),
        shell("ends-later", "echo up; sleep 3; echo bye; exit 22"),
        shell("restarts", "echo up; sleep 0.5; exit 23", policy="OnFailure"),
    )
    agent = begin(tmp_path)
    homes = {name: tmp_path / "node/pods" / uid / "containers/main" for name, uid in uids.items()}
    for home in homes.values():
        until(home / "0.log", "up")
    running = json.loads((homes["ends-later"] / "0.state.json").read_text())["pid"]
    kill(agent)
    until(homes["ends-while-dead"] / "0.exit.json")
    assert psutil.pid_exists(running)
    async with next_agent(tmp_path) as (store, successor):
        assert code(await ended(store, "ends-while-dead")) == 21
        later = await ended(store, "ends-later")
        assert code(later) == 22
        assert later.status.container_statuses[0].restart_count == 0
        lines = successor.open_logs("default", "ends-later", uids["ends-later"], "main", LogOptions())
        assert b"".join([piece async for piece in lines]) == b"up\nbye\n"
        until(homes["restarts"] / "1.log", "up")
    assert not psutil.pid_exists(running)


async def test_a_pod_deleted_while_no_agent_ran_is_ended_by_the_next(tmp_path: Path) -> None:
    uids = await put(tmp_path, shell("a", "echo up; sleep 300"), shell("b", "echo up; sleep 300"))
    agent = begin(tmp_path)
    pids = {}
    for name, uid in uids.items():
        home = tmp_path / "node/pods" / uid / "containers/main"
        until(home / "0.log", "up")
        pids[name] = json.loads((home / "0.state.json").read_text())["pid"]
    kill(agent)
    async with EmbeddedStore.on_disk(tmp_path / "store.db", clock=SystemClock()) as store:
        await write_one(store, Delete(core.POD, Key("default", "a")))
        await write_one(store, Delete(core.POD, Key("default", "b"), grace_seconds=0))
    async with next_agent(tmp_path):
        deadline = time.monotonic() + 10
        while any(psutil.pid_exists(pid) for pid in pids.values()) or list((tmp_path / "node/pods").iterdir()):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)


async def test_agents_killed_again_and_again_start_nothing_twice(tmp_path: Path) -> None:
    """Killed at random moments while it starts pods: each pod's command has run exactly once."""
    count = 40
    marks = tmp_path / "marks"
    marks.mkdir()
    await put(tmp_path, *(shell(f"p{i}", f"echo x >> {marks}/p{i}; sleep 0.2; exit {i % 5}") for i in range(count)))
    chance = random.Random(7)
    for _ in range(6):
        agent = begin(tmp_path)
        time.sleep(0.35 + 0.3 * chance.random())
        kill(agent)
    async with next_agent(tmp_path) as (store, _):
        for i in range(count):
            found = await ended(store, f"p{i}")
            assert (code(found), found.status.container_statuses[0].restart_count) == (i % 5, 0)
    assert {path.name: path.read_text() for path in marks.iterdir()} == {f"p{i}": "x\n" for i in range(count)}


async def test_a_state_file_of_an_earlier_boot_is_not_believed(tmp_path: Path) -> None:
    (uid,) = (await put(tmp_path, shell("a", "exit 0"))).values()
    home = tmp_path / "node/pods" / uid
    (home / "containers/main").mkdir(parents=True)
    async with EmbeddedStore.on_disk(tmp_path / "store.db", clock=SystemClock()) as store:
        (home / "pod.json").write_bytes((await store.get(core.POD, Key("default", "a"))).raw)
    # The pid is alive and is ours, but it was another's when the file was written.
    state = {"keeper": os.getpid(), "pid": os.getpid(), "started_at": time.time() - 60, "boot": "another"}
    (home / "containers/main/0.state.json").write_text(json.dumps(state))
    async with next_agent(tmp_path) as (store, _):
        found = await ended(store, "a")
    assert code(found) == 137
    end = found.status.container_statuses[0].state
    assert end is not None
    assert end.terminated is not None
    assert "reboot" in (end.terminated.message or "")
