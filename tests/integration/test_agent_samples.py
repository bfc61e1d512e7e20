"""What real processes of a real agent's pods use, as the server asks for it."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from muster.agent.devices import Machine
from muster.agent.host_process import HostProcessRuntime
from muster.agent.node import Agent, NodeConfig
from muster.api import core
from muster.api.muster.names import TASK_LABEL
from muster.runtime.clock import SystemClock
from muster.server.node_samples import NodeSamples
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, write_one

BUSY = "while True: pass"


def a_pod(name: str, labels: dict[str, str]) -> dict[str, object]:
    main = {"name": "main", "image": "host", "command": [sys.executable, "-c", BUSY]}
    spec = {"nodeName": "n1", "restartPolicy": "Never", "containers": [main], "terminationGracePeriodSeconds": 0}
    return {"metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": spec}


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[tuple[EmbeddedStore, Agent]]:
    clock = SystemClock()
    async with EmbeddedStore.in_memory(clock=clock) as store, asyncio.TaskGroup() as group:
        runtime = HostProcessRuntime(clock)
        config = NodeConfig("n1", tmp_path, Machine(4000, 2**34), address="127.0.0.1")
        agent = Agent(store, runtime=runtime, clock=clock, entropy=random.Random(1), config=config)
        running = group.create_task(agent.run())
        try:
            yield store, agent
            await agent.drain()
        finally:
            running.cancel()
            await runtime.close()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are not written down here")
async def test_a_pod_of_a_task_is_seen_to_work_and_others_are_not_looked_at(
    house: tuple[EmbeddedStore, Agent],
) -> None:
    store, agent = house
    made = await write_one(store, Create(core.POD, a_pod("works", {TASK_LABEL: "task"})))
    await write_one(store, Create(core.POD, a_pod("other", {})))
    async with NodeSamples(store, "token") as nodes, asyncio.timeout(30):
        nodes.update({"n1": agent.samples})
        while True:
            await asyncio.sleep(0.1)
            found = await nodes.of("n1")
            assert set(found) <= {made.uid}
            cores = found.get(made.uid, {}).get("cpu", {}).get("pod_cpu_cores", 0.0)
            assert isinstance(cores, float)
            if cores > 0.05:
                break
    memory = found[made.uid]["memory"]["pod_memory_used"]
    assert isinstance(memory, float)
    assert memory > 2**20
