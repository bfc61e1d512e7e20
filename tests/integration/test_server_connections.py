"""What a connection may cost us before its client has said who it is, and whom we believe about where it comes from."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp
import pytest
from starlette.types import Receive, Scope, Send

from muster.server import connections
from muster.server.listening import listening

MANY = connections.MAX_HEAD_BYTES * 4


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Tells how large the body was, and who sent it how."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    told = f"{size} {scope['client'][0]} {scope['scheme']}".encode()
    headers = [(b"content-length", str(len(told)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": told})


@asynccontextmanager
async def connected(**options: object) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with listening(echo, **options) as url, asyncio.timeout(10):  # type: ignore[arg-type]
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            yield reader, writer
        finally:
            writer.close()


@pytest.mark.parametrize(
    "endless",
    [
        b"GET / HTTP/1.1\r\nX-Endless: ",
        b"GET /",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nTrailer: ",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;extension=",
    ],
)
async def test_a_head_that_never_ends_is_ended(endless: bytes) -> None:
    async with connected() as (reader, writer):
        writer.write(endless + b"a" * MANY)
        try:
            answer = await reader.read()
        except ConnectionError:
            return
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")


async def test_many_headers_count_together() -> None:
    async with connected() as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n")
        for number in range(MANY // 1000):
            writer.write(b"X-%d: %s\r\n" % (number, b"a" * 1000))
        assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")


async def test_a_body_is_none_of_it_and_the_connection_serves_on() -> None:
    async with connected() as (reader, writer):
        for _ in range(3):
            writer.write(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (MANY, b"a" * MANY))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert (await reader.readexactly(len(f"{MANY} 127.0.0.1 http"))).startswith(str(MANY).encode())


@pytest.mark.parametrize("beginning", [b"", b"GET / HTTP/1.1\r\n", b"\r\n"])
async def test_who_says_nothing_is_not_waited_for(beginning: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.05)
    async with connected() as (reader, writer):
        writer.write(beginning)
        assert (await reader.read()).endswith(b"did not come in time.")


async def test_who_says_nothing_more_after_an_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.1)
    async with connected() as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"http")
        writer.write(b"\r\n")
        assert (await reader.read()).endswith(b"did not come in time.")


async def test_a_slow_answer_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.05)
    async with connected() as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n")
        await asyncio.sleep(0.2)
        writer.write(b"x")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("trusted", "told"),
    [
        ((), "0 127.0.0.1 http"),
        (("127.0.0.0/8",), "0 10.9.8.7 https"),
        (("10.0.0.0/8",), "0 127.0.0.1 http"),
    ],
)
async def test_only_a_trusted_proxy_is_believed_about_its_clients(trusted: tuple[str, ...], told: str) -> None:
    headers = {"X-Forwarded-For": "10.9.8.7", "X-Forwarded-Proto": "https"}
    async with (
        listening(echo, trusted_proxies=trusted) as url,
        aiohttp.ClientSession() as session,
        session.get(url, headers=headers) as reply,
    ):
        assert await reply.text() == told
