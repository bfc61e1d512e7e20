"""The server about itself: what it is, its settings, its log, its message."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from muster.accounts.service import Password
from muster.api.raw import Document
from muster.assembly.logging_live import LiveSettings
from muster.server.determined import master, me
from muster.server.determined.authenticating import Credentials
from muster.server.determined.cluster_facts import ClusterFacts
from muster.server.determined.master import About, SsoProvider
from muster.server.determined.router import Router
from muster.settings.sections import PlatformSettings, Security
from muster.store.embedded import EmbeddedStore
from muster.testing import accounts
from muster.testing.accounts import ADMIN, PASSWORD, Ground
from muster.testing.asgi import AsgiClient, Reply
from muster.testing.servers import app_for

CONFIG, LOGS, MESSAGE = "/api/v1/master/config", "/api/v1/master/logs", "/api/v1/master/cluster_message"
PROVIDER = SsoProvider(name="Ours", sso_url="http://x/oidc/ours/sso", type="OIDC", always_redirect=False)


@dataclass(frozen=True)
class Served:
    ground: Ground
    facts: ClusterFacts
    live: LiveSettings
    admin: AsgiClient
    nobody: AsgiClient
    user: AsgiClient

    async def put(self, **body: object) -> Reply:
        return await self.admin.request("PUT", MESSAGE, json={"startTime": "2023-11-14T22:13:20Z", **body})


@pytest.fixture
async def served(tmp_path: Path, store: EmbeddedStore) -> AsyncIterator[Served]:
    live = LiveSettings(PlatformSettings(security=Security(initial_user_password="Secret123")))
    async with accounts.ground(tmp_path) as ground:
        services = ground.services
        await ground.person("ann")
        facts = ClusterFacts(ground.database, ground.clock)
        about = About(await facts.id(), "m", "lab", "1.2", [PROVIDER])
        routes = [*master.routes(about, facts, live, live.ring), *me.routes(services.accounts)]
        app = app_for(store)
        credentials = Credentials(services.accounts.authenticate, "root", ADMIN.caller)
        app.mount(Router(routes, credentials.caller, services.authorizer))
        login = await services.accounts.login("ann", Password(PASSWORD))
        clients = [AsgiClient(app, token) for token in ("root", "", login.token)]
        live.open()
        yield Served(ground, facts, live, *clients)
        live.close()


def refusal(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.json["error"]["error"]


async def test_anybody_may_ask_what_it_is(served: Served) -> None:
    info = (await served.nobody.request("GET", "/info")).json
    assert (info["version"], info["muster_version"]) == ("0.38.1", "1.2")
    assert info["sso_providers"][0]["sso_url"] == PROVIDER.sso_url
    told = (await served.nobody.request("GET", "/api/v1/master")).json
    assert (told["clusterName"], told["masterId"], told["rbacEnabled"]) == ("lab", "m", True)
    assert told["clusterId"] == info["cluster_id"] == await served.facts.id()
    assert told["ssoProviders"][0]["ssoUrl"] == PROVIDER.sso_url


async def test_who_is_logged_in_is_told_who_they_are(served: Served) -> None:
    assert (await served.user.request("GET", "/api/v1/me")).json["user"]["username"] == "ann"
    assert (await served.nobody.request("GET", "/api/v1/me")).status == 401
    served.ground.clock.seconds += 8 * 86_400
    assert (await served.user.request("GET", "/api/v1/me")).status == 401


async def test_settings_logs_and_messages_are_for_administrators(served: Served) -> None:
    for method, path in (("GET", CONFIG), ("PATCH", CONFIG), ("GET", LOGS), ("PUT", MESSAGE), ("DELETE", MESSAGE)):
        assert (await served.user.request(method, path)).status == 403
    assert (await served.user.request("GET", MESSAGE)).json == {"clusterMessage": None}


async def test_settings_are_shown_without_secrets_and_of_the_log_they_change(served: Served) -> None:
    config: Document = (await served.admin.request("GET", CONFIG)).json["config"]
    assert (config["security"]["initial_user_password"], config["log"]["level"]) == ("********", "info")
    wanted = {"config": {"log": {"level": "LOG_LEVEL_DEBUG", "color": False}}, "fieldMask": {"paths": ["log.level"]}}
    assert (await served.admin.request("PATCH", CONFIG, json=wanted)).json == {}
    log = (await served.admin.request("GET", CONFIG)).json["config"]["log"]
    assert log == {"level": "debug", "color": True}
    assert logging.getLogger("muster").level == logging.DEBUG


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"config": {}, "fieldMask": {"paths": ["port"]}}, "fieldMask: port cannot be changed while the server runs"),
        ({"config": {"log": {"level": "LOG_LEVEL_LOUD"}}}, "config.log.level: Invalid enum value"),
        ({"config": {"log": {"level": "LOG_LEVEL_UNSPECIFIED"}}}, "config.log.level: name a level"),
    ],
)
async def test_what_cannot_be_changed_is_named(served: Served, body: Document, told: str) -> None:
    status, said = refusal(await served.admin.request("PATCH", CONFIG, json=body))
    assert status == 400
    assert said.startswith(told)


async def lines(served: Served, query: str) -> list[str]:
    reply = await served.admin.request("GET", f"{LOGS}?{query}")
    decoded = [each for each in reply.body.decode().splitlines() if each]
    return [each.partition('"message":"')[2].partition('"')[0].removeprefix("muster.test: ") for each in decoded]


async def test_the_log_is_told_from_either_end(served: Served) -> None:
    log = logging.getLogger("muster.test")
    for number in range(5):
        log.info("%d", number)
    assert await lines(served, "") == ["0", "1", "2", "3", "4"]
    assert await lines(served, "offset=-2") == ["3", "4"]
    assert await lines(served, "offset=1&limit=2") == ["1", "2"]
    assert await lines(served, "offset=9") == []
    assert await lines(served, "limit=2&follow=true") == ["0", "1"]


async def test_the_log_is_followed_as_it_is_written(served: Served) -> None:
    log = logging.getLogger("muster.test")
    log.info("before")
    async with served.admin.stream(f"{LOGS}?follow=true&limit=3") as following:
        assert b"before" in await following.next()
        log.error("during")
        line = await asyncio.wait_for(following.next(), 5)
        assert b'"level":"LOG_LEVEL_ERROR"' in line
        log.critical("at last")
        assert b"at last" in await asyncio.wait_for(following.next(), 5)
        assert await asyncio.wait_for(following.next(), 5) == b""


async def test_a_message_is_shown_in_its_time_and_then_no_more(served: Served) -> None:
    async def shown() -> str | None:
        found = (await served.nobody.request("GET", "/api/v1/master")).json["clusterMessage"]
        return None if found is None else found["message"]

    served.ground.clock.seconds = 1_700_000_000  # 2023-11-14T22:13:20Z
    assert (await served.put(message="soon", startTime="2023-11-14T22:14:20Z", duration="1d2h")).status == 200
    assert await shown() is None
    told = (await served.user.request("GET", MESSAGE)).json["clusterMessage"]
    assert (told["message"], told["endTime"]) == ("soon", "2023-11-16T00:14:20.000000Z")
    served.ground.clock.seconds += 60
    assert await shown() == "soon"
    served.ground.clock.seconds += 26 * 3600
    assert await shown() is None
    assert (await served.user.request("GET", MESSAGE)).json["clusterMessage"] is None
    await served.put(message="for ever")
    assert await shown() == "for ever"
    await served.admin.request("DELETE", MESSAGE)
    assert await shown() is None


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"message": " "}, "message: required"),
        ({"message": "x" * 251}, "message: must not be longer than 250"),
        ({"message": "m", "startTime": None}, "startTime: required"),
        ({"message": "m", "startTime": "tomorrow"}, "startTime: 'tomorrow' is not a time"),
        ({"message": "m", "endTime": "2023-11-14T22:13:20Z"}, "endTime: must be after startTime"),
        ({"message": "m", "endTime": "2024-11-14T22:13:20Z", "duration": "1h"}, "duration: not together with endTime"),
        ({"message": "m", "duration": "long"}, "duration: 'long' is not a duration"),
        ({"message": "m", "duration": "-1h"}, "duration: must be longer than nothing"),
    ],
)
async def test_a_message_that_will_not_do_is_told_why(served: Served, body: Document, told: str) -> None:
    status, said = refusal(await served.put(**body))
    assert status == 400
    assert said.startswith(told)


async def test_the_clusters_id_stays(served: Served) -> None:
    again = ClusterFacts(served.ground.database, served.ground.clock)
    assert await again.id() == await served.facts.id()
