"""One HTTP exchange through the proxy: the body streams in while the reply streams out, each at the pace of its reader.

Each exchange has a connection of its own to the service. So what two clients send never shares one, and a service that
reads a request otherwise than we wrote it gets at nobody else's.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

import aiohttp
from starlette.types import Receive, Send
from yarl import URL

from muster.api import errors
from muster.server.exchange import ClientGone
from muster.server.proxy import headers
from muster.server.proxy.headers import Front, Pairs
from muster.server.proxy.racing import first_done
from muster.server.proxy.refusing import NotServing
from muster.tasks.proxies import Target

_CHUNK_BYTES: Final = 64 * 1024
_SKIPPED: Final = ("accept", "accept-encoding", "user-agent", "content-type")
"""Headers that the client library would add by itself."""
_BODILESS: Final = (204, 304)
"""A length is then one of something that is not sent; our own server would wait for it."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """In seconds. `idle`: between two pieces of a reply, or until it begins."""

    connect: float = 10.0
    idle: float = 600.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, as it is to be sent on. `path`: as the client wrote it, with its query."""

    method: str
    path: str
    pairs: Pairs
    """As they came."""
    headers: Pairs
    """As they go on."""
    front: Front
    extra: Pairs = ()
    """Headers that go with the reply."""


def origin_of(target: Target) -> str:
    address = f"[{target.address}]" if ":" in target.address else target.address
    return f"{'https' if target.port.is_https else 'http'}://{address}:{target.port.port}"


def url_of(target: Target, path: str) -> URL:
    """The path is the client's, letter by letter; who is asked is the target's alone."""
    return URL(f"{origin_of(target)}{path}", encoded=True)


def session(timeouts: Timeouts, tls: ssl.SSLContext | bool) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True, ssl=tls),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=_SKIPPED,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect, sock_read=timeouts.idle),
        trust_env=False,
    )


class Exchange:
    """`has_started`: after that an error cannot be told."""

    def __init__(self, client: aiohttp.ClientSession, target: Target, asked: Asked, receive: Receive) -> None:
        self._client = client
        self._target = target
        self._asked = asked
        self._receive = receive
        self._is_read = asyncio.Event()
        self.has_started = False

    async def run(self, send: Send) -> None:
        """Raises NotServing, Timeout, BadRequest; ClientGone where nobody is left to hear."""
        length = _length(self._asked)
        if length == 0:
            self._is_read.set()
        try:
            await first_done(f"proxy to {self._target.task}", self._forward(send, length), self._client_leaves())
        except TimeoutError as error:
            raise errors.Timeout(f"the service of task {self._target.task} did not answer in time.") from error
        except (aiohttp.ClientError, OSError) as error:
            raise NotServing(
                f"the service of task {self._target.task} does not answer at its port {self._target.port.port}; it may "
                "still be starting, or have stopped."
            ) from error

    async def _forward(self, send: Send, length: int | None) -> None:
        asked = self._asked
        sent = [*asked.headers, *([("content-length", str(length))] if length else [])]
        body = None if length == 0 else self._body()
        request = self._client.request(
            asked.method, url_of(self._target, asked.path), headers=sent, data=body, allow_redirects=False
        )
        async with request as reply:
            if not 200 <= reply.status < 600:
                raise NotServing(f"the service of task {self._target.task} answered with status {reply.status}.")
            told = headers.returned(headers.decoded(reply.raw_headers), asked.front, origin_of(self._target))
            if reply.status in _BODILESS:
                told = [(name, value) for name, value in told if name != "content-length"]
            await self._start(send, reply.status, [*told, *asked.extra])
            async for chunk in reply.content.iter_chunked(_CHUNK_BYTES):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _start(self, send: Send, status: int, told: Pairs) -> None:
        self.has_started = True
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in told]
        await send({"type": "http.response.start", "status": status, "headers": encoded})

    async def _body(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            if chunk := message.get("body", b""):
                yield chunk
            if not message.get("more_body", False):
                self._is_read.set()
                return

    async def _client_leaves(self) -> None:
        """Ends what nobody will hear."""
        await self._is_read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass  # the end of a body that was empty
        raise ClientGone


def _length(asked: Asked) -> int | None:
    """Of the body; None where that is not known. Raises BadRequest where it is told in two ways: our own parser has
    refused that before, and must not be the only one."""
    lengths = [value for name, value in asked.pairs if name == "content-length"]
    encodings = [value for name, value in asked.pairs if name == "transfer-encoding"]
    if len(lengths) > 1 or len(encodings) > 1 or (lengths and encodings):
        raise errors.BadRequest("the request tells the length of its body in more than one way")
    if encodings:
        if encodings[0].strip().lower() != "chunked":
            raise errors.BadRequest(f"transfer-encoding: only chunked is understood, found {encodings[0][:40]!r}")
        return None
    if not lengths:
        return 0
    if not (lengths[0].isascii() and lengths[0].isdigit() and len(lengths[0]) <= 18):
        raise errors.BadRequest(f"content-length: expected a number, found {lengths[0][:40]!r}")
    return int(lengths[0])
