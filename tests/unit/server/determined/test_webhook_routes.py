"""Webhooks through the API: who may have which, and what is refused."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import insert
from tests.unit.server.determined.account_api import Api, Refused, callers

from muster.accounts.callers import Caller, UserId
from muster.api import errors
from muster.records.tables_tasks import TASKS
from muster.server.determined import account_routes, webhooks
from muster.server.determined.router import Router
from muster.tasks.webhook_records import Delivery
from muster.tasks.webhook_sending import Never, Outcome, Taken
from muster.tasks.webhooks import Webhooks
from muster.testing import accounts

pytestmark = pytest.mark.postgres


@dataclass
class Carrier:
    sent: list[Delivery] = field(default_factory=list)
    outcome: Outcome = field(default_factory=Taken)

    async def check(self, url: str) -> None:
        if "10.0.0.1" in url:
            raise errors.BadRequest("url: 10.0.0.1 is not a public address")

    async def send(self, delivery: Delivery, now: float) -> Outcome:
        self.sent.append(delivery)
        return self.outcome


@dataclass
class World:
    api: Api
    carrier: Carrier


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async def authenticate(headers: Mapping[str, str]) -> Caller | None:
        return callers[0]

    async with accounts.ground(tmp_path) as ground:
        carrier = Carrier()
        service = Webhooks(ground.database, ground.clock, carrier, uuid4)
        authorizer = ground.services.authorizer
        routes = (*account_routes.routes(ground.services), *webhooks.routes(service, authorizer))
        yield World(Api(ground, Router(routes, authenticate, authorizer)), carrier)


def a_webhook(**changes: object) -> dict[str, Any]:
    trigger = {"triggerType": "TRIGGER_TYPE_EXPERIMENT_STATE_CHANGE", "condition": {"state": "COMPLETED"}}
    return {
        "name": "hook", "url": "https://example.org/hook", "webhookType": "WEBHOOK_TYPE_DEFAULT",
        "mode": "WEBHOOK_MODE_WORKSPACE", "triggers": [trigger], "workspaceId": 1, **changes,
    }  # fmt: skip


def a_trigger(type: str, **condition: object) -> dict[str, Any]:
    return {"triggers": [{"triggerType": f"TRIGGER_TYPE_{type}", "condition": condition}]}


async def refusal(api: Api, method: str, path: str, body: object = None) -> Refused:
    with pytest.raises(Refused) as caught:
        await api(method, path, body)
    return caught.value


async def test_a_webhook_is_made_shown_changed_tested_and_deleted(world: World) -> None:
    api = world.api
    made = (await api("POST", "/webhooks", a_webhook()))["webhook"]
    assert made == {
        "id": 1, "name": "hook", "url": "https://example.org/hook", "webhookType": "WEBHOOK_TYPE_DEFAULT",
        "mode": "WEBHOOK_MODE_WORKSPACE", "workspaceId": 1,
        "triggers": [{
            "id": 1, "triggerType": "TRIGGER_TYPE_EXPERIMENT_STATE_CHANGE", "condition": {"state": "COMPLETED"},
            "webhookId": 1,
        }],
    }  # fmt: skip
    assert await api("PATCH", "/webhooks/1", {"url": "https://example.org/2"}) == {}
    assert (await api("GET", "/webhooks"))["webhooks"] == [{**made, "url": "https://example.org/2"}]
    assert (await api("GET", "/webhooks/1"))["webhook"]["url"] == "https://example.org/2"
    assert await api("POST", "/webhooks/1/test") == {"completed": True}
    assert [delivery.url for delivery in world.carrier.sent] == ["https://example.org/2"]
    world.carrier.outcome = Never("the receiver answered 404")
    assert "answered 404" in (await refusal(api, "POST", "/webhooks/1/test")).message
    assert await api("GET", "/webhooks/1/dead-letters") == {"deadLetters": []}
    assert await api("POST", "/webhooks/1/dead-letters/retry") == {"count": 0}
    assert await api("DELETE", "/webhooks/1") == {}
    assert (await api("GET", "/webhooks"))["webhooks"] == []
    assert (await refusal(api, "DELETE", "/webhooks/1")).status == 404
    audit = [entry["action"] for entry in (await api("GET", "/audit", action="webhook."))["entries"]]
    assert audit == ["webhook.delete", "webhook.retry", "webhook.change", "webhook.create"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "name: must not be empty"),
        ({"url": "ftp://example.org"}, "url: must be complete"),
        ({"url": "https:///x"}, "url: must be complete"),
        ({"url": "https://example.org:99999/"}, "url:"),
        ({"url": "https://ann:secret@example.org/"}, "url: must hold no user"),
        ({"url": "https://exämple.org/"}, "url: must be of printable ASCII"),
        ({"url": "https://example.org/\r\nx: y"}, "url: must be of printable ASCII"),
        ({"url": "https://example.org/" + "x" * 3000}, "url: must not be longer"),
        ({"url": "http://10.0.0.1/"}, "url: 10.0.0.1 is not a public address"),
        ({"webhookType": "WEBHOOK_TYPE_UNSPECIFIED"}, "webhookType: must be"),
        ({"webhookType": "SLACK"}, "webhookType"),
        ({"triggers": []}, "triggers: name at least one"),
        ({"triggers": [{}] * 21}, "triggers[0].triggerType"),
        (a_trigger("EXPERIMENT_STATE_CHANGE", state="PAUSED"), "triggers[0].condition.state: must be COMPLETED or"),
        (a_trigger("TASK_LOG"), "triggers[0].condition.regex: required"),
        (a_trigger("TASK_LOG", regex="(?<=x)y"), "triggers[0].condition.regex: not a regular expression"),
        (a_trigger("TASK_LOG", regex=["x"]), "triggers[0].condition.regex: must be a text"),
        (a_trigger("CUSTOM"), "triggers[0].triggerType: alerts go to webhooks of mode SPECIFIC"),
        (a_trigger("METRIC_THRESHOLD_EXCEEDED"), "triggers[0].triggerType: TRIGGER_TYPE_METRIC_THRESHOLD_EXCEEDED is"),
        ({"workspaceId": 99}, "workspace 99 not found"),
    ],
)
async def test_what_will_not_do_is_told_with_its_field(world: World, changes: dict[str, Any], message: str) -> None:
    told = await refusal(world.api, "POST", "/webhooks", a_webhook(**changes))
    assert told.status in (400, 404)
    assert message in told.message


async def test_a_name_is_there_once_in_a_workspace(world: World) -> None:
    await world.api("POST", "/webhooks", a_webhook())
    assert (await refusal(world.api, "POST", "/webhooks", a_webhook())).status == 409
    await world.api("POST", "/webhooks", a_webhook(workspaceId=0))
    assert (await refusal(world.api, "POST", "/webhooks", a_webhook(workspaceId=0))).status == 409


async def test_webhooks_are_for_those_who_may_edit_them_where_they_are(world: World) -> None:
    admin = world.api
    await admin("POST", "/workspaces", {"name": "Lab"})
    await admin("POST", "/webhooks", a_webhook(workspaceId=0))
    await admin("POST", "/webhooks", a_webhook(workspaceId=1))
    chief = await admin.new_user("chief", "WorkspaceAdmin", 2)
    made = (await chief("POST", "/webhooks", a_webhook(workspaceId=2)))["webhook"]
    assert [each["id"] for each in (await chief("GET", "/webhooks"))["webhooks"]] == [made["id"]]
    for id in (1, 2):
        assert (await refusal(chief, "GET", f"/webhooks/{id}")).status == 404
        assert (await refusal(chief, "PATCH", f"/webhooks/{id}", {"url": "https://x.org/"})).status == 404
    assert (await refusal(chief, "POST", "/webhooks", a_webhook(workspaceId=0))).status == 403
    editor = await admin.new_user("editor", "Editor", 2)
    assert (await editor("GET", "/webhooks"))["webhooks"] == []
    assert (await refusal(editor, "POST", "/webhooks", a_webhook(workspaceId=2, name="x"))).status == 403
    # A task must not read the addresses, which are secrets of their receivers.
    task = admin.by(Caller(UserId(1), "admin", is_admin=True, allocation="t.1", task="t"))
    assert (await refusal(task, "GET", "/webhooks")).status == 403


async def test_alerts_are_for_tasks_and_for_experiments_that_are_there(world: World) -> None:
    row = {"id": "t", "type": "COMMAND", "user_id": 1, "workspace_id": 1, "created": 0.0}
    await world.api.ground.database.write(lambda connection: connection.execute(insert(TASKS).values(row)))
    task = world.api.by(Caller(UserId(1), "admin", allocation="t.1", task="t"))
    data = {"title": "x", "description": "y", "level": "LOG_LEVEL_INFO"}
    assert await task("POST", "/webhooks/custom", {"experimentId": 0, "trialId": None, "data": data}) == {}
    assert (await refusal(world.api, "POST", "/webhooks/custom", {"experimentId": 5, "data": data})).status == 404
    told = await refusal(task, "POST", "/webhooks/custom", {"data": {**data, "level": "LOUD"}})
    assert "data.level" in told.message
