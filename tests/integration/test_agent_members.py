"""Members of a job on a real agent: where they find each other, and how they hear that others have come."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from muster.agent import ports
from muster.agent.devices import Machine
from muster.agent.host_process import HostProcessRuntime
from muster.agent.logs import LogOptions
from muster.agent.node import Agent, NodeConfig
from muster.api import core, errors
from muster.api.objects import Key
from muster.api.raw import Document
from muster.runtime.clock import SystemClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Patch, Store, write_one

MACHINE = Machine(4000, 2**33, 100, ())
LISTENER = """
import os, socket
with socket.create_server(("", int(os.environ["MASTER_PORT"]))) as server:
    print("ready", flush=True)
    peer, _ = server.accept()
    print(os.environ["JOB"], "heard", peer.makefile().readline(), flush=True)
"""
CALLER = """
import os, socket, time
while True:
    try:
        peer = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 5)
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
peer.sendall(os.environ["JOB"].encode() + b"\\n")
"""


@asynccontextmanager
async def agents(directory: Path, *names: str) -> AsyncIterator[tuple[Store, dict[str, Agent]]]:
    clock = SystemClock()
    async with EmbeddedStore.in_memory(clock=clock, entropy=random.Random(1)) as store:
        runtime = HostProcessRuntime(clock)
        found = {
            name: Agent(
                store,
                runtime=runtime,
                clock=clock,
                entropy=random.Random(name),
                config=NodeConfig(name, directory / name, MACHINE, address="127.0.0.1"),
            )
            for name in names
        }
        running = [asyncio.create_task(agent.run(), name=name) for name, agent in found.items()]
        try:
            yield store, found
        finally:
            for agent in found.values():
                await agent.drain()
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await runtime.close()


def a_member(job: str, role: str, node: str, port: int, program: str) -> Document:
    env = {"MASTER_ADDR": f"{job}-master-0", "MASTER_PORT": str(port), "JOB": job}
    container = {
        "name": "pytorch",
        "image": "host",
        "command": ["python3", "-c", program],
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }
    labels = {"training.kubeflow.org/job-name": job}
    return {
        "metadata": {"name": f"{job}-{role}-0", "namespace": "default", "labels": labels},
        "spec": {"nodeName": node, "restartPolicy": "Never", "containers": [container]},
    }


async def logged(store: Store, agent: Agent, pod: str, wanted: str) -> str:
    async with asyncio.timeout(20):
        while True:
            found = await store.get(core.POD, Key("default", pod))
            try:
                lines = agent.open_logs(
                    "default", pod, found.uid, found.read(core.Pod).spec.containers[0].name, LogOptions()
                )
                text = b"".join([piece async for piece in lines]).decode()
            except errors.ApiError:
                text = ""
            if wanted in text:
                return text
            await asyncio.sleep(0.05)


async def test_jobs_that_meet_at_the_same_port_do_not_meet_each_other(tmp_path: Path) -> None:
    async with agents(tmp_path, "n1", "n2") as (store, found):
        for job, node, other in (("one", "n1", "n2"), ("two", "n2", "n1"), ("three", "n1", "n1")):
            # The callers first: they wait until it is known where their master listens.
            await write_one(store, Create(core.POD, a_member(job, "worker", other, 23456, CALLER)))
            await write_one(store, Create(core.POD, a_member(job, "master", node, 23456, LISTENER)))
        given = []
        for job, node in (("one", "n1"), ("two", "n2"), ("three", "n1")):
            assert f"{job} heard {job}" in await logged(store, found[node], f"{job}-master-0", "heard")
            pod = await store.get(core.POD, Key("default", f"{job}-master-0"))
            given.append((ports.read(pod.read(core.Pod).status.conditions) or {})[23456])
        assert len(set(given)) == 3, given


async def test_a_running_pod_sees_its_config_map_change_and_who_has_come(tmp_path: Path) -> None:
    async with agents(tmp_path, "n1") as (store, found):

        def a_pod(name: str, script: str) -> Document:
            container = {"name": "m", "image": "host", "command": ["sh", "-c", script]}
            volume = {"name": "hosts", "configMap": {"name": "hosts"}}
            spec = {
                "nodeName": "n1",
                "subdomain": "j",
                "hostname": name,
                "volumes": [volume],
                "containers": [container],
            }
            return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}

        def hosts(count: int) -> Document:
            return {"data": {"worker.host": "".join(f"j-worker-{number}.j\n" for number in range(count))}}

        await write_one(
            store, Create(core.CONFIG_MAP, {"metadata": {"name": "hosts", "namespace": "default"}, **hosts(1)})
        )
        # By name or by address, as the node may or may not give it a hosts file of its own.
        tell = 'echo "$(grep -c . $MUSTER_VOLUME_HOSTS/worker.host) listed" / $(cut -f2 $MUSTER_HOSTS_FILE)'
        watcher = f"echo first; while sleep 0.05; do {tell}; done"
        await write_one(store, Create(core.POD, a_pod("j-worker-0", watcher)))
        await logged(store, found["n1"], "j-worker-0", "1 listed / j-worker-0.j j-worker-0\n")
        await write_one(store, Create(core.POD, a_pod("j-worker-1", "sleep 60")))
        await write_one(store, Patch(core.CONFIG_MAP, Key("default", "hosts"), hosts(2)))
        began = asyncio.get_running_loop().time()
        seen = "2 listed / j-worker-0.j j-worker-0 j-worker-1.j j-worker-1\n"
        await logged(store, found["n1"], "j-worker-0", seen)
        assert asyncio.get_running_loop().time() - began < 5
        await write_one(store, Patch(core.CONFIG_MAP, Key("default", "hosts"), hosts(1)))
        await asyncio.sleep(2.5)
        text = await logged(store, found["n1"], "j-worker-0", seen)
        assert text.endswith("1 listed / j-worker-0.j j-worker-0\n")
