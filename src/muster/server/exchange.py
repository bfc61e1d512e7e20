"""One HTTP exchange over raw ASGI: what came in, what goes out, and how both are bounded.

Handlers are `async (Request) -> Response | Stream`; only this module speaks ASGI messages. A stream ends by itself,
at its deadline, when the client leaves, or when the server closes; whichever comes first.
"""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope, Send

from muster.api import errors, raw, status
from muster.api.errors import ApiError
from muster.api.raw import JSON

MAX_BODY_BYTES = 3 * 1024 * 1024
_MAX_QUERY_FIELDS = 1000
_MAX_DRAINING_SECONDS = 2.0
_MAX_DRAINED_BYTES = 64 * 1024 * 1024
_GZIP_FROM_BYTES = 128 * 1024

_OBJECT_HINT = f"an object may have {raw.MAX_OBJECT_BYTES} bytes: put large data into files or object storage"

Headers: TypeAlias = tuple[tuple[str, str], ...]


class ClientGone(Exception):
    """The client closed the connection before its request was complete: nobody is left to answer."""


class Query:
    """Query parameters. A parameter that is given twice counts once, as its first value."""

    __slots__ = ("pairs", "values")

    def __init__(self, encoded: bytes) -> None:
        values: dict[str, str] = {}
        try:
            pairs = parse_qsl(encoded.decode("latin-1"), keep_blank_values=True, max_num_fields=_MAX_QUERY_FIELDS)
        except ValueError as error:
            raise errors.BadRequest(f"the request has more than {_MAX_QUERY_FIELDS} query parameters") from error
        for name, value in pairs:
            values.setdefault(name, value)
        self.values: Mapping[str, str] = values
        self.pairs: Sequence[tuple[str, str]] = pairs
        """All of them, in order."""

    def text(self, name: str, default: str = "") -> str:
        return self.values.get(name, default)

    def has(self, name: str) -> bool:
        return name in self.values

    def flag(self, name: str) -> bool:
        value = self.values.get(name, "false")
        if value.lower() in ("true", "1", ""):
            return True
        if value.lower() in ("false", "0"):
            return False
        raise errors.BadRequest(f"query parameter {name!r}: expected true or false, found {value!r}")

    def integer(self, name: str) -> int | None:
        """None where the parameter is absent or empty. Raises BadRequest for anything but a 64-bit integer."""
        value = self.values.get(name, "")
        if not value:
            return None
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
            raise errors.BadRequest(f"query parameter {name!r}: expected a number, found {value[:100]!r}")
        return int(value)


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    """As it was sent: percent-encoded, so that an encoded slash is not a separator."""
    query: Query
    headers: Mapping[str, str]
    id: str
    receive: Receive
    remote: str = ""
    """The address that it came from."""
    is_secure: bool = False
    """Whether it came over TLS."""

    async def body(self, limit: int = MAX_BODY_BYTES, hint: str = _OBJECT_HINT) -> bytes:
        """The whole body. Raises TooLarge above the limit, after reading on a while without keeping anything:
        a client that is still sending would otherwise see a reset connection instead of the reason."""
        declared = self.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and int(declared[:18]) > limit:
            # One that says so, but then sends nothing, is not waited for.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_MAX_DRAINING_SECONDS):
                    await self._read(0, limit + _MAX_DRAINED_BYTES)
            raise errors.TooLarge(f"the request body is larger than {limit} bytes; {hint}")
        size, chunks = await self._read(limit, limit + _MAX_DRAINED_BYTES)
        if size > limit:
            raise errors.TooLarge(f"the request body is larger than {limit} bytes; {hint}")
        return b"".join(chunks)

    async def _read(self, kept: int, most: int) -> tuple[int, list[bytes]]:
        """How much came, and the content if that was no more than is to be kept."""
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size <= kept:
                chunks.append(chunk)
            else:
                chunks.clear()
            if not message.get("more_body", False) or size > most:
                return size, chunks


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Stream:
    """A body of unknown length. With `waits`, the status line is held back until the first chunk, so that an error
    that shows only then can still be answered as one."""

    chunks: AsyncGenerator[bytes, None]
    content_type: str = "application/json"
    seconds: float | None = None
    waits: bool = False
    headers: Headers = ()
    refuse: Callable[[ApiError], Response] | None = None
    """How such an error is told, where not as a Status."""
    last_words: Callable[[ApiError], bytes] | None = None
    """What to send when the server closes before the stream has ended; without it, just an end."""


Answer: TypeAlias = Response | Stream


def json_response(value: JSON, status: int = 200, headers: Headers = ()) -> Response:
    return Response(status, raw.encode(value), headers=headers)


def refusal(error: ApiError) -> Response:
    """As a Status."""
    headers: Headers = () if error.retry_after is None else (("retry-after", str(error.retry_after)),)
    return Response(error.http_status, raw.encode(status.from_error(error)), headers=headers)


def request_of(scope: Scope, receive: Receive, request_id: str) -> Request:
    encoded: bytes = scope.get("raw_path") or scope["path"].encode()
    return Request(
        method=scope["method"],
        path=encoded.partition(b"?")[0].decode("latin-1"),
        query=Query(scope.get("query_string", b"")),
        headers={name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]},
        id=request_id,
        receive=receive,
        remote=str((scope.get("client") or ("",))[0]),
        is_secure=scope.get("scheme") == "https",
    )


class Outgoing:
    """The answering side of one exchange. Knows whether the status line is out: after that an error cannot be told."""

    __slots__ = ("_request_id", "_send", "accepts_gzip", "has_started")

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.accepts_gzip = False
        self.has_started = False

    async def respond(self, response: Response) -> None:
        body, headers = response.body, response.headers
        if self.accepts_gzip and len(body) > _GZIP_FROM_BYTES:
            # zlib lets go of the interpreter lock: a large list does not delay small requests.
            body = await asyncio.to_thread(_gzip, body)
            headers = (*headers, ("content-encoding", "gzip"), ("vary", "Accept, Accept-Encoding"))
        await self.start(response.status, response.content_type, (*headers, ("content-length", str(len(body)))))
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def start(self, status: int, content_type: str, headers: Headers) -> None:
        self.has_started = True
        encoded = [(b"content-type", content_type.encode()), (b"x-request-id", self._request_id.encode())]
        encoded += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})

    async def chunk(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def _gzip(body: bytes) -> bytes:
    compressor = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return compressor.compress(body) + compressor.flush()


class Streams:
    """The streams that are open now, so that a server that shuts down can end them instead of waiting for hours."""

    def __init__(self) -> None:
        self._deadlines: set[asyncio.Timeout] = set()
        self._is_closing = False

    def close(self) -> None:
        self._is_closing = True
        for deadline in self._deadlines:
            _end_now(deadline)

    async def send(self, request: Request, stream: Stream, outgoing: Outgoing) -> None:
        """Sends until the stream ends, its time is up, the client leaves or the server closes."""
        failure: Exception | None = None
        try:
            async with asyncio.timeout(stream.seconds) as deadline, asyncio.TaskGroup() as group:
                self._deadlines.add(deadline)
                if self._is_closing:
                    _end_now(deadline)
                listener = group.create_task(
                    _end_when_client_leaves(request.receive, deadline), name=f"end of client of {request.id}"
                )
                try:
                    await _send_chunks(stream, outgoing)
                except Exception as error:  # carried past the group, which would wrap it
                    failure = error
                finally:
                    self._deadlines.discard(deadline)
                    listener.cancel()
        except TimeoutError:
            if self._is_closing and stream.last_words is not None:
                failure = await self._say_last(stream.last_words, outgoing)
            elif not outgoing.has_started:
                await outgoing.start(200, stream.content_type, stream.headers)
        if failure is not None:
            raise failure
        await outgoing.end()

    @staticmethod
    async def _say_last(words: Callable[[ApiError], bytes], outgoing: Outgoing) -> Exception | None:
        """Whoever follows must not take the end of the server for the end of what they follow."""
        error = errors.Unavailable("the server is shutting down; ask again when it is back")
        if not outgoing.has_started:
            return error
        await outgoing.chunk(words(error))
        return None


@contextlib.asynccontextmanager
async def closing(iterator: AsyncIterator[object]) -> AsyncGenerator[None, None]:
    """Closes an iterator that is a generator inside, as those of stores and log readers are."""
    try:
        yield
    finally:
        close = getattr(iterator, "aclose", None)
        if close is not None:
            await close()


def _end_now(deadline: asyncio.Timeout) -> None:
    if not deadline.expired():
        deadline.reschedule(asyncio.get_running_loop().time())


async def _end_when_client_leaves(receive: Receive, deadline: asyncio.Timeout) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass  # a body that nobody asked for
    _end_now(deadline)


async def _send_chunks(stream: Stream, outgoing: Outgoing) -> None:
    async with contextlib.aclosing(stream.chunks) as chunks:
        first = await anext(chunks, b"") if stream.waits else b""
        await outgoing.start(200, stream.content_type, stream.headers)
        if first:
            await outgoing.chunk(first)
        async for chunk in chunks:
            await outgoing.chunk(chunk)
