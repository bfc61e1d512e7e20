"""The routes of a running task: what it may say of itself, what users may, and what nobody may."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.tasks.service_worlds import ID, PART, Life, World, alive

from muster.accounts.callers import Caller, UserId, WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import errors
from muster.runtime.clock import VirtualClock
from muster.server.determined import allocations
from muster.server.determined.router import Router
from muster.server.exchange import Query, Request, Response
from muster.tasks.allocation_states import Signal
from muster.testing.virtual import on_virtual_time

TASK = Caller(UserId(1), "ann", allocation="t.1", task="t")
OTHER = Caller(UserId(1), "ann", allocation="u.1", task="u")
USER = Caller(UserId(1), "ann")
VIEWER = Caller(UserId(2), "bob")


class Rights:
    async def check(self, caller: Caller, permission: Permission, workspace: WorkspaceId | None) -> None:
        if caller is VIEWER and permission is not Permission.VIEW_TASKS:
            raise errors.Forbidden("bob may only look")


class Api:
    def __init__(self, life: Life) -> None:
        self.life = life
        self.caller: Caller | None = TASK
        self._router = Router(allocations.routes(life.harness, life.world.database), self._who, Rights())

    async def _who(self, headers: Mapping[str, str]) -> Caller | None:
        return self.caller

    async def __call__(self, method: str, path: str, body: object = None, query: str = "") -> tuple[int, Any]:
        sent = b"" if body is None else json.dumps(body).encode()

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": sent, "more_body": False}

        request = Request(method, f"/api/v1/allocations/{path}", Query(query.encode()), {}, "1", receive, "10.0.0.1")
        response = await self._router.answer(request)
        assert isinstance(response, Response)
        return response.status, json.loads(response.body)


@asynccontextmanager
async def an_api(clock: VirtualClock) -> AsyncIterator[Api]:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await life.start(is_preemptible=True)
        await clock.sleep(1)
        yield Api(life)


@on_virtual_time
async def test_a_life_as_the_harness_leads_it(clock: VirtualClock) -> None:
    async with an_api(clock) as api:
        data = {
            "containerId": "c", "acceleratorType": "cuda", "acceleratorUuids": ["GPU-1"], "allocationId": "t.1",
            "nodeName": "n1", "taskId": "t",
        }  # fmt: skip
        assert await api("POST", "t.1/acceleratorData", {"allocationId": "t.1", "acceleratorData": data}) == (200, {})
        assert await api("GET", f"t.1/resources/{PART}/rendezvous") == (
            200,
            {"rendezvousInfo": {"addresses": ["127.0.0.1"], "rank": 0, "slots": [0]}},
        )
        gathered = {"allocationId": "t.1", "requestUuid": "x", "numPeers": 1, "data": {"request_uuid": "x"}}
        assert await api("POST", "t.1/all_gather", gathered) == (200, {"data": [{"request_uuid": "x"}]})
        assert await api("POST", "t.1/proxy_address", {"proxyAddress": "127.0.0.1"}) == (200, {})
        for path in ("t.1/waiting", "t.1/ready", f"t.1/resources/{PART}/daemon"):
            assert await api("POST", path) == (200, {})
        assert (await api("POST", "t.1/notify_container_running", gathered))[0] == 200
        assert await api("GET", "t.1/signals/preemption", query="timeout_seconds=0") == (200, {"preempt": False})
        polled = asyncio.create_task(api("GET", "t.1/signals/preemption", query="timeout_seconds=60"))
        await clock.sleep(10)
        assert not polled.done()
        await api.life.service.signal(ID, Signal.PREEMPT, "room")
        assert await polled == (200, {"preempt": True})
        assert await api("POST", "t.1/signals/ack_preemption") == (200, {})
        api.life.finish()
        await clock.sleep(1)
        assert await api("GET", "t.1/signals/preemption", query="timeout_seconds=60") == (200, {"preempt": False})
        status, found = await api("GET", "t.1")
        allocation = found["allocation"]
        assert (status, allocation["state"], allocation["isReady"]) == (200, "STATE_TERMINATED", True)
        assert allocation["exitReason"] == "allocation preempted after room"
        assert (allocation["statusCode"], allocation["startTime"][:4]) == (0, "2023")


@on_virtual_time
async def test_a_poll_that_hears_nothing_ends_in_time(clock: VirtualClock) -> None:
    async with an_api(clock) as api:
        before = clock.monotonic()
        assert await api("GET", "t.1/signals/preemption", query="timeout_seconds=60") == (200, {"preempt": False})
        assert clock.monotonic() - before == pytest.approx(60)
        assert (await api("GET", "t.1/signals/preemption", query="timeout_seconds=-5"))[0] == 200
        assert (await api("GET", "t.1/signals/preemption", query="timeout_seconds=soon"))[0] == 400


ROUTES = [
    (route.method, route.path.removeprefix("/api/v1/allocations/").replace("{allocationId}", "t.1"))
    for route in allocations.routes(None, None)  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_another_task_may_not_speak_for_this_one(method: str, path: str) -> None:
    @on_virtual_time
    async def test(clock: VirtualClock) -> None:
        async with an_api(clock) as api:
            api.caller = OTHER
            assert (await api(method, path.replace("{resourcesId}", PART)))[0] == 403
            api.caller = None
            assert (await api(method, path.replace("{resourcesId}", PART)))[0] == 401
            api.caller = VIEWER
            expected = 200 if path in ("t.1", "t.1/signals/preemption") else 403
            assert (await api(method, path.replace("{resourcesId}", PART)))[0] == expected

    test()


@on_virtual_time
async def test_what_is_wrong_is_named(clock: VirtualClock) -> None:
    async with an_api(clock) as api:
        for path, body, field in (
            ("t.1/proxy_address", {"proxyAddress": "10.1.2.3"}, "proxyAddress"),
            ("t.1/all_gather", {"numPeers": 2}, "requestUuid"),
            ("t.1/all_gather", {"requestUuid": "x"}, "numPeers"),
            ("t.1/all_gather", {"requestUuid": "x", "numPeers": "many"}, "numPeers"),
            ("t.1/acceleratorData", {"acceleratorData": {"acceleratorUuids": ["x"] * 2000}}, "acceleratorUuids"),
            ("t.1/resources/other/daemon", None, "resourcesId"),
        ):
            status, found = await api("POST", path, body)
            assert (status, field in found["error"]["error"]) == (400, True), found
        api.caller = USER
        assert (await api("POST", "none.1/ready"))[0] == 404
        assert (await api("GET", "none.1"))[0] == 404
        assert (await api("GET", "t.1"))[1]["allocation"]["state"] == "STATE_RUNNING"
