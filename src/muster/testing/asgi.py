"""Speaks to an ASGI application without a socket: one request, its whole answer, or a stream read piece by piece."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote, urlencode

from starlette.types import ASGIApp, Message

from muster.api import raw
from muster.api.raw import JSON


@dataclass(slots=True)
class Reply:
    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""

    @property
    def json(self) -> JSON:
        return raw.decode(self.body)

    def header(self, name: str) -> str:
        return next((value for found, value in self.headers if found == name), "")

    def all(self, name: str) -> list[str]:
        return [value for found, value in self.headers if found == name]


@dataclass(slots=True)
class Streaming:
    """An answer that is still coming. `next` waits for the next chunk; empty means that it has ended."""

    reply: Reply
    next: Callable[[], Awaitable[bytes]]


class AsgiClient:
    def __init__(self, app: ASGIApp, token: str = "") -> None:
        self._app = app
        self._headers = {"authorization": f"Bearer {token}"} if token else {}

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        json: JSON = None,
    ) -> Reply:
        """`path` is sent as it is, a query included: encode what needs encoding."""
        reply = Reply()
        sent = raw.encode(json) if json is not None else body
        messages: list[Message] = [{"type": "http.request", "body": sent, "more_body": False}]

        async def receive() -> Message:
            if messages:
                return messages.pop(0)
            await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            _collect(reply, message)

        await self._app(self._scope(method, path, query, headers), receive, send)
        return reply

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[Streaming]:
        """Leaving the block closes the connection, as a client that goes away does."""
        reply, chunks, gone = Reply(), asyncio.Queue[bytes](), asyncio.Event()
        started = asyncio.Event()
        messages: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Message:
            if messages:
                return messages.pop(0)
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                _collect(reply, message)
                started.set()
            elif message.get("body") or not message.get("more_body"):
                chunks.put_nowait(message.get("body", b""))

        async with asyncio.TaskGroup() as group:
            scope = self._scope("GET", path, query, headers)
            group.create_task(_run(self._app, scope, receive, send), name=f"stream {path}")
            try:
                await started.wait()
                yield Streaming(reply, chunks.get)
            finally:
                gone.set()

    def _scope(
        self, method: str, path: str, query: Mapping[str, str] | None, headers: Mapping[str, str] | None
    ) -> dict[str, JSON]:
        place, _, asked = path.partition("?")
        return {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": unquote(place),
            "raw_path": place.encode("latin-1", "replace"),
            "query_string": urlencode(query or {}).encode() or asked.encode("latin-1", "replace"),
            "headers": [
                (name.lower().encode("latin-1"), value.encode("latin-1"))
                for name, value in {**self._headers, **(headers or {})}.items()
            ],
        }


async def _run(app: ASGIApp, *arguments: JSON) -> None:
    await app(*arguments)


def _collect(reply: Reply, message: Message) -> None:
    if message["type"] == "http.response.start":
        reply.status = message["status"]
        reply.headers = [(name.decode().lower(), value.decode("latin-1")) for name, value in message["headers"]]
    else:
        reply.body += message.get("body", b"")
