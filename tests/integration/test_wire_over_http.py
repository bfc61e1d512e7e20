"""The conventions of the API on a real connection: what the client and tasks send, and what they must see."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from urllib.parse import urlsplit

import aiohttp
import pytest

from muster.accounts.callers import Caller, UserId, WorkspaceId
from muster.accounts.permissions import Permission
from muster.runtime.clock import SystemClock
from muster.server import exchange
from muster.server.determined import router as routers
from muster.server.determined.authenticating import Credentials
from muster.server.determined.router import Router
from muster.server.determined.routing import Call, Message, known, large, long_poll, public, route, stream
from muster.server.listening import listening
from muster.store.embedded import EmbeddedStore
from muster.testing.servers import app_for

ANN = Caller(UserId(2), "ann")
TASK = Caller(UserId(2), "ann", allocation="a.1", task="a")
MANY = 24 * 1024 * 1024


class Asked(Message, frozen=True):
    text: str = ""
    numbers: Sequence[float] = ()
    count: int = 0
    timeout_seconds: float = 0


class Told(Message, frozen=True):
    size: int = 0
    who: str = ""
    numbers: Sequence[float] = ()
    note: str | None = None


class Handlers:
    def __init__(self) -> None:
        self.waiting, self.left = asyncio.Event(), asyncio.Event()

    async def tell(self, call: Call, asked: Asked) -> Told:
        return Told(size=len(asked.text), who=call.caller.username, numbers=asked.numbers)

    async def wait(self, call: Call, asked: Asked) -> Told:
        self.waiting.set()
        try:
            await asyncio.sleep(asked.timeout_seconds)
        except asyncio.CancelledError:
            self.left.set()
            raise
        return Told(note="nothing happened")

    async def follow(self, call: Call, asked: Asked) -> AsyncIterator[Told]:
        for number in range(asked.count):
            yield Told(size=number)
            await asyncio.sleep(0)
        if asked.timeout_seconds:
            await asyncio.sleep(asked.timeout_seconds)


class Anything:
    async def check(self, caller: Caller, permission: Permission, workspace: WorkspaceId | None) -> None: ...


async def lookup(token: str) -> Caller | None:
    return {"ann-token": ANN, "task-token": TASK}.get(token)


@asynccontextmanager
async def served(handlers: Handlers) -> AsyncIterator[str]:
    credentials = Credentials(lookup, "root-token", Caller(UserId(1), "admin", is_admin=True))
    routes = [
        route("GET", "/api/v1/things", Asked, Told, known(), handlers.tell),
        large(route("POST", "/api/v1/things", Asked, Told, known(), handlers.tell)),
        route("POST", "/api/v1/small", Asked, Told, known(), handlers.tell),
        route("POST", "/api/v1/public", Asked, Told, public(), handlers.tell),
        long_poll(route("GET", "/api/v1/wait", Asked, Told, known(), handlers.wait)),
        stream("/api/v1/lines", Asked, Told, known(), handlers.follow),
    ]
    async with EmbeddedStore.in_memory(clock=SystemClock()) as store:
        app = app_for(store)
        app.mount(Router(routes, credentials.caller, Anything()))
        async with listening(app, on_close=app.close) as url:
            yield url


@pytest.fixture
def handlers() -> Handlers:
    return Handlers()


@pytest.fixture
async def url(handlers: Handlers) -> AsyncIterator[str]:
    async with served(handlers) as found:
        yield found


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer ann-token"}) as found:
        yield found


async def test_a_stream_is_chunked_with_one_object_in_each_chunk(url: str) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(b"GET /api/v1/lines?count=3 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ann-token\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"transfer-encoding: chunked" in head.lower()
    chunks = []
    while size := int(await reader.readline(), 16):
        chunks.append(await reader.readexactly(size))
        assert await reader.readexactly(2) == b"\r\n"
    assert [json.loads(chunk)["result"]["size"] for chunk in chunks] == [0, 1, 2]
    assert all(chunk.endswith(b"}\n") and chunk.count(b"\n") == 1 for chunk in chunks)
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("content_type", [None, "application/x-www-form-urlencoded", "text/plain", "nonsense"])
async def test_the_body_is_json_whatever_it_is_called(
    url: str, session: aiohttp.ClientSession, content_type: str | None
) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    skipped = ["Content-Type"] if content_type is None else []
    async with session.post(
        f"{url}/api/v1/things", data=b'{"text": "four"}', headers=headers, skip_auto_headers=skipped
    ) as reply:
        assert reply.status == 200
        assert (await reply.json())["size"] == 4


async def test_a_body_may_be_absent_and_an_answer_is_200_with_an_object(
    url: str, session: aiohttp.ClientSession
) -> None:
    async with session.post(f"{url}/api/v1/things") as reply:
        assert reply.status == 200
        assert await reply.json() == {"size": 0, "who": "ann", "numbers": [], "note": None}


async def test_numbers_that_are_none_are_words_both_ways(url: str, session: aiohttp.ClientSession) -> None:
    body = b'{"numbers": ["NaN", "Infinity", "-Infinity", "Nan", 1]}'
    async with session.post(f"{url}/api/v1/things", data=body) as reply:
        text = await reply.text()
    assert json.loads(text, parse_constant=pytest.fail)["numbers"] == ["NaN", "Infinity", "-Infinity", "NaN", 1]


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer task-token"},
        {"Grpc-Metadata-x-allocation-token": "Bearer task-token"},
        {"Cookie": "other=1; auth=ann-token"},
        {"Authorization": "bearer ann-token"},
    ],
)
async def test_a_caller_is_known_by_any_of_three_headers(url: str, headers: Mapping[str, str]) -> None:
    async with aiohttp.ClientSession() as nobody, nobody.get(f"{url}/api/v1/things", headers=headers) as reply:
        assert (await reply.json())["who"] == "ann"


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer expired", "Cookie": "auth=ann-token"},
        {"Authorization": "ann-token"},
        {"Authorization": "Token ann-token"},
        {"Cookie": "auth="},
        {},
    ],
)
async def test_a_wrong_credential_is_401_also_beside_a_right_one(url: str, headers: Mapping[str, str]) -> None:
    async with (
        aiohttp.ClientSession() as nobody,
        nobody.get(f"{url}/api/v1/things?token=ann-token", headers=headers) as reply,
    ):
        assert reply.status == 401
        assert (await reply.json())["error"]["code"] == 16


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({}, 200),
    ],
)
async def test_a_page_of_somebody_else_cannot_use_a_browsers_cookie(
    url: str, headers: Mapping[str, str], status: int
) -> None:
    sent = {"Cookie": "auth=ann-token", **headers}
    async with aiohttp.ClientSession() as browser, browser.post(f"{url}/api/v1/things", headers=sent) as reply:
        assert reply.status == status


async def test_a_page_of_somebody_else_cannot_even_log_a_browser_in(url: str) -> None:
    sent = {"Origin": "http://evil.example"}
    async with aiohttp.ClientSession() as browser, browser.post(f"{url}/api/v1/public", headers=sent) as reply:
        assert reply.status == 403


async def test_who_is_not_known_must_not_dawdle(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routers, "_MAX_PUBLIC_BODY_SECONDS", 0.05)
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(b"POST /api/v1/public HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
    async with asyncio.timeout(5):
        assert b" 400 " in await reader.readline()
    writer.close()


async def test_what_can_be_got_can_be_asked_for_without_its_content(url: str, session: aiohttp.ClientSession) -> None:
    for path, status in (("things", 200), ("lines", 405), ("wait", 405), ("small", 405)):
        async with session.head(f"{url}/api/v1/{path}") as reply:
            assert (reply.status, await reply.read()) == (status, b""), path
    assert reply.headers["Allow"] == "POST"


async def test_bodies_may_be_as_large_as_contexts_are_and_no_larger(url: str, session: aiohttp.ClientSession) -> None:
    room = routers._MAX_LARGE_BODY_BYTES - len(b'{"text": ""}')
    async with session.post(f"{url}/api/v1/things", data=BytesIO(b'{"text": "%s"}' % (b"x" * room))) as reply:
        assert (reply.status, (await reply.json())["size"]) == (200, room)
    async with session.post(f"{url}/api/v1/things", data=BytesIO(b'{"text": "%s"}' % (b"x" * (room + 1)))) as reply:
        assert reply.status == 413
        assert (await reply.json())["error"]["code"] == 3
    async with session.post(f"{url}/api/v1/small", data=BytesIO(b'{"text": "%s"}' % (b"x" * 2**22))) as reply:
        assert reply.status == 413


async def test_who_is_unknown_is_told_so_also_in_the_middle_of_a_large_upload(url: str) -> None:
    async with aiohttp.ClientSession() as nobody:
        async with nobody.post(f"{url}/api/v1/things", data=BytesIO(b"x" * MANY)) as reply:
            assert reply.status == 401
        async with nobody.post(f"{url}/api/v1/public", data=BytesIO(b"x" * MANY)) as reply:
            assert reply.status == 413


async def test_who_announces_too_much_and_sends_nothing_is_not_waited_for(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_MAX_DRAINING_SECONDS", 0.01)
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    head = "POST /api/v1/things HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ann-token\r\n"
    writer.write(f"{head}Content-Length: {10 * 2**30}\r\n\r\n{{".encode())
    async with asyncio.timeout(5):
        assert b" 413 " in await reader.readline()
    writer.close()


async def test_a_long_poll_answers_when_its_time_is_up(url: str, session: aiohttp.ClientSession) -> None:
    async with session.get(f"{url}/api/v1/wait?timeout_seconds=0.01") as reply:
        assert (reply.status, (await reply.json())["note"]) == (200, "nothing happened")


async def test_a_long_poll_is_given_up_when_the_client_leaves(
    url: str, session: aiohttp.ClientSession, handlers: Handlers
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await session.get(f"{url}/api/v1/wait?timeoutSeconds=60")
    await asyncio.wait_for(handlers.left.wait(), 5)


async def test_a_server_that_closes_says_so_to_who_waits_and_to_who_follows(session: aiohttp.ClientSession) -> None:
    """The end of the server must not look like the end of what is followed."""
    handlers = Handlers()
    async with asyncio.TaskGroup() as group, served(handlers) as url:
        waits = group.create_task(_read(session, f"{url}/api/v1/wait?timeoutSeconds=60"))
        follows = group.create_task(_read(session, f"{url}/api/v1/lines?count=1&timeoutSeconds=60"))
        await asyncio.wait_for(handlers.waiting.wait(), 5)
        await asyncio.sleep(0.1)
    status, text = waits.result()
    assert (status, json.loads(text)["error"]["code"]) == (503, 14)
    status, text = follows.result()
    assert status == 200
    assert json.loads(text.splitlines()[-1])["error"]["grpcCode"] == 14


async def _read(session: aiohttp.ClientSession, url: str) -> tuple[int, str]:
    async with session.get(url) as reply:
        return reply.status, await reply.text()
