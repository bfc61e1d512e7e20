"""Lists of a hundred thousand experiments, with filters, over HTTP routes but without a socket: how long a page takes.

Ten projects' worth of users, labels and names, configurations as large as people's are, and few that are active.
"""

import asyncio
import json
import random
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode

import uvloop
from sqlalchemy import Connection, insert

from bench.figures import Figure, Progress
from muster.accounts.callers import Caller
from muster.api.raw import Document
from muster.records.tables_accounts import PROJECTS, USERS
from muster.records.tables_experiments import EXPERIMENT_LABELS, EXPERIMENTS, TRIALS
from muster.records.tables_tasks import JOBS
from muster.runtime.clock import SystemClock
from muster.server.determined import experiment_lists, runs
from muster.server.determined.router import Router
from muster.store.embedded import EmbeddedStore
from muster.testing import accounts
from muster.testing.accounts import ADMIN, Ground
from muster.testing.asgi import AsgiClient
from muster.testing.servers import app_for

_EXPERIMENTS = 100_000
_PROJECTS, _USERS, _LABELS = 100, 50, 40
_MOST_MS = 200.0  # issue 7: a list with 100,000 experiments and a filter
_TIMES = 5
_PAGE = {"limit": 200, "orderBy": "ORDER_BY_DESC"}
_LISTS: Mapping[str, Mapping[str, object]] = {
    "all": {},
    "label": {"labels": "label-7", "archived": "false"},
    "user": {"userIds": 12, "archived": "false"},
    "username": {"users": "user-12"},
    "state": {"states": "STATE_ERROR", "archived": "false"},
    "running": {"states": ["STATE_RUNNING", "STATE_QUEUED"]},
    "project": {"projectId": 7, "archived": "false"},
    "name": {"name": "resnet-99", "archived": "false"},
    "description": {"description": "try 777"},
    "all_of_them": {"projectId": 7, "userIds": 12, "labels": "label-7", "states": "STATE_COMPLETED", "name": "resnet"},
    "by_metric": {"sortBy": "SORT_BY_SEARCHER_METRIC_VAL", "archived": "false"},
}
_SEARCHES: Mapping[str, Document] = {
    "name": {"columnName": "name", "operator": "contains", "value": "resnet-99"},
    "state": {"columnName": "state", "operator": "=", "value": "ERROR"},
    "tags": {"columnName": "tags", "operator": "contains", "value": "label-7"},
}
_SLOW_SEARCHES: Mapping[str, Document] = {
    "hyperparameter": {"columnName": "hp.lr", "operator": ">", "value": 0.999},
    "metric": {"columnName": "validation.loss", "operator": "<", "value": 0.001},
}
"""Which look into documents of every trial: no promise is made about these."""


def run(progress: Progress) -> list[Figure]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as `muster up` does
        return runner.run(_measured(progress))


async def _measured(progress: Progress) -> list[Figure]:
    figures = []
    async with _serving(progress) as client:
        for name, query in _LISTS.items():
            path = f"/api/v1/experiments?{urlencode({**_PAGE, **query}, doseq=True)}"
            figures.append(await _timed(client, f"list.{name}", "GET", path, None, _MOST_MS))
        for name, field in {**_SEARCHES, **_SLOW_SEARCHES}.items():
            group = {"kind": "group", "conjunction": "and", "children": [{"kind": "field", **field}]}
            asked = {"filter": json.dumps({"filterGroup": group}), "limit": 200}
            bound = _MOST_MS if name in _SEARCHES else None
            figures.append(await _timed(client, f"search.{name}", "POST", "/api/v1/experiments-search", asked, bound))
        asked = {"limit": 200, "sort": "searcherMetricsVal=asc"}
        figures.append(await _timed(client, "runs.by_metric", "POST", "/api/v1/runs", asked, None))
    return figures


async def _timed(
    client: AsgiClient, name: str, method: str, path: str, asked: Document | None, bound: float | None
) -> Figure:
    """The best of a few: others use this machine as well."""
    taken, told = [], ""
    for _ in range(_TIMES):
        started = time.perf_counter()
        reply = await client.request(method, path, body=b"" if asked is None else json.dumps(asked).encode())
        taken.append(1000 * (time.perf_counter() - started))
        assert reply.status == 200, reply.body
        page = reply.json["pagination"]
        told = f"{page['endIndex'] - page['startIndex']} of {page['total']:,}, {len(reply.body) // 1024} KiB"
    return Figure(f"{name}_ms", min(taken), "ms", bound, at_most=True, note=told)


@asynccontextmanager
async def _serving(progress: Progress) -> AsyncIterator[AsgiClient]:
    clock = SystemClock()

    async def authenticate(_headers: Mapping[str, str]) -> Caller | None:
        return ADMIN.caller

    with tempfile.TemporaryDirectory() as folder:
        async with accounts.ground(Path(folder)) as ground, EmbeddedStore.in_memory(clock=clock) as store:
            progress(f"{_EXPERIMENTS:,} experiments are written down")
            await _fill(ground)
            progress("they are listed")
            authorizer = ground.services.authorizer
            routes = [
                *experiment_lists.routes(ground.database, clock, authorizer),
                *runs.routes(None, ground.database, clock, authorizer),  # type: ignore[arg-type]
            ]
            app = app_for(store)
            app.mount(Router(routes, authenticate, authorizer))
            yield AsgiClient(app)


async def _fill(ground: Ground) -> None:
    chance = random.Random(0)
    await ground.database.write(_surroundings)
    for start in range(1, _EXPERIMENTS + 1, 5000):
        ids = range(start, start + 5000)
        await ground.database.write(lambda connection, ids=ids: _add(connection, ids, chance))  # type: ignore[misc]


def _surroundings(connection: Connection) -> None:
    users = [{"id": id, "username": f"user-{id}", "created": 0.0, "modified": 0.0} for id in range(10, 10 + _USERS)]
    connection.execute(insert(USERS), users)
    plain = {"workspace_id": 1, "user_id": 1, "notes": [], "created": 0.0}
    projects = [{"id": id, "name": f"project-{id}", "key": f"P{id}", **plain} for id in range(2, 2 + _PROJECTS)]
    connection.execute(insert(PROJECTS), projects)


def _add(connection: Connection, ids: range, chance: random.Random) -> None:
    jobs = [{"id": f"job-{id:032}", "type": "EXPERIMENT", "user_id": 1, "created": float(id)} for id in ids]
    connection.execute(insert(JOBS), jobs)
    connection.execute(insert(EXPERIMENTS), [_experiment(id, chance) for id in ids])
    labels = [{"experiment_id": id, "label": f"label-{(id * 7 + n) % _LABELS}"} for id in ids for n in range(2)]
    connection.execute(insert(EXPERIMENT_LABELS), labels)
    connection.execute(insert(TRIALS), [_trial(id, chance) for id in ids])


def _experiment(id: int, chance: random.Random) -> dict[str, object]:
    name = f"{chance.choice(('resnet', 'bert', 'llama'))}-{chance.randrange(1000)}"
    ended = 97 * ["COMPLETED"] + 2 * ["ERROR"]
    return {
        "id": id,
        "job_id": f"job-{id:032}",
        "project_id": chance.randrange(2, 2 + _PROJECTS),
        "user_id": chance.randrange(10, 10 + _USERS),
        "state": "ACTIVE" if id % 1000 == 0 else chance.choice(ended),
        "name": name,
        "description": f"try {id} of {name}, with what was learned from the others",
        "labels": [f"label-{(id * 7 + n) % _LABELS}" for n in range(2)],
        "config": {"name": name, "hyperparameters": {"lr": {"type": "log"}}, "environment": {"x": "y" * 2500}},
        "original_config": f"name: {name}\n" + 800 * "#",
        "is_archived": id % 10 == 0,
        "searcher_type": "single",
        "searcher_metric": "loss",
        "best_metric": chance.random(),
        "best_trial_id": id,
        "trial_count": 1,
        "search": b"s" * 400,
        "created": float(id),
    }


def _trial(id: int, chance: random.Random) -> dict[str, object]:
    loss = chance.random()
    summary = {"type": "number", "last": loss, "min": loss, "max": loss, "mean": loss}
    return {
        "id": id,
        "experiment_id": id,
        "state": "ACTIVE" if id % 1000 == 0 else "COMPLETED",
        "task_id": f"{id}.task",
        "hparams": {"lr": chance.random(), "layers": 3},
        "searcher_metric": loss,
        "summary_metrics": {"validation_metrics": {"loss": summary}, "avg_metrics": {"loss": summary}},
        "created": float(id),
    }
