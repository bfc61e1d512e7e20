"""The ASGI application: health and version for anybody; metrics, and the Kubernetes API below /k8s, for those who are
known.

Whatever goes wrong in a request is answered as a Status, logged with the request's id, and ends with that request.
"""

import asyncio
import itertools
import logging
import platform
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from starlette.types import Receive, Scope, Send

from muster.api import errors
from muster.api.errors import ApiError
from muster.api.raw import Document
from muster.api.registry import Registry
from muster.runtime.clock import Clock
from muster.runtime.metrics import CONTENT_TYPE
from muster.server import access, paths
from muster.server.access import Attributes, Authenticator, Identity
from muster.server.exchange import (
    Answer,
    ClientGone,
    Outgoing,
    Request,
    Response,
    Stream,
    Streams,
    json_response,
    refusal,
    request_of,
)
from muster.server.kubernetes import KubernetesApi
from muster.server.logs import NodeLogs
from muster.server.proxy.refusing import refuse_socket
from muster.server.visibility import Decisions, Visibility, VisibilityApi
from muster.store.protocol import Store

PREFIX = "k8s"
DETERMINED = "/api/v1/"
METRICS = ("metrics",)
Metrics: TypeAlias = Callable[[], Iterable[str]]
Identify: TypeAlias = Callable[[Mapping[str, str]], Awaitable[Identity | None]]
"""Who sent these headers, of those that only the records know."""
KUBERNETES_VERSION = "v1.33.0"
"""The Kubernetes release whose API this is closest to: kubectl warns when it is far from its own."""
_READINESS = ("readyz",)
_HEALTH = ("healthz", "livez", *_READINESS)
_TEXT = "text/plain; charset=utf-8"
_CORE = frozenset({PREFIX, "version", *METRICS, *_HEALTH})
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Version:
    """What /version tells."""

    muster: str

    def document(self) -> Document:
        major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
        return {
            "major": major,
            "minor": minor,
            "gitVersion": f"{KUBERNETES_VERSION}+muster-{self.muster}",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": platform.python_implementation(),
            "platform": f"{platform.system().lower()}/{platform.machine()}",
        }


@dataclass(frozen=True, slots=True)
class Lookouts:
    """What can be asked of those who decide. `decisions`: the scheduler's log; `visibility`: of quota's queues;
    `metrics`: the text of all measurements, in pieces."""

    decisions: Decisions = tuple
    visibility: Visibility | None = None
    metrics: Metrics = tuple


NO_LOOKOUTS = Lookouts()


class Mounted(Protocol):
    """An API beside the one of Kubernetes. Not named here: it takes long to load, and this module is needed first."""

    async def answer(self, request: Request) -> Answer | None:
        """None for paths that it does not serve."""
        ...

    def nothing_at(self, path: str) -> Response: ...


class Services(Protocol):
    """What tasks serve, passed on."""

    def serves(self, scope: Scope) -> bool: ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def close(self) -> None: ...


class ObjectsApi(Protocol):
    """What is below the prefix."""

    async def answer(self, request: Request, identity: Identity, below: tuple[str, ...]) -> Answer: ...


class Objects:
    """The Kubernetes API, and beside it answers that come from those who decide, instead of the store."""

    def __init__(self, store: Store, kubernetes: KubernetesApi, lookouts: Lookouts) -> None:
        self._kubernetes = kubernetes
        self._visibility = VisibilityApi(store, lookouts.visibility, lookouts.decisions)

    async def answer(self, request: Request, identity: Identity, below: tuple[str, ...]) -> Answer:
        async def check(asked: Attributes) -> None:
            access.check(identity, asked)

        seen = await self._visibility.answer(request, check, below)
        return seen or await self._kubernetes.answer(request, identity, below)


class ObjectsElsewhere:
    """Where the objects are those of a Kubernetes cluster."""

    async def answer(self, request: Request, identity: Identity, below: tuple[str, ...]) -> Answer:  # noqa: ARG002
        raise errors.NotFound(
            f"nothing is served below /{PREFIX}: jobs, queues and nodes of this platform are those of a Kubernetes "
            "cluster; ask its own API server, with kubectl or its kubeconfig"
        )


class Pages(Protocol):
    """Paths that are served beside the APIs, in their own way: they see to it themselves who is asking."""

    def serves(self, path: str) -> bool: ...

    async def answer(self, request: Request) -> Answer: ...


class App:
    """An ASGI application. `close` ends the open streams, so that a server can stop without waiting for them."""

    def __init__(
        self, objects: ObjectsApi, authenticator: Authenticator, version: Version, metrics: Metrics = tuple
    ) -> None:
        self._objects = objects
        self._determined: Mounted | None = None
        self._identify: Identify | None = None
        self._pages: Sequence[Pages] = ()
        self._proxy: Services | None = None
        self._metrics = metrics
        self._authenticator = authenticator
        self._version = version
        self._streams = Streams()
        self._numbers = itertools.count(1)
        self._is_complete = asyncio.Event()
        self._is_complete.set()

    def expect_more(self) -> None:
        """Something is to be mounted yet: requests for it wait."""
        self._is_complete.clear()

    def mount(
        self,
        determined: Mounted | None = None,
        identify: Identify | None = None,
        pages: Sequence[Pages] = (),
        proxy: Services | None = None,
    ) -> None:
        """Serves Determined's API beside the others. With `identify`, its users may use the others as well. `proxy`
        passes on what is below its prefix, and all WebSockets there are."""
        self._determined = determined
        self._identify = identify
        self._pages = pages
        self._proxy = proxy
        self._is_complete.set()

    def close(self) -> None:
        self._streams.close()
        if self._proxy is not None:
            self._proxy.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if not _is_core(scope["path"]):
            await self._is_complete.wait()
        if self._proxy is not None and self._proxy.serves(scope):
            await self._proxy(scope, receive, send)
        elif scope["type"] == "websocket":
            told = errors.NotFound("no WebSocket is served here; the services of tasks are below /proxy/")
            await refuse_socket(refusal(told), send)
        else:
            await self._exchange(scope, receive, send)

    async def _exchange(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = f"{next(self._numbers):08x}"
        outgoing = Outgoing(send, request_id)
        refuse: Callable[[ApiError], Response] = refusal
        try:
            request = request_of(scope, receive, request_id)
            outgoing.accepts_gzip = "gzip" in request.headers.get("accept-encoding", "")
            answer = await self._answer(request)
            if isinstance(answer, Stream):
                refuse = answer.refuse or refuse
                await self._streams.send(request, answer, outgoing)
            else:
                await outgoing.respond(answer)
        except ClientGone:
            return
        except ApiError as error:
            await _tell(refuse(error), outgoing)
        except Exception as error:
            _log.exception("request %s failed: %s %s", request_id, scope["method"], scope["path"])
            told = errors.InternalError(f"the server failed on this request (id {request_id}): {type(error).__name__}")
            await _tell(refuse(told), outgoing)

    async def _answer(self, request: Request) -> Answer:
        answer = None if self._determined is None else await self._determined.answer(request)
        if answer is not None:
            return answer
        for pages in self._pages:
            if pages.serves(request.path):
                return await pages.answer(request)
        if self._determined is not None and request.path.startswith(DETERMINED):
            return self._determined.nothing_at(request.path)
        parts = paths.segments(request.path)
        # kubectl from 1.34 puts `get --raw` below the prefix, older ones do not: with it twice both can be used alike.
        below = parts[2:] if parts[:2] == (PREFIX, PREFIX) else parts[1:] if parts[:1] == (PREFIX,) else None
        public = self._public(request, parts if below is None else below)
        if public is not None:
            return public
        if below is None and parts != METRICS:
            raise errors.NotFound(f"nothing is served at {request.path}; the Kubernetes API is below /{PREFIX}")
        identity = self._authenticator.authenticate(request.headers)
        if identity is None:
            await self._is_complete.wait()
            identity = None if self._identify is None else await self._identify(request.headers)
        if identity is None:
            raise errors.Unauthorized(
                "Unauthorized: send the header 'Authorization: Bearer <token>' with a known token"
            )
        if below is None or below == METRICS:
            return await self._measured(identity)
        return await self._objects.answer(request, identity, below)

    async def _measured(self, identity: Identity) -> Response:
        access.check(identity, access.Attributes("get", "muster.dev", "metrics"))
        pieces: list[bytes] = []
        for piece in self._metrics():
            pieces.append(piece.encode())
            await asyncio.sleep(0)
        return Response(200, b"".join(pieces), CONTENT_TYPE)

    def _public(self, request: Request, parts: tuple[str, ...]) -> Response | None:
        if request.method not in ("GET", "HEAD"):
            return None
        if parts[:1] == _READINESS and not self._is_complete.is_set():
            return Response(503, b"still starting", _TEXT)
        if parts and parts[0] in _HEALTH:
            return Response(200, b"ok", _TEXT)
        if parts == ("version",):
            return json_response(self._version.document())
        return None


def _is_core(path: str) -> bool:
    """Whether what is below that path is there from the start."""
    return path.lstrip("/").partition("/")[0] in _CORE


async def _live(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return


async def _tell(refusal: Response, outgoing: Outgoing) -> None:
    if outgoing.has_started:
        await outgoing.end()
    else:
        await outgoing.respond(refusal)


def build(
    *,
    store: Store,
    registry: Registry,
    clock: Clock,
    authenticator: Authenticator,
    node_logs: NodeLogs,
    version: str,
    lookouts: Lookouts = NO_LOOKOUTS,
) -> App:
    """With the objects of a store."""
    kubernetes = KubernetesApi(store=store, registry=registry, clock=clock, node_logs=node_logs)
    return App(Objects(store, kubernetes, lookouts), authenticator, Version(version), lookouts.metrics)
