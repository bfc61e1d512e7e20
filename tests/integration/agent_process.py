"""A store on disk and an agent on it in one process, for tests to kill. Usage: agent_process.py DIRECTORY"""

import asyncio
import random
import sys
from pathlib import Path

from muster.agent import cgroups
from muster.agent.devices import Machine
from muster.agent.host_process import HostProcessRuntime
from muster.agent.node import Agent, NodeConfig
from muster.runtime.clock import SystemClock
from muster.store.embedded import EmbeddedStore

MACHINE = Machine(64_000, 2**36, 1000)


async def main(directory: Path) -> None:
    clock = SystemClock()
    runtime = HostProcessRuntime(clock, groups=cgroups.find(), drain_seconds=0.3)
    config = NodeConfig("n1", directory / "node", MACHINE, address="127.0.0.1")
    async with EmbeddedStore.on_disk(directory / "store.db", clock=clock) as store:
        await Agent(store, runtime=runtime, clock=clock, entropy=random.Random(1), config=config).run()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
