"""The routes about experiments, over the real services of tasks and experiments; only the engine pretends."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from muster.accounts.callers import Caller, UserId
from muster.assembly import experimenting
from muster.assembly.controlling import Component
from muster.assembly.experimenting import Experimenting
from muster.assembly.interactive import InteractiveTasks, Setting, interactive_tasks
from muster.assembly.tasking import TaskServices
from muster.engines.protocol import Exit, Failure, ResourceId
from muster.experiments.metric_reports import VALIDATION, Report
from muster.experiments.states import TrialId
from muster.runtime.clock import SystemClock
from muster.server.determined import account_routes
from muster.server.determined.router import Router
from muster.settings.sections import PlatformSettings
from muster.store.embedded import EmbeddedStore
from muster.tasks.allocating import AllocationService
from muster.tasks.harness import Harness
from muster.tasks.log_retention import Retention
from muster.tasks.logs import TaskLogs
from muster.tasks.proxy_tokens import ProxyTokens
from muster.tasks.webhooks import Webhooks
from muster.testing import accounts
from muster.testing.accounts import ADMIN, Ground
from muster.testing.asgi import AsgiClient, Reply
from muster.testing.engines import PretendEngine, PretendMachine
from muster.testing.servers import app_for

CONFIG = """\
name: first
entrypoint: python train.py
searcher: {name: single, metric: loss}
hyperparameters: {lr: 0.1}
max_restarts: 0
checkpoint_storage: {type: s3, bucket: models, access_key: id, secret_key: hush}
"""
SEARCH = """\
name: second
entrypoint: python train.py
searcher: {name: random, metric: loss, max_trials: 3, max_concurrent_trials: 3}
hyperparameters:
  lr: {type: double, minval: 0.0, maxval: 1.0}
max_restarts: 0
"""


@dataclass
class Wire:
    """Speaks as the administrator, unless another's name is given as `by`."""

    ground: Ground
    client: AsgiClient
    engine: PretendEngine
    tasks: TaskServices
    interactive: InteractiveTasks
    experimenting: Experimenting
    callers: dict[str, Caller] = field(default_factory=dict)

    async def request(self, method: str, path: str, body: object = None, by: str = "admin", **query: Any) -> Reply:
        asked = urlencode({name.replace("__", "."): value for name, value in query.items()}, doseq=True)
        sent = b"" if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {by}"}
        return await self.client.request(method, f"/api/v1{path}?{asked}", body=sent, headers=headers)

    async def __call__(self, method: str, path: str, body: object = None, by: str = "admin", **query: Any) -> Any:
        reply = await self.request(method, path, body, by, **query)
        assert reply.status == 200, reply.body
        return reply.json

    async def stream(self, path: str, **query: Any) -> list[Any]:
        reply = await self.request("GET", path, **query)
        assert reply.status == 200, reply.body
        return [json.loads(line)["result"] for line in reply.body.splitlines()]

    async def refusal(self, method: str, path: str, body: object = None, by: str = "admin", **query: Any) -> str:
        reply = await self.request(method, path, body, by, **query)
        assert reply.status != 200, reply.body
        return f"{reply.status} {reply.json['error']['error']}"

    async def person(self, name: str, role: str = "", workspace: int | None = None) -> None:
        self.callers[name] = await self.ground.caller(name, role, workspace)

    # Experiments

    async def create(self, config: str = CONFIG, by: str = "admin", **more: Any) -> int:
        made = await self("POST", "/experiments", {"config": config, "activate": True, **more}, by)
        id: int = made["experiment"]["id"]
        return id

    async def state(self, experiment: int) -> str:
        found = await self("GET", f"/experiments/{experiment}")
        state: str = found["experiment"]["state"]
        return state

    async def until(self, experiment: int, *states: str) -> str:
        async with asyncio.timeout(5):
            while (found := await self.state(experiment)) not in states:
                await asyncio.sleep(0.005)
        return found

    async def trials(self, experiment: int, count: int = 1) -> list[Any]:
        """As soon as there are so many."""
        async with asyncio.timeout(5):
            while len(found := (await self("GET", f"/experiments/{experiment}/trials"))["trials"]) < count:
                await asyncio.sleep(0.005)
        return list(found)

    async def finish(self, experiment: int, count: int = 1, code: int = 0) -> str:
        """Its trials end."""
        for trial in await self.trials(experiment, count):
            await self.until(experiment, "STATE_RUNNING", "STATE_QUEUED")
            async with asyncio.timeout(5):
                while not (run := self._run(trial["taskId"])):
                    await asyncio.sleep(0.005)
            self.engine.finish(run, Exit(code, Failure.RESOURCES_FAILED, "it broke") if code else Exit(0))
        return await self.until(experiment, "STATE_COMPLETED", "STATE_ERROR")

    def _run(self, task: str) -> ResourceId | None:
        found = [e.resources for id, e in self.engine.machine.entries.items() if id.startswith(f"{task}.")]
        return next((id for resources in found for id in resources), None)

    async def validate(self, trial: int, steps: int, **metrics: float) -> None:
        now = SystemClock().now()
        await self.experimenting.intake.report(Report(TrialId(trial), 1, VALIDATION, steps, now, metrics))


def files(**contents: str) -> list[dict[str, object]]:
    """As the client sends them; `__` in a name stands for a dot."""
    return [
        {"path": name.replace("__", "."), "type": 48, "content": base64.b64encode(text.encode()).decode(),
         "mtime": "1700000000", "mode": 0o644, "uid": 0, "gid": 0}
        for name, text in contents.items()
    ]  # fmt: skip


class NoCarrier:
    """There are no webhooks here."""


@asynccontextmanager
async def serving(folder: Path, slots: int = 8) -> AsyncIterator[Wire]:
    clock = SystemClock()
    async with accounts.ground(folder) as ground, EmbeddedStore.in_memory(clock=clock) as store:
        database, engine = ground.database, PretendEngine(PretendMachine(slots))
        async with TaskLogs(database, clock) as logs:
            service = AllocationService(database, clock, engine, ground.services.accounts, logs)
            harness, retention = Harness(service, database, clock), Retention(database, clock)
            tasks = TaskServices(engine, logs, service, harness, retention, database, clock)
            setting = Setting(store, clock, folder, "http://127.0.0.1:7077", "", "cluster")
            tokens = await ProxyTokens.load(database)
            interactive = await interactive_tasks(PlatformSettings(), setting, tasks, ground.services, tokens)
            hooks = Webhooks(database, clock, NoCarrier(), uuid4)  # type: ignore[arg-type]
            made = experimenting.experimenting(PlatformSettings(), setting, tasks, interactive, ground.services, hooks)
            callers = {"admin": ADMIN.caller}

            async def authenticate(headers: Mapping[str, str]) -> Caller | None:
                return callers.get(headers.get("authorization", "").removeprefix("Bearer "))

            authorizer = ground.services.authorizer
            routes = [
                *account_routes.routes(ground.services),
                *tasks.routes(authorizer),
                *interactive.routes,
                *made.routes,
            ]
            app = app_for(store)
            app.mount(Router(routes, authenticate, authorizer))
            wire = Wire(ground, AsgiClient(app), engine, tasks, interactive, made, callers)
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(_lived(run)) for run in (service.run, *made.components.values())]
                try:
                    yield wire
                finally:
                    for task in running:
                        task.cancel()


async def _lived(run: Component) -> None:
    await run()


def as_task(task: str, run: int = 1) -> Caller:
    """The token of a trial's run."""
    return Caller(UserId(1), "admin", allocation=f"{task}.{run}", task=task)
