"""How many short pods an agent starts and reaps in a second. Run it by hand: agent_speed.py [COUNT] [--disk]"""

import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from muster.agent import cgroups
from muster.agent.devices import Machine
from muster.agent.host_process import HostProcessRuntime
from muster.agent.node import Agent, NodeConfig
from muster.api import core
from muster.api.raw import Document
from muster.runtime.clock import SystemClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Selection


def a_pod(name: str) -> Document:
    container = {"name": "main", "image": "host", "command": ["true"]}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": "n1", "restartPolicy": "Never", "containers": [container]},
    }


async def ended(store: EmbeddedStore, count: int) -> None:
    page = await store.list(Selection(core.POD))
    finished = {found.key for found in page.items if found.read(core.Pod).status.phase == "Succeeded"}
    if len(finished) == count:
        return
    async for events in store.watch(Selection(core.POD), since=page.revision):
        for event in events:
            if event.object is not None and event.object.read(core.Pod).status.phase == "Succeeded":
                finished.add(event.object.key)
        if len(finished) == count:
            return


async def measure(directory: Path, count: int, *, is_on_disk: bool) -> None:
    clock = SystemClock()
    runtime = HostProcessRuntime(clock, groups=cgroups.find())
    opened = EmbeddedStore.on_disk(directory / "store.db", clock=clock) if is_on_disk else None
    async with opened or EmbeddedStore.in_memory(clock=clock) as store, asyncio.TaskGroup() as tasks:
        config = NodeConfig("n1", directory / "node", Machine(10**6, 2**40, 10_000), address="127.0.0.1")
        agent = Agent(store, runtime=runtime, clock=clock, entropy=random.Random(1), config=config)
        running = tasks.create_task(agent.run())
        await store.write([Create(core.POD, a_pod("first"))])
        await ended(store, 1)
        began = time.monotonic()
        await store.write([Create(core.POD, a_pod(f"p{number}")) for number in range(count)])
        await ended(store, count + 1)
        seconds = time.monotonic() - began
        print(f"{count} pods in {seconds:.2f} s: {count / seconds:.0f} a second")
        running.cancel()
    await runtime.close()


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    with tempfile.TemporaryDirectory() as place:
        uvloop.run(measure(Path(place), numbers[0] if numbers else 500, is_on_disk="--disk" in sys.argv))
