"""Task logs over the wire: as `ship_logs` and unmanaged processes send them, as `det` reads them, and who may."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from muster.accounts.callers import Caller, UserId
from muster.runtime.clock import SystemClock
from muster.server.determined import logs as routes
from muster.server.determined.router import Router
from muster.store.embedded import EmbeddedStore
from muster.tasks.log_retention import Retention
from muster.testing.accounts import ADMIN
from muster.testing.asgi import AsgiClient, Reply
from muster.testing.servers import app_for
from muster.testing.task_logs import Logged, logged

OWN = Caller(UserId(1), "admin", allocation="task.1", task="task")
LINE = {
    "timestamp": "2024-03-15T16:29:06.552162+00:00", "task_id": "task", "allocation_id": "task.1",
    "container_id": "5c902731-x", "agent_id": "node", "source": "task", "stdtype": "stdout", "log": "hello\n",
    "level": "LOG_LEVEL_INFO", "rank_id": 0,
}  # fmt: skip


@dataclass
class Wire:
    logged: Logged
    client: AsgiClient
    callers: dict[str, Caller]

    async def post(self, path: str, body: object, token: str = "own") -> Reply:
        headers = {"content-type": "application/x-www-form-urlencoded", "authorization": f"Bearer {token}"}
        return await self.client.request("POST", path, body=json.dumps(body).encode(), headers=headers)

    async def get(self, query: str = "", token: str = "admin", task: str = "task", fields: bool = False) -> Reply:
        path = f"/api/v1/tasks/{task}/logs{'/fields' if fields else ''}"
        pairs = dict(pair.split("=") for pair in query.split("&")) if query else {}
        return await self.client.request("GET", path, query=pairs, headers={"authorization": f"Bearer {token}"})


def results(reply: Reply) -> list[Any]:
    assert reply.status == 200, reply.body
    return [json.loads(line)["result"] for line in reply.body.splitlines()]


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Wire]:
    callers = {"own": OWN, "admin": ADMIN.caller}

    async def authenticate(headers: Mapping[str, str]) -> Caller | None:
        return callers.get(headers.get("authorization", "").removeprefix("Bearer "))

    clock = SystemClock()
    async with logged(tmp_path) as found, EmbeddedStore.in_memory(clock=clock) as store:
        await found.task()
        authorizer = found.ground.services.authorizer
        made = routes.routes(found.logs, Retention(found.database, clock, 30), authorizer, clock)
        app = app_for(store)
        app.mount(Router(made, authenticate, authorizer))
        yield Wire(found, AsgiClient(app), callers)


async def test_what_ship_logs_sends_is_what_det_prints(at: Wire) -> None:
    crash = {"task_id": "task", "log": "crashed", "level": "ERROR", "timestamp": LINE["timestamp"]}
    reply = await at.post("/api/v1/task/logs", {"logs": [LINE, crash]})
    assert (reply.status, reply.json) == (200, {})
    first, second = results(await at.get())
    assert first == {
        "id": first["id"], "timestamp": "2024-03-15T16:29:06.552162Z",
        "message": "[2024-03-15T16:29:06.552162Z] 5c902731 [rank=0] || INFO: hello\n",
        "level": "LOG_LEVEL_INFO", "taskId": "task", "allocationId": "task.1", "agentId": "node",
        "containerId": "5c902731-x", "rankId": 0, "log": "hello\n", "source": "task", "stdtype": "stdout",
    }  # fmt: skip
    assert second["message"] == "[2024-03-15T16:29:06.552162Z] || ERROR: crashed\n"
    assert (second["allocationId"], second["rankId"]) == (None, None)
    assert int(second["id"]) > int(first["id"])


async def test_a_batch_that_was_sent_again_is_there_once(at: Wire) -> None:
    for _ in range(3):
        assert (await at.post("/api/v1/task/logs", {"logs": [LINE]})).status == 200
    assert len(results(await at.get())) == 1


async def test_unmanaged_lines_all_have_the_time_of_their_start_and_may_be_alike(at: Wire) -> None:
    line = {"task_id": "task", "timestamp": "2001-01-01T00:00:00+00:00", "rank": "1", "log": "same\n"}
    for _ in range(2):
        assert (await at.post("/task-logs", [line, line], "admin")).status == 200
    found = results(await at.get())
    assert [(each["log"], each["rankId"]) for each in found] == [("same\n", 1)] * 4
    assert all(each["timestamp"] > "2024" for each in found)


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 3), ("limit=2", 2), ("orderBy=ORDER_BY_DESC&limit=1", 1), ("rankIds=0", 1), ("levels=LOG_LEVEL_ERROR", 1),
        ("searchText=LO", 1), ("searchText=h.*o&enableRegex=true", 1), ("allocationIds=task.1", 3),
        ("allocationIds=none", 0), ("stdtypes=stderr", 1), ("sources=task", 3), ("agentIds=node", 3),
        ("containerIds=5c902731-x", 3), ("timestampAfter=2024-03-15T16:29:07Z", 1),
        ("timestampBefore=2024-03-15T16:29:07Z", 2), ("follow=false", 3),
    ],
)  # fmt: skip
async def test_filters(at: Wire, query: str, count: int) -> None:
    lines = [
        LINE,
        {**LINE, "log": "second", "level": "LOG_LEVEL_ERROR", "rank_id": 1, "stdtype": "stderr"},
        {**LINE, "log": "third", "rank_id": 2, "timestamp": "2024-03-15T16:29:08Z"},
    ]
    await at.post("/api/v1/task/logs", {"logs": lines})
    found = results(await at.get(query))
    assert len(found) == count
    if "DESC" in query:
        assert found[0]["log"] == "third"


async def test_fields(at: Wire) -> None:
    await at.post("/api/v1/task/logs", {"logs": [LINE]})
    assert results(await at.get(fields=True)) == [
        {
            "allocationIds": ["task.1"], "agentIds": ["node"], "containerIds": ["5c902731-x"], "rankIds": [0],
            "stdtypes": ["stdout"], "sources": ["task"],
        }
    ]  # fmt: skip


async def test_a_follower_over_the_wire(at: Wire) -> None:
    await at.post("/api/v1/task/logs", {"logs": [LINE]})
    query = {"follow": "true"}
    async with (
        asyncio.timeout(10),
        at.client.stream("/api/v1/tasks/task/logs", query=query, headers={"authorization": "Bearer own"}) as stream,
    ):
        assert b"hello" in await stream.next()
        await at.post("/api/v1/task/logs", {"logs": [{**LINE, "log": "later\n"}]})
        assert b"later" in await stream.next()
        await at.logged.end("task")
        assert await stream.next() == b""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"timestamp": "soon"}, "logs[1].timestamp"),
        ({"level": "LOUD"}, "logs[1].level"),
        ({"rank_id": -7}, "rankId"),
        ({"rank_id": "x"}, "rankId"),
        ({"id": 7}, "logs[1].id"),
        ({"task_id": ""}, "logs[1].task_id"),
        ({"task_id": "other"}, "logs[1].task_id"),
        ({"stdtype": "a,b"}, "logs[1].stdtype"),
        ({"container_id": "x" * 300}, "logs[1]"),
        ({"agent_id": "a\x00b"}, "logs[1]"),
        ({"log": 7}, "log"),
    ],
)
async def test_bad_lines_are_refused_by_name_and_nothing_of_them_is_kept(
    at: Wire, line: dict[str, object], said: str
) -> None:
    reply = await at.post("/api/v1/task/logs", {"logs": [LINE, {**LINE, **line}]})
    assert reply.status == 400
    assert said in str(reply.json)
    assert results(await at.get()) == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("searchText=(&enableRegex=true", "searchText"),
        ("orderBy=ORDER_BY_DESC&follow=true", "orderBy"),
        ("orderBy=SIDEWAYS", "orderBy"),
        ("levels=LOUD", "levels"),
        ("limit=-1", "limit"),
        ("timestampAfter=soon", "timestampAfter"),
    ],
)
async def test_bad_questions(at: Wire, query: str, said: str) -> None:
    reply = await at.get(query)
    assert reply.status == 400
    assert said in str(reply.json)


async def test_a_task_writes_and_reads_its_own_log_only(at: Wire) -> None:
    await at.logged.task("other")
    for line in (
        {**LINE, "task_id": "other"},
        {**LINE, "allocation_id": "other.1"},
        {**LINE, "allocation_id": "task.2"},
    ):
        assert (await at.post("/api/v1/task/logs", {"logs": [line]})).status == 403
    assert (await at.get(token="own", task="other")).status == 403
    assert (await at.get(token="own")).status == 200
    assert (await at.post("/api/v1/cleanup_logs", None)).status == 403


async def test_people_need_a_role_in_the_workspace(at: Wire) -> None:
    ground = at.logged.ground
    at.callers["viewer"] = await ground.caller("viewer", "Viewer", 1)
    at.callers["editor"] = await ground.caller("editor", "Editor", 1)
    at.callers["stranger"] = await ground.caller("stranger")
    body = {"logs": [LINE]}
    assert (await at.post("/api/v1/task/logs", body, "editor")).status == 200
    assert (await at.post("/api/v1/task/logs", body, "viewer")).status == 403
    assert (await at.get(token="viewer")).status == 200
    assert (await at.get(token="stranger")).status == 404
    assert (await at.get(token="nobody")).status == 401
    assert (await at.get(task="none")).status == 404
    assert (await at.post("/api/v1/cleanup_logs", None, "editor")).status == 403


async def test_cleaning_up_tells_how_much_went(at: Wire) -> None:
    await at.logged.write("gone", "a", "b")
    reply = await at.post("/api/v1/cleanup_logs", None, "admin")
    assert (reply.status, reply.json) == (200, {"removedCount": "2"})
