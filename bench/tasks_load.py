"""Many commands that run at once, for `bench.tasks`: `python -m bench.tasks_load COUNT`. Prints JSON.

The platform is the one of `muster up`, in this process, with its store and its records on disk; only its nodes are
simulated. Commands are submitted over HTTP by a user's session. A process of its own: memory is that of this one.
"""

import asyncio
import json
import logging
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import psutil
import uvloop

from muster.api.raw import Document
from muster.assembly.configured import ServeSettings
from muster.assembly.whole import without_nodes
from muster.runtime import collector
from muster.settings.sections import Log, LogLevel, PlatformSettings, Security
from muster.testing.builders import a_node
from muster.testing.nodes import SimulatedNodes
from muster.testing.staging import running

_NODES = 250
_PASSWORD = "Benchmark-1"
_SUBMITTERS = 16
_PATIENCE = 300.0
_SETTLE_SECONDS = 3.0


async def load(count: int) -> Document:
    process = psutil.Process()
    settings = PlatformSettings(port=0, log=Log(LogLevel.WARNING), security=Security(initial_user_password=_PASSWORD))
    with tempfile.TemporaryDirectory() as folder:
        async with without_nodes(ServeSettings(Path(folder), settings)) as platform:
            built = [a_node(f"n{number}").cpu(64).memory("256Gi").gpus(8) for number in range(_NODES)]
            nodes = SimulatedNodes(platform.store, platform.clock, built)
            await nodes.register()
            async with running(nodes.run), aiohttp.ClientSession(platform.url) as client:
                await asyncio.sleep(_SETTLE_SECONDS)
                token = await _login(client)
                empty = process.memory_info().rss
                started, worked = time.perf_counter(), time.process_time()
                await _submit(client, token, count)
                submitted = time.perf_counter() - started
                await _until_running(client, token, count)
                took, worked = time.perf_counter() - started, time.process_time() - worked
                await asyncio.sleep(_SETTLE_SECONDS)
                full = process.memory_info().rss
                listed = await _seconds_of(client, token, "/api/v1/commands")
    return {
        "empty": empty / 2**20,
        "full": full / 2**20,
        "submitted": submitted,
        "running": took,
        "cpu": worked,
        "listed": listed,
        "threads": process.num_threads(),
    }


async def _login(client: aiohttp.ClientSession) -> str:
    async with client.post("/api/v1/auth/login", json={"username": "admin", "password": _PASSWORD}) as answer:
        assert answer.status == 200, await answer.text()
        return str((await answer.json())["token"])


def _authorized(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def _submit(client: aiohttp.ClientSession, token: str, count: int) -> None:
    left = iter(range(count))

    async def submit() -> None:
        for number in left:
            config = {"entrypoint": ["train", str(number)], "resources": {"slots": 1}, "description": f"n {number}"}
            async with client.post("/api/v1/commands", json={"config": config}, headers=_authorized(token)) as answer:
                assert answer.status == 200, await answer.text()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(_SUBMITTERS):
            tasks.create_task(submit())


async def _until_running(client: aiohttp.ClientSession, token: str, count: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    states: dict[str, int] = {}
    while states.get("STATE_RUNNING", 0) < count:
        assert time.monotonic() < deadline, f"only these after {_PATIENCE:.0f} s: {states}"
        await asyncio.sleep(0.5)
        async with client.get("/api/v1/commands", headers=_authorized(token)) as answer:
            commands = (await answer.json())["commands"]
        found = [command["state"] for command in commands]
        states = {state: found.count(state) for state in set(found)}


async def _seconds_of(client: aiohttp.ClientSession, token: str, path: str) -> float:
    started = time.perf_counter()
    async with client.get(path, headers=_authorized(token)) as answer:
        await answer.read()
    return time.perf_counter() - started


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    collector.calm()  # as `muster up` does
    print(json.dumps(uvloop.run(load(int(sys.argv[1])))))
