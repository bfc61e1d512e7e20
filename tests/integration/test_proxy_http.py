"""The proxy over HTTP: what goes through, what is kept back, what is said when nothing answers."""

import asyncio
import base64
import gzip
import hashlib
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio
from tests.integration.proxy_world import World, world
from yarl import URL

from muster.server.proxy.exchanges import Timeouts
from muster.tasks.contract import ProxyPort

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[World]:
    async with world() as found:
        yield found


@pytest.fixture
def at(shared: World) -> World:
    shared.reset()
    return shared


async def test_a_request_goes_on_as_it_is(at: World) -> None:
    url = URL(f"{at.url}/proxy/notebook/api%2Fx/../y%20z?a=1&b=%26&token=not-ours", encoded=True)
    async with at.client.put(url, headers={**at.headers(), "X-Mine": "1"}, data=b"body") as reply:
        assert (reply.status, await reply.text()) == (200, "PUT 4")
        assert reply.headers["X-Own"] == "kept"
    assert at.seen.path == "/proxy/notebook/api%2Fx/../y%20z?a=1&b=%26&token=not-ours"
    assert (at.seen.method, at.seen.body, at.seen.headers["x-mine"]) == ("PUT", b"body", "1")


async def test_the_service_learns_who_asks_from_us_alone(at: World) -> None:
    lies = {"X-Forwarded-For": "6.6.6.6", "X-Forwarded-Host": "evil", "X-Real-IP": "6.6.6.6", "Forwarded": "for=6"}
    async with at.client.get(f"{at.url}/proxy/notebook/", headers={**at.headers(), **lies}) as reply:
        assert reply.status == 200
    seen = at.seen.headers
    assert seen["host"] == seen["x-forwarded-host"] == at.url.removeprefix("http://")
    assert (seen["x-forwarded-for"], seen["x-forwarded-proto"]) == ("127.0.0.1", "http")
    assert seen["x-forwarded-prefix"] == "/proxy/notebook"
    assert "x-real-ip" not in seen
    assert "forwarded" not in seen


async def test_headers_of_the_connection_stay_behind(at: World) -> None:
    sent = {"Connection": "close, x-secret", "X-Secret": "1", "Keep-Alive": "1", "TE": "trailers", "Upgrade": "h2c"}
    async with at.client.get(f"{at.url}/proxy/notebook/", headers={**at.headers(), **sent}) as reply:
        assert reply.status == 200
    assert not {"x-secret", "keep-alive", "te", "upgrade", "proxy-connection"} & set(at.seen.headers)


async def test_a_task_does_not_get_the_session_of_who_looks_at_it(at: World) -> None:
    async with at.client.get(f"{at.url}/proxy/notebook/", headers=at.headers()) as reply:
        assert reply.status == 200
    assert not set(at.headers().values()) & set(at.seen.headers.values())
    cookies = {"Cookie": "auth=editor; _xsrf=1; other=2"}
    async with at.client.get(f"{at.url}/proxy/notebook/", headers=cookies) as reply:
        assert reply.status == 200
    assert at.seen.headers["cookie"] == "_xsrf=1; other=2"
    async with at.client.get(f"{at.url}/proxy/open/", headers={**at.headers(), "Cookie": "auth=editor"}) as reply:
        assert reply.status == 200
    assert "authorization" not in at.seen.headers
    assert "cookie" not in at.seen.headers


@pytest.mark.parametrize("scheme", ["Bearer editor", "Basic " + base64.b64encode(b"admin:editor").decode()])
async def test_nor_does_it_where_they_came_in_by_other_means(at: World, scheme: str) -> None:
    token, session = at.tokens.of("notebook"), {"Authorization": scheme}
    for query, headers in (({"token": token}, {}), ({}, {"Cookie": f"muster-proxy-token={token}"}), ({}, None)):
        service = "open" if headers is None else "notebook"
        async with at.client.get(
            f"{at.url}/proxy/{service}/", params=query, headers={**session, **(headers or {})}
        ) as reply:
            assert reply.status == 200
        assert scheme not in at.seen.headers.values()
    meant = {"Authorization": "Basic " + base64.b64encode(b"me:of-the-service").decode()}
    async with at.client.get(f"{at.url}/proxy/notebook/", params={"token": token}, headers=meant) as reply:
        assert reply.status == 200
    assert at.seen.headers["authorization"] == meant["Authorization"]


async def test_a_reply_that_needs_no_body_keeps_the_connection(at: World) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\nETag: x\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        at.table.open("notebook", "notebook.1", "127.0.0.1", [ProxyPort(port, is_default=True)])
        request = b"GET /proxy/notebook/ HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer editor\r\n%b\r\n"
        answers = await at.raw(request % b"" + request % b"Connection: close\r\n")
    assert answers.count(b"HTTP/1.1 304") == 2
    assert b"content-length" not in answers


async def test_cookies_of_a_service_are_for_itself_and_never_ours(at: World) -> None:
    async with at.client.get(f"{at.url}/proxy/notebook/", headers=at.headers()) as reply:
        assert reply.headers.getall("Set-Cookie") == [
            "session=1; HttpOnly; Path=/proxy/notebook/",
            "deep=1; Path=/proxy/notebook/lab",
        ]
        assert "Service-Worker-Allowed" not in reply.headers
        assert "Clear-Site-Data" not in reply.headers


@pytest.mark.parametrize(
    ("to", "told"),
    [
        ("/proxy/notebook/lab", "/proxy/notebook/lab"),
        ("http://SELF/proxy/notebook/lab?x=1#y", "/proxy/notebook/lab?x=1#y"),
        ("https://elsewhere.org/x", "https://elsewhere.org/x"),
        ("lab", "lab"),
    ],
)
async def test_redirects_are_only_changed_where_they_name_the_inside(at: World, to: str, told: str) -> None:
    query = {"to": to, "self": f"127.0.0.1:{at.http_port}"}
    async with at.client.get(
        f"{at.url}/proxy/notebook/redirect", params=query, headers=at.headers(), allow_redirects=False
    ) as reply:
        assert (reply.status, reply.headers["Location"]) == (302, told)


async def test_a_service_without_its_slash_is_sent_to_it(at: World) -> None:
    async with at.client.get(f"{at.url}/proxy/notebook?token=x", allow_redirects=False) as reply:
        assert (reply.status, reply.headers["Location"]) == (307, "/proxy/notebook/?token=x")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_methods(at: World, method: str) -> None:
    async with at.client.request(method, f"{at.url}/proxy/notebook/x", headers=at.headers()) as reply:
        assert reply.status == 200
        assert await reply.text() == ("" if method == "HEAD" else f"{method} 0")
    assert at.seen.method == method
    assert "transfer-encoding" not in at.seen.headers


# Bodies


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_large_body_goes_in(at: World, is_chunked: bool) -> None:
    block, blocks = b"0123456789abcdef" * 65536, 24

    async def body() -> AsyncIterator[bytes]:
        for _ in range(blocks):
            yield block

    headers = at.headers() if is_chunked else {**at.headers(), "Content-Length": str(len(block) * blocks)}
    async with at.client.post(f"{at.url}/proxy/notebook/hash", headers=headers, data=body()) as reply:
        found = await reply.json()
    assert found == {"sha": hashlib.sha256(block * blocks).hexdigest(), "size": len(block) * blocks}


@pytest.mark.parametrize("how", ["length", "size"])
async def test_a_large_reply_comes_out(at: World, how: str) -> None:
    size = 32 * 1024 * 1024
    async with at.client.get(f"{at.url}/proxy/notebook/large?{how}={size}", headers=at.headers()) as reply:
        assert ("Content-Length" in reply.headers) == (how == "length")
        got = 0
        async for chunk in reply.content.iter_any():
            got += len(chunk)
    assert got == size


async def test_a_reader_that_stops_stops_the_service_too(at: World) -> None:
    reader, writer = await asyncio.open_connection(*at.address, limit=65536)
    writer.write(
        b"GET /proxy/notebook/large?size=400000000 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer editor\r\n\r\n"
    )
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    await asyncio.sleep(0.5)
    before = at.seen.count
    await asyncio.sleep(0.3)
    assert at.seen.count == before < 40_000_000  # what sockets hold, and no more
    writer.close()


async def test_what_is_compressed_stays_so(at: World) -> None:
    packed = gzip.compress(b"hello" * 1000)
    headers = {**at.headers(), "Content-Encoding": "gzip", "Accept-Encoding": "br"}
    async with at.client.post(f"{at.url}/proxy/notebook/x", headers=headers, data=packed) as reply:
        assert reply.status == 200
    assert at.seen.raw_headers.count(("accept-encoding", "br")) == 1


async def test_events_come_as_they_are_sent_and_stop_when_the_client_leaves(at: World) -> None:
    async with at.client.get(f"{at.url}/proxy/notebook/slowly", headers=at.headers()) as reply:
        assert await reply.content.readline() == b"data: 0\n"
        assert at.proxy.connections("notebook") == 1
    async with asyncio.timeout(5):
        while at.seen.count != -1 or at.proxy.connections("notebook"):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("query", ["", "?length=1"])
async def test_a_reply_that_breaks_off_is_not_taken_for_whole(at: World, query: str) -> None:
    with pytest.raises(aiohttp.ClientPayloadError):
        async with at.client.get(f"{at.url}/proxy/notebook/broken{query}", headers=at.headers()) as reply:
            await reply.read()


# When nothing answers


async def test_a_service_that_is_not_up(at: World) -> None:
    async with at.client.get(f"{at.url}/proxy/notebook:1/", headers=at.headers()) as reply:
        assert (reply.status, reply.headers["Retry-After"]) == (502, "3")
        assert "may still be starting" in (await reply.json())["error"]["error"]
    async with at.client.get(f"{at.url}/proxy/notebook:1/", headers={**at.headers(), "Accept": "text/html"}) as reply:
        page = await reply.text()
        assert (reply.status, reply.content_type) == (502, "text/html")
        assert 'http-equiv="refresh"' in page


async def test_a_service_that_is_slow(at: World) -> None:
    async with at.client.get(f"{at.url}/proxy/notebook/never", headers=at.headers()) as reply:
        assert reply.status == 504


async def test_a_server_that_closes_does_not_wait_for_streams() -> None:
    async with world(Timeouts(idle=30.0)) as at, asyncio.timeout(10):
        reply = await at.client.get(f"{at.url}/proxy/notebook/slowly", headers=at.headers())
        await reply.content.readline()
        at.proxy.close()
        with pytest.raises(aiohttp.ClientPayloadError):
            await reply.read()


# Who may


@pytest.mark.parametrize(
    ("service", "token", "status"),
    [
        ("notebook", "editor", 200),
        ("notebook", "viewer", 403),  # who is in somebody's notebook runs code as they
        ("board", "viewer", 200),
        ("notebook", "stranger", 403),
        ("board", "stranger", 403),
        ("notebook", "own-allocation", 200),
        ("notebook", "foreign-allocation", 403),
        ("notebook", "nobody", 401),
        ("notebook", "", 401),
        ("open", "", 200),
        ("open", "nobody", 200),
    ],
)
async def test_who_may(at: World, service: str, token: str, status: int) -> None:
    headers = at.headers(token) if token else {}
    async with at.client.get(f"{at.url}/proxy/{service}/", headers=headers) as reply:
        assert reply.status == status
    assert at.seen.count == (1 if status == 200 else 0)


async def test_a_notebook_s_own_token(at: World) -> None:
    token = at.tokens.of("notebook")
    for headers in ({"Authorization": f"token {token}"}, {"Cookie": f"muster-proxy-token={token}"}):
        async with at.client.get(f"{at.url}/proxy/notebook/", headers=headers) as reply:
            assert reply.status == 200
    async with at.client.get(f"{at.url}/proxy/notebook/lab", params={"token": token}) as reply:
        assert reply.status == 200
        own = reply.headers.getall("Set-Cookie")[-1]
        assert own == f"muster-proxy-token={token}; Path=/proxy/notebook/; HttpOnly; SameSite=Lax"
    assert at.seen.path.endswith(f"token={token}")  # Jupyter asks for it as well
    for service, wrong in (("notebook", at.tokens.of("board")), ("board", token), ("notebook", token[:-1])):
        async with at.client.get(f"{at.url}/proxy/{service}/", params={"token": wrong}) as reply:
            assert reply.status == 401


async def test_a_page_of_another_site_cannot_use_a_session(at: World) -> None:
    for cookies in ("auth=editor", f"muster-proxy-token={at.tokens.of('notebook')}"):
        headers = {"Cookie": cookies, "Origin": "https://evil.org"}
        async with at.client.post(f"{at.url}/proxy/notebook/api/x", headers=headers) as reply:
            assert reply.status == 403
        headers["Origin"] = at.url
        async with at.client.post(f"{at.url}/proxy/notebook/api/x", headers=headers) as reply:
            assert reply.status == 200


async def test_a_session_that_was_put_before_another_is_not_believed(at: World) -> None:
    for cookies, status in (("auth=editor; auth=viewer", 401), ("auth=editor; x=1; auth=editor", 200)):
        async with at.client.get(f"{at.url}/proxy/notebook/", headers={"Cookie": cookies}) as reply:
            assert reply.status == status


# What is not there


@pytest.mark.parametrize(
    "service",
    ["gone", "notebook:2", "notebook:0", "notebook:99999", "127.0.0.1:1", "127.0.0.1", "localhost", "board:1", "cloud"],
)
async def test_only_what_was_declared_can_be_reached(at: World, service: str) -> None:
    async with at.client.get(f"{at.url}/proxy/{service}/", headers=at.headers()) as reply:
        assert reply.status == 404


async def test_a_port_by_its_number_and_a_colon_that_is_encoded(at: World) -> None:
    for colon in (":", "%3A"):
        url = URL(f"{at.url}/proxy/notebook{colon}{at.http_port}/x", encoded=True)
        async with at.client.get(url, headers=at.headers()) as reply:
            assert reply.status == 200


async def test_a_task_that_is_over_is_not_there_any_more(at: World) -> None:
    at.table.close("notebook.1")
    async with at.client.get(f"{at.url}/proxy/notebook/", params={"token": at.tokens.of("notebook")}) as reply:
        assert reply.status == 404


async def test_only_who_was_let_in_keeps_a_task_from_being_idle(at: World) -> None:
    started = at.table.last_requested("notebook")
    async with at.client.get(f"{at.url}/proxy/notebook/") as reply:
        assert reply.status == 401
    assert at.table.last_requested("notebook") == started
    async with at.client.get(f"{at.url}/proxy/notebook/", headers=at.headers()) as reply:
        assert reply.status == 200
    assert started is not None
    assert (at.table.last_requested("notebook") or 0) > started


async def test_a_page_that_refuses_does_not_repeat_markup(at: World) -> None:
    headers = {"Accept": "text/html"}
    async with at.client.get(URL(f"{at.url}/proxy/<script>x</script>/", encoded=False), headers=headers) as reply:
        assert "<script>" not in await reply.text()
        assert reply.status == 404


async def test_a_notebook_that_asks_on_its_own_is_told_the_token_of_its_address(at: World) -> None:
    at.table.open("notebook", "notebook.1", "127.0.0.1", [ProxyPort(at.http_port, is_default=True)])
    async with at.client.get(f"{at.url}/proxy/notebook/", headers=at.headers()) as reply:
        assert reply.status == 200
    told = at.seen.headers["authorization"]
    assert told.startswith("token ")
    assert told not in at.headers().values()
