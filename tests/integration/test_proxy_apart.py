"""Services of tasks at a port of their own: pages are there and nowhere else, programs are served at both."""

import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from tests.integration.proxy_world import World, world

from muster.api import errors
from muster.assembly.configured import ServeSettings
from muster.assembly.whole import without_nodes
from muster.runtime.clock import SystemClock
from muster.server.listening import listening
from muster.server.proxy.apart import Alone, Elsewhere
from muster.settings.sections import PlatformSettings, Proxy, Security
from muster.store.embedded import EmbeddedStore
from muster.testing.servers import app_for

PATH = "/proxy/notebook/lab?token=a%20b&x=1"


@pytest.fixture
async def at() -> AsyncIterator[tuple[World, str, str]]:
    """The tasks, the server's own address, and that of their pages."""
    async with (
        world() as found,
        listening(Alone(found.proxy)) as pages,
        EmbeddedStore.in_memory(clock=SystemClock()) as store,
    ):
        app = app_for(store)
        app.mount(proxy=Elsewhere(found.proxy, int(pages.rpartition(":")[2])))
        async with listening(app, on_close=app.close) as url:
            yield found, url, pages


@pytest.mark.parametrize(
    "sent",
    [
        {"Cookie": "auth=editor"},
        {"Cookie": "auth=editor", "Authorization": "Basic YTpi"},
        {"Cookie": "auth=editor", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"},
        {},
    ],
)
async def test_what_may_become_a_page_is_sent_to_where_pages_are(
    at: tuple[World, str, str], sent: dict[str, str]
) -> None:
    tasks, url, pages = at
    for method in ("GET", "POST"):
        async with tasks.client.request(method, f"{url}{PATH}", headers=sent, allow_redirects=False) as reply:
            assert (reply.status, reply.headers["Location"]) == (307, f"{pages}{PATH}")
    assert tasks.seen.count == 0
    async with tasks.client.get(f"{url}/proxy/open/", headers=sent, allow_redirects=False) as reply:
        assert reply.status == 307


async def test_pages_are_served_at_their_own_port_to_who_is_logged_in(at: tuple[World, str, str]) -> None:
    tasks, _, pages = at
    async with tasks.client.get(f"{pages}/proxy/notebook/lab", headers={"Cookie": "auth=editor"}) as reply:
        assert reply.status == 200
    async with tasks.client.get(f"{pages}/proxy/notebook/lab") as reply:
        assert reply.status == 401
    for path in ("/api/v1/me", "/k8s/api", "/version", "/"):
        async with tasks.client.get(f"{pages}{path}", headers=tasks.headers()) as reply:
            assert reply.status == 404
    with pytest.raises(aiohttp.WSServerHandshakeError, match="404"):
        await tasks.client.ws_connect(f"{pages}/api/v1/x")


async def test_programs_and_sockets_are_served_at_the_servers_own_address(at: tuple[World, str, str]) -> None:
    tasks, url, _ = at
    own = {"Grpc-Metadata-x-allocation-token": "Bearer own-allocation"}
    for headers in (tasks.headers(), own, {"Authorization": f"token {tasks.tokens.of('notebook')}"}):
        async with tasks.client.get(f"{url}/proxy/notebook/", headers=headers, allow_redirects=False) as reply:
            assert reply.status == 200
    async with tasks.client.ws_connect(f"{url}/proxy/shell/") as socket:
        await socket.send_bytes(b"hello")
        assert await socket.receive_bytes() == b"hello"


@pytest.mark.parametrize(
    ("host", "told"), [("a b", ""), ("[::1", ""), ("[::1]:80", "http://[::1]:"), ("a:80", "http://a:")]
)
async def test_they_are_sent_to_the_host_by_which_they_came(at: tuple[World, str, str], host: str, told: str) -> None:
    tasks, url, pages = at
    async with tasks.client.get(f"{url}{PATH}", headers={"Host": host}, allow_redirects=False) as reply:
        assert reply.status == (307 if told else 400)
        assert reply.headers.get("Location", "") == (f"{told}{pages.rpartition(':')[2]}{PATH}" if told else "")


async def test_where_browsers_come_through_another_server_they_are_sent_back_to_it(at: tuple[World, str, str]) -> None:
    tasks, _, _ = at
    async with EmbeddedStore.in_memory(clock=SystemClock()) as store:
        app = app_for(store)
        app.mount(proxy=Elsewhere(tasks.proxy, 1, "https://muster.example.org:8443/"))
        async with (
            listening(app) as url,
            tasks.client.get(f"{url}{PATH}", allow_redirects=False) as reply,
        ):
            assert reply.headers["Location"] == f"https://muster.example.org:8443{PATH}"


async def test_a_platform_shows_them_at_the_port_that_is_set(tmp_path: Path) -> None:
    settings = PlatformSettings(port=0, proxy=Proxy(port=0), security=Security(initial_user_password="Testing-123"))
    async with (
        without_nodes(ServeSettings(tmp_path, settings)) as platform,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as client,
    ):
        login = {"username": "admin", "password": "Testing-123"}
        async with client.post(f"{platform.url}/api/v1/auth/login", json=login) as reply:
            assert reply.status == 200
        async with client.get(f"{platform.url}/proxy/nothing/", allow_redirects=False) as reply:
            pages = reply.headers["Location"].removesuffix("/proxy/nothing/")
        assert pages.startswith("http://127.0.0.1:")
        assert pages != platform.url
        async with client.get(f"{pages}/proxy/nothing/") as reply:
            assert reply.status == 404
        # The session goes to both, as browsers have it; but what a page there may do is nothing.
        from_a_page = {"Origin": pages, "Sec-Fetch-Site": "same-site"}
        async with client.post(f"{platform.url}/api/v1/auth/logout", headers=from_a_page) as reply:
            assert reply.status == 403
        async with client.get(f"{platform.url}/api/v1/me", headers=from_a_page) as reply:
            assert reply.status == 200
            assert not [name for name in reply.headers if name.lower().startswith("access-control")]


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = PlatformSettings(port=0, proxy=Proxy(port=port))
        with pytest.raises(errors.BadRequest, match=rf"proxy\.port: cannot listen on 127\.0\.0\.1:{port}"):
            async with without_nodes(ServeSettings(tmp_path, settings)):
                pass
