"""Two ranks on two nodes with the client's own harness: they meet, and stop when they are asked to."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import Connection, insert
from tests.det.det_client import DET

from muster.accounts.callers import UserId
from muster.agent import cgroups, devices
from muster.agent.host_process import HostProcessRuntime
from muster.agent.node import Agent, NodeConfig
from muster.assembly.configured import ServeSettings
from muster.assembly.whole import Platform, without_nodes
from muster.engines.protocol import AllocationId, Request
from muster.records.tables_tasks import JOBS, TASKS
from muster.settings.sections import PlatformSettings
from muster.tasks import allocation_records
from muster.tasks.allocation_states import Ended, Phase, Signal, State
from muster.tasks.contract import DTRAIN_PORTS, Launch

ID = AllocationId("t.1")
KIND = "COMMAND"
RANK = Path(__file__).parent / "harness_rank.py"


@asynccontextmanager
async def two_nodes(data: Path) -> AsyncIterator[Platform]:
    async with without_nodes(ServeSettings(data, PlatformSettings(port=0))) as platform:
        runtime = HostProcessRuntime(platform.clock, groups=cgroups.find())
        machine = devices.discover(4, None)
        agents = [
            Agent(
                platform.store,
                runtime=runtime,
                clock=platform.clock,
                entropy=random.SystemRandom(),
                config=NodeConfig(
                    f"n{i}", data / "nodes" / f"n{i}", devices.share(machine, i, 2), {}, address="127.0.0.1"
                ),
            )
            for i in range(2)
        ]
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(agent.run()) for agent in agents]
            yield platform
            for task in running:
                task.cancel()
        await runtime.close()


def _task(connection: Connection) -> None:
    connection.execute(insert(JOBS).values(id="j", type=KIND, user_id=1, created=0.0))
    connection.execute(insert(TASKS).values(id="t", type=KIND, job_id="j", user_id=1, created=0.0))


async def test_ranks_meet_and_stop_when_asked_to(tmp_path: Path) -> None:
    over: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()

    def changed(_task: str, state: State) -> None:
        if state.ended is not None and not over.done():
            over.set_result(state.ended)

    async with two_nodes(tmp_path) as platform, asyncio.timeout(60):
        tasks = platform.determined.tasks
        tasks.allocations.on_change(changed)
        await tasks.database.write(_task)
        while not any(pool.slots_per_node == 2 for pool in await tasks.engine.pools()):
            await asyncio.sleep(0.1)
        env = [
            {"name": "DET_MASTER", "value": platform.url},
            {"name": "DET_CLUSTER_ID", "value": "c"},
            {"name": "DET_USER", "value": "admin"},
        ]
        container = {"name": "main", "image": "host", "command": [str(DET.parent / "python"), str(RANK)], "env": env}
        template = {"spec": {"containers": [container]}}
        request = Request(
            allocation=ID, task="t", task_type=KIND, slots=4, is_preemptible=True, template=template
        )  # fmt: skip
        await tasks.allocations.start(Launch(request, UserId(1), ports=DTRAIN_PORTS))
        state: State | None = None
        while state is None or not state.is_ready:
            assert not over.done(), over.result()
            await asyncio.sleep(0.05)
            state = tasks.allocations.state(ID)
        assert state.phase is Phase.RUNNING
        assert sorted(part.resource.node for part in state.parts) == ["n0", "n1"]
        await tasks.allocations.signal(ID, Signal.TERMINATE, "it was paused")
        found = await over
        assert (found.is_preempted, found.exit_code) == (True, 0), found
        devices_found = await tasks.database.read(lambda c: allocation_records.accelerators(c, ID))
        assert [one.container for one in devices_found] == ["t.1-0", "t.1-1"]
