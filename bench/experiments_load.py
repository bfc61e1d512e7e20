"""Many short trials of one search, for `bench.experiments`: `python -m bench.experiments_load COUNT`. Prints JSON.

The platform is the one of `muster up`, in this process, with its store and its records on disk, its quota and its
placement; only its nodes are simulated. What a trial's program would do is done for it: it reports one validation with
the session of its allocation, over HTTP, and ends one second after it was started.
"""

import asyncio
import base64
import json
import logging
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import uvloop

from muster.api import core
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.assembly.configured import ServeSettings
from muster.assembly.whole import without_nodes
from muster.runtime import collector
from muster.settings.sections import Log, LogLevel, PlatformSettings, Security
from muster.store.protocol import Store
from muster.testing.builders import a_node
from muster.testing.nodes import SimulatedNodes
from muster.testing.staging import running

SLOTS = 16
_SLOTS_OF_A_NODE = 8
TRIAL_SECONDS = 1.0
_PASSWORD = "Benchmark-1"
_SETTLE_SECONDS = 3.0
_SLOWEST = 3.0
"""So many times as long as it should, and something is wrong."""
_CONFIG = """
name: many short trials
entrypoint: [train]
searcher: {{name: random, metric: loss, max_trials: {count}, max_concurrent_trials: {concurrent}}}
hyperparameters: {{x: {{type: double, minval: 0.0, maxval: 1.0}}}}
"""


@dataclass
class Trials:
    """What their programs do, and when each has ended."""

    store: Store
    client: aiohttp.ClientSession
    ended: list[float] = field(default_factory=list)

    async def program(self, pod: Object) -> int:
        until = time.perf_counter() + TRIAL_SECONDS
        environment = await self._environment(pod)
        trial, run = int(environment["DET_TRIAL_ID"]), int(environment["DET_TRIAL_RUN_ID"])
        loss = json.loads(environment["DET_HPARAMS"])["x"]
        report = {"trialId": trial, "trialRunId": run, "stepsCompleted": 1, "metrics": {"avgMetrics": {"loss": loss}}}
        headers = {"Grpc-Metadata-x-allocation-token": f"Bearer {environment['DET_SESSION_TOKEN']}"}
        body = {"group": "validation", "metrics": report}
        async with self.client.post(f"/api/v1/trials/{trial}/metrics", json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
        await asyncio.sleep(until - time.perf_counter())
        self.ended.append(time.perf_counter())
        return 0

    async def _environment(self, pod: Object) -> Mapping[str, str]:
        """As its node would find it out."""
        found: dict[str, str] = {}
        secrets: dict[str, Document] = {}
        for variable in pod.document()["spec"]["containers"][0]["env"]:
            if "value" in variable:
                found[variable["name"]] = variable["value"]
            elif "secretKeyRef" in variable.get("valueFrom", {}):
                kept = variable["valueFrom"]["secretKeyRef"]
                if kept["name"] not in secrets:
                    secret = await self.store.get(core.SECRET, Key(pod.key.namespace, kept["name"]))
                    secrets[kept["name"]] = secret.document()["data"]
                found[variable["name"]] = base64.b64decode(secrets[kept["name"]][kept["key"]]).decode()
        return found


async def load(count: int, concurrent: int) -> Document:
    settings = PlatformSettings(port=0, log=Log(LogLevel.WARNING), security=Security(initial_user_password=_PASSWORD))
    with tempfile.TemporaryDirectory() as folder:
        async with (
            without_nodes(ServeSettings(Path(folder), settings)) as platform,
            aiohttp.ClientSession(platform.url) as client,
        ):
            trials = Trials(platform.store, client)
            built = [
                a_node(f"n{n}").cpu(64).memory("256Gi").gpus(_SLOTS_OF_A_NODE) for n in range(SLOTS // _SLOTS_OF_A_NODE)
            ]
            nodes = SimulatedNodes(platform.store, platform.clock, built, trials.program)
            await nodes.register()
            async with running(nodes.run):
                await asyncio.sleep(_SETTLE_SECONDS)
                client.headers["Authorization"] = f"Bearer {await _login(client)}"
                started, worked = time.perf_counter(), time.process_time()
                experiment = await _create(client, count, concurrent)
                await _until_completed(client, experiment, count)
                took, worked = time.perf_counter() - started, time.process_time() - worked
    assert len(trials.ended) == count, f"{len(trials.ended)} programs were run for {count} trials"
    return {"seconds": took, "cpu": worked, "ended": [moment - started for moment in trials.ended]}


async def _login(client: aiohttp.ClientSession) -> str:
    async with client.post("/api/v1/auth/login", json={"username": "admin", "password": _PASSWORD}) as answer:
        assert answer.status == 200, await answer.text()
        return str((await answer.json())["token"])


async def _create(client: aiohttp.ClientSession, count: int, concurrent: int) -> int:
    config = _CONFIG.format(count=count, concurrent=concurrent)
    async with client.post("/api/v1/experiments", json={"config": config, "activate": True}) as answer:
        assert answer.status == 200, await answer.text()
        return int((await answer.json())["experiment"]["id"])


async def _until_completed(client: aiohttp.ClientSession, experiment: int, count: int) -> None:
    deadline = time.monotonic() + _SETTLE_SECONDS + _SLOWEST * count * TRIAL_SECONDS / SLOTS
    while True:
        await asyncio.sleep(0.1)
        async with client.get(f"/api/v1/experiments/{experiment}") as answer:
            state = (await answer.json())["experiment"]["state"]
        if state == "STATE_COMPLETED":
            return
        assert state in ("STATE_ACTIVE", "STATE_QUEUED", "STATE_STARTING", "STATE_RUNNING"), state
        assert time.monotonic() < deadline, f"the search takes {_SLOWEST:.0f} times as long as its trials"


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    collector.calm()  # as `muster up` does
    print(json.dumps(uvloop.run(load(int(sys.argv[1]), int(sys.argv[2])))))
