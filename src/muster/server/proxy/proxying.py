"""`/proxy/<service>/…`: finds the task's service, lets in who may, and passes on what is said.

A service is a task's id, or `<task>:<port>` for one of its further ports. Only what a task has declared and runs on its
own first pod is in the table, so that nothing else can be reached from here. The path goes on as it is: notebooks and
TensorBoards are told the prefix under which they are seen.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, Protocol, Self
from urllib.parse import unquote

import aiohttp
from starlette.types import Receive, Scope, Send

from muster.api import errors
from muster.api.errors import ApiError
from muster.runtime.clock import Clock
from muster.server.exchange import ClientGone, Outgoing, Query, Response
from muster.server.proxy import exchanges, headers, locating, refusing, sockets
from muster.server.proxy.admitting import Admit, Admitted
from muster.server.proxy.exchanges import Asked, Exchange, Timeouts
from muster.server.proxy.headers import Front, Pairs
from muster.server.proxy.recording import Recording
from muster.server.proxy.refusing import NeedsWebSocket
from muster.server.proxy.sockets import Client, Offer
from muster.tasks.proxies import Target

PREFIX: Final = "/proxy/"
_TOUCH_SECONDS: Final = 5.0
"""How exactly it is known when something last went through an open connection."""
_USUAL: Final = Timeouts()
_log = logging.getLogger(__name__)


class Services(Protocol):
    """`tasks.proxies.ProxyTable` has it."""

    def find(self, service: str) -> Target | None: ...

    def touch(self, task: str) -> None: ...


@dataclass(frozen=True, slots=True)
class _Asking:
    """One request or handshake, before anything is decided."""

    scope: Scope
    pairs: Pairs
    headers: Mapping[str, str]
    service: str
    path: str
    query: Query

    @property
    def front(self) -> Front:
        scheme = "https" if self.scope.get("scheme") in ("https", "wss") else "http"
        remote = str((self.scope.get("client") or ("",))[0])
        return Front(self.headers.get("host", ""), scheme, remote, f"{PREFIX}{self.service}")


class Proxy:
    """An ASGI application for what it `serves`. Use as an async context manager; `close` ends what is open.

    `tls`: for services that speak HTTPS. Without it their certificates are not checked: the address is that of the
    task's own pod, and an authority for it would have to be ours. `recording`: of what is refused.
    """

    def __init__(
        self,
        services: Services,
        admit: Admit,
        clock: Clock,
        *,
        timeouts: Timeouts = _USUAL,
        tls: ssl.SSLContext | None = None,
        recording: Recording | None = None,
    ) -> None:
        self._services = services
        self._recording = recording
        self._admit = admit
        self._clock = clock
        self._timeouts = timeouts
        self._tls: ssl.SSLContext | bool = False if tls is None else tls
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession | None = None
        self._open: set[asyncio.Timeout] = set()
        self._connections: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        self._session = await self._stack.enter_async_context(exchanges.session(self._timeouts, self._tls))
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.close()
        self._session = None
        await self._stack.aclose()

    def close(self) -> None:
        now = asyncio.get_running_loop().time()
        for deadline in self._open:
            if not deadline.expired():
                deadline.reschedule(now)

    @staticmethod
    def serves(scope: Scope) -> bool:
        return str(scope["path"]).startswith(PREFIX)

    def connections(self, task: str) -> int:
        """How many are open now."""
        return self._connections.get(task, 0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_socket = scope["type"] == "websocket"
        try:
            async with asyncio.timeout(None) as deadline:
                self._open.add(deadline)
                try:
                    await (self._socket if is_socket else self._http)(scope, receive, send)
                finally:
                    self._open.discard(deadline)
        except TimeoutError:
            return  # the server closes; the connection breaks off

    # HTTP

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        pairs = headers.decoded(scope["headers"])
        exchange: Exchange | None = None
        try:
            asking = _asking(scope, pairs)
            if not asking.path.startswith(f"{PREFIX}{asking.service}/"):
                return await _respond(_with_slash(asking), send)
            target, admitted = await self._admitted(asking, scope["method"])
            if target.port.is_tcp:
                raise NeedsWebSocket(
                    f"task {target.task} serves no pages here but raw bytes, through a WebSocket; use `det shell open` "
                    "or `python -m determined.cli.tunnel`"
                )
            exchange = Exchange(self._client(), target, _asked(asking, admitted), receive)
            with self._counted(target):
                await exchange.run(send)
        except ClientGone:
            return None
        except Exception as error:
            # Once a reply has begun it can only be broken off, which the server does when we just return.
            if exchange is None or not exchange.has_started:
                await _respond(refusing.response(await self._refused(error, scope, pairs), dict(pairs)), send)
        return None

    # WebSockets

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        pairs = headers.decoded(scope["headers"])
        message = await receive()
        if message["type"] != "websocket.connect":
            return
        client: Client | None = None
        try:
            asking = _asking(scope, pairs)
            target, admitted = await self._admitted(asking, "WEBSOCKET")
            client = Client(receive, send, self._toucher(target.task))
            with self._counted(target):
                await self._converse(asking, target, admitted, client)
        except Exception as error:
            told = await self._refused(error, scope, pairs)
            if client is None or not client.is_accepted:
                await refusing.refuse_socket(refusing.response(told, dict(pairs)), send)
            else:
                await client.close(sockets.FAILED, told.message)

    async def _converse(self, asking: _Asking, target: Target, admitted: Admitted, client: Client) -> None:
        if target.port.is_tcp:
            await sockets.to_port(target, self._timeouts, client)
            return
        asked = _asked(asking, admitted)
        offer = Offer(asked.path, asked.headers, asking.scope.get("subprotocols", ()), asked.extra)
        await sockets.to_socket(self._client(), target, offer, client)

    # Both

    async def _admitted(self, asking: _Asking, method: str) -> tuple[Target, Admitted]:
        target = self._services.find(asking.service)
        if target is None:
            raise refusing.not_found(asking.service)
        admitted = await self._admit(target, asking.headers, asking.query, method)
        target = await locating.located(target)
        # Only for those who were let in: strangers do not keep a task from being idle.
        self._services.touch(target.task)
        return target, admitted

    async def _refused(self, error: Exception, scope: Scope, pairs: Pairs) -> ApiError:
        """What is told, and noted."""
        told = _told(error)
        if self._recording is not None:
            remote = str((scope.get("client") or ("",))[0])
            service = str(scope["path"]).removeprefix(PREFIX).partition("/")[0]
            await self._recording.refused(dict(pairs), remote, service, told)
        return told

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise errors.Unavailable("the server is shutting down")
        return self._session

    def _counted(self, target: Target) -> "_Counted":
        return _Counted(self._connections, target.task)

    def _toucher(self, task: str) -> Callable[[], None]:
        last = self._clock.monotonic()

        def touch() -> None:
            nonlocal last
            now = self._clock.monotonic()
            if now - last >= _TOUCH_SECONDS:
                last = now
                self._services.touch(task)

        return touch


class _Counted:
    def __init__(self, counts: dict[str, int], task: str) -> None:
        self._counts = counts
        self._task = task

    def __enter__(self) -> None:
        self._counts[self._task] = self._counts.get(self._task, 0) + 1

    def __exit__(self, *exc_info: object) -> None:
        left = self._counts[self._task] - 1
        if left:
            self._counts[self._task] = left
        else:
            del self._counts[self._task]


def _told(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    _log.error("a request to the proxy failed", exc_info=error)
    return errors.InternalError("the server failed on this request")


def _asking(scope: Scope, pairs: Pairs) -> _Asking:
    """Raises NotFound, BadRequest."""
    encoded: bytes = scope.get("raw_path") or scope["path"].encode()
    path = encoded.partition(b"?")[0].decode("latin-1")
    if not path.startswith(PREFIX):  # an encoded form of it: what we would send on is not what we have looked at
        raise errors.NotFound(f"nothing is served at {path}")
    sent = path.removeprefix(PREFIX).partition("/")[0]
    query = scope.get("query_string", b"")
    if scope.get("http_version", "1.1") not in ("1.0", "1.1"):
        raise errors.BadRequest("only HTTP/1.0 and HTTP/1.1 are passed on")
    if any(byte <= 0x20 or byte >= 0x7F for byte in encoded + query):
        raise errors.BadRequest("the path has characters that must be percent-encoded")
    whole = f"{path}?{query.decode('latin-1')}" if query else path
    service = unquote(sent)
    if service != sent:
        whole = whole.replace(f"{PREFIX}{sent}", f"{PREFIX}{service}", 1)
    if not service or not all(letter.isascii() and (letter.isalnum() or letter in "._-:") for letter in service):
        raise refusing.not_found(service[:100])
    return _Asking(scope, pairs, dict(pairs), service, whole, Query(query))


def _asked(asking: _Asking, admitted: Admitted) -> Asked:
    front = asking.front
    sent = headers.forwarded(
        asking.pairs,
        front,
        keeps_authorization=admitted.keeps_authorization,
        authorization=admitted.authorization,
    )
    extra = (headers.own_cookie(admitted.token, front),) if admitted.token else ()
    return Asked(asking.scope.get("method", "GET"), asking.path, asking.pairs, sent, front, extra)


def _with_slash(asking: _Asking) -> Response:
    path, mark, query = asking.path.partition("?")
    return Response(307, b"", "text/plain", (("location", f"{path}/{mark}{query}"),))


async def _respond(response: Response, send: Send) -> None:
    await Outgoing(send, "proxy").respond(response)
