"""Determined's conventions, route by route: names, numbers, errors, streams, and who may call."""

from collections.abc import AsyncIterator, Mapping, Sequence
from enum import StrEnum

import pytest

from muster.accounts.callers import Caller, UserId, WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import errors
from muster.api.raw import JSON, Document
from muster.server.determined.router import Router
from muster.server.determined.routing import Call, Message, Rule, known, public, route, stream
from muster.server.determined.wire import numbers_as_words
from muster.store.embedded import EmbeddedStore
from muster.testing.asgi import AsgiClient, Reply
from muster.testing.servers import app_for


class Color(StrEnum):
    RED = "COLOR_RED"


class Part(Message, frozen=True):
    part_name: str = ""


class Asked(Message, frozen=True):
    thing_id: int = 0
    timeout_seconds: float = 0
    is_raw: bool = False
    color: Color = Color.RED
    labels: Sequence[str] = ()
    parts: Sequence[Part] = ()
    by_name: Mapping[str, Part] = {}
    config: Mapping[str, JSON] = {}
    workspace_id: int = 0


class Told(Message, frozen=True):
    asked: Asked = Asked()
    note: str | None = None


async def tell(call: Call, asked: Asked) -> Told:
    return Told(asked=asked, note=call.caller.username or None)


async def refuse(call: Call, asked: Asked) -> Told:
    raise errors.NotFound("there is no such thing")


async def fail(call: Call, asked: Asked) -> Told:
    raise RuntimeError("a secret of the inside")


async def count(call: Call, asked: Asked) -> AsyncIterator[Told]:
    for number in range(asked.thing_id):
        yield Told(note=str(number))
    if asked.is_raw:
        raise errors.NotFound("gone meanwhile")


async def workspace(call: Call, asked: Asked) -> WorkspaceId:
    return WorkspaceId(asked.workspace_id)


EDIT: Rule[Asked] = Rule(Permission.EDIT_TASKS, workspace, own="thing_id")
ROUTES = [
    route("GET", "/api/v1/things/{thingId}", Asked, Told, known(), tell),
    route("POST", "/api/v1/things/{thing_id}", Asked, Told, EDIT, tell),
    route("PATCH", "/api/v1/things/{thingId}", Asked, Told, EDIT, tell, body="config"),
    route("GET", "/api/v1/things/special", Asked, Told, known(), refuse),
    route("GET", "/api/v1/things/{thingId}/broken", Asked, Told, known(), fail),
    stream("/api/v1/things/{thingId}/count", Asked, Told, known(), count),
    route("GET", "/info", Asked, Told, public(), tell),
]
USER, TASK = Caller(UserId(1), "ann"), Caller(UserId(1), "ann", allocation="7", task="t")


class Rights:
    """Ann may edit in workspace 3 only."""

    async def check(self, caller: Caller, permission: Permission, workspace: WorkspaceId | None) -> None:
        if workspace != 3:
            raise errors.Forbidden(f"{caller.username} may not {permission}")


async def authenticate(headers: Mapping[str, str]) -> Caller | None:
    return {"Bearer ann": USER, "Bearer task": TASK}.get(headers.get("authorization", ""))


def client_of(store: EmbeddedStore, token: str) -> AsgiClient:
    app = app_for(store)
    app.mount(Router(ROUTES, authenticate, Rights()))
    return AsgiClient(app, token)


@pytest.fixture
def client(store: EmbeddedStore) -> AsgiClient:
    return client_of(store, "ann")


async def asked(client: AsgiClient, body: Document, query: Mapping[str, str] | None = None) -> Document:
    reply = await client.request("POST", "/api/v1/things/5", json={"workspaceId": 3, **body}, query=query)
    assert reply.status == 200, reply.body
    found: Document = reply.json["asked"]
    return found


def told(reply: Reply) -> tuple[int, int, str, str]:
    error = reply.json["error"]
    return reply.status, error["code"], error["reason"], error["error"]


async def test_names_come_in_both_spellings_and_go_out_in_one(client: AsgiClient) -> None:
    for body in (
        {"timeoutSeconds": 2, "isRaw": True, "parts": [{"partName": "a"}], "byName": {"x_y": {"partName": "b"}}},
        {"timeout_seconds": 2, "is_raw": True, "parts": [{"part_name": "a"}], "by_name": {"x_y": {"part_name": "b"}}},
    ):
        found = await asked(client, body)
        assert (found["timeoutSeconds"], found["isRaw"], found["parts"]) == (2, True, [{"partName": "a"}])
        assert found["byName"] == {"x_y": {"partName": "b"}}


async def test_what_is_free_inside_keeps_its_names(client: AsgiClient) -> None:
    config = {"max_slots": 1, "thingId": None, "resources": {"slots_per_trial": 2}}
    assert (await asked(client, {"config": config}))["config"] == config


async def test_null_means_unset_unknown_keys_are_left_out_and_numbers_may_be_text(client: AsgiClient) -> None:
    found = await asked(client, {"timeoutSeconds": None, "color": None, "parts": None, "newer": 1, "workspaceId": "3"})
    assert (found["timeoutSeconds"], found["color"], found["parts"]) == (0, "COLOR_RED", [])


async def test_replies_have_all_their_fields(client: AsgiClient) -> None:
    reply = await client.request("GET", "/info")
    assert reply.json["asked"] == {
        "thingId": 0, "timeoutSeconds": 0, "isRaw": False, "color": "COLOR_RED", "labels": [], "parts": [],
        "byName": {}, "config": {}, "workspaceId": 0,
    }  # fmt: skip
    assert (reply.status, reply.json["note"]) == (200, "ann")


async def test_queries_repeat_what_is_a_list(client: AsgiClient) -> None:
    reply = await client.request("GET", "/api/v1/things/5?labels=a&labels=b&is_raw=true&color=COLOR_RED&other=1")
    found = reply.json["asked"]
    assert (found["thingId"], found["labels"], found["isRaw"]) == (5, ["a", "b"], True)


async def test_a_body_may_be_absent_or_be_one_field(client: AsgiClient) -> None:
    reply = await client.request("PATCH", "/api/v1/things/5?workspace_id=3", json={"thing_id": "inside"})
    assert reply.json["asked"]["config"] == {"thing_id": "inside"}
    assert (await client.request("PATCH", "/api/v1/things/5?workspace_id=3")).json["asked"]["config"] == {}


async def test_what_is_wrong_is_named(client: AsgiClient) -> None:
    for body, said in (
        (b'{"color": "COLOR_MAUVE"}', "color: Invalid enum value 'COLOR_MAUVE'"),
        (b'{"parts": [{"partName": 3}]}', "parts[0].partName: Expected `str`, got `int`"),
        (b"[1]", "the body: expected an object, found list"),
        (b"{", "the body is not JSON"),
    ):
        status, code, reason, message = told(await client.request("POST", "/api/v1/things/5", body=body))
        assert (status, code, reason) == (400, 3, "BadRequest")
        assert message.startswith(said)
    assert told(await client.request("GET", "/api/v1/things/x"))[3] == "thingId: Expected `int`, got `str`"


async def test_named_segments_come_first_and_errors_have_grpcs_codes(client: AsgiClient) -> None:
    assert told(await client.request("GET", "/api/v1/things/special")) == (
        404, 5, "NotFound", "there is no such thing",
    )  # fmt: skip
    assert told(await client.request("DELETE", "/api/v1/things/5"))[:3] == (405, 12, "MethodNotAllowed")
    assert told(await client.request("GET", "/api/v1/nothing")) == (
        404, 5, "NotFound", "nothing is served at /api/v1/nothing; /docs/api lists what is",
    )  # fmt: skip


async def test_what_fails_inside_stays_inside(client: AsgiClient) -> None:
    reply = await client.request("GET", "/api/v1/things/5/broken")
    assert told(reply)[:3] == (500, 13, "InternalError")
    assert b"secret" not in reply.body


async def test_streams_are_lines_and_an_error_in_the_middle_is_the_last(client: AsgiClient) -> None:
    reply = await client.request("GET", "/api/v1/things/2/count?is_raw=true")
    lines = reply.body.decode().splitlines()
    assert reply.status == 200
    assert [line.startswith('{"result":{') for line in lines] == [True, True, False]
    assert lines[2] == '{"error":{"grpcCode":5,"httpCode":404,"message":"gone meanwhile"}}'
    assert reply.body.endswith(b"}\n")
    assert told(await client.request("GET", "/api/v1/things/0/count?is_raw=true"))[:2] == (404, 5)
    assert (await client.request("GET", "/api/v1/things/0/count")).body == b""


async def test_who_is_unknown_may_only_call_what_is_public(client: AsgiClient, store: EmbeddedStore) -> None:
    nobody = client_of(store, "")
    assert (await nobody.request("GET", "/info")).json["note"] is None
    assert told(await nobody.request("GET", "/api/v1/things/5"))[:2] == (401, 16)


async def test_rights_are_asked_in_the_workspace_that_it_is_about(client: AsgiClient) -> None:
    refused = await client.request("POST", "/api/v1/things/5", json={"workspaceId": 4})
    assert told(refused) == (403, 7, "Forbidden", "ann may not edit tasks")


async def test_a_task_may_do_what_concerns_itself(store: EmbeddedStore) -> None:
    task = client_of(store, "task")
    assert (await task.request("POST", "/api/v1/things/7")).status == 200
    assert told(await task.request("POST", "/api/v1/things/8"))[:2] == (403, 7)


def test_two_routes_of_one_path_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="two routes for GET /info"):
        Router([*ROUTES, ROUTES[-1]], authenticate, Rights())


def test_numbers_that_are_none_travel_as_words() -> None:
    nan, infinity = float("nan"), float("inf")
    assert numbers_as_words({"a": [nan, infinity, -infinity, 1.5]}) == {"a": ["NaN", "Infinity", "-Infinity", 1.5]}


async def test_what_is_refused_is_on_record_without_what_was_sent(store: EmbeddedStore) -> None:
    noted: list[tuple[str, str, str, str]] = []
    app = app_for(store)
    app.mount(Router(ROUTES, authenticate, Rights(), lambda by, *told: noted.append((by.caller.username, *told))))
    path = "/api/v1/things/5"
    ann, stranger = AsgiClient(app, "ann"), AsgiClient(app, "forged")
    await ann.request("POST", path, json={"workspaceId": 4})
    await ann.request("POST", path, json={"workspaceId": "s3cret"})
    await stranger.request("GET", path)
    await AsgiClient(app, "").request("GET", path)
    await ann.request("GET", f"{path}/nothing")
    assert noted == [
        ("ann", "request.forbidden", f"POST {path}", f"ann may not {Permission.EDIT_TASKS}"),
        ("ann", "request.invalid", f"POST {path}", "BadRequest"),
        ("", "request.unknown", f"GET {path}", "Unauthorized"),
    ]
