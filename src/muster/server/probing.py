"""What a cluster asks of a process that it runs: whether it lives, whether it is ready, and its measurements."""

from collections.abc import Callable

from starlette.types import Receive, Scope, Send

from muster.runtime.metrics import CONTENT_TYPE
from muster.server.app import Metrics
from muster.server.exchange import Outgoing, Response

_TEXT = "text/plain; charset=utf-8"


class Probes:
    """An ASGI application. `is_ready`: whether others may rely on it."""

    def __init__(self, is_ready: Callable[[], bool], metrics: Metrics) -> None:
        self._is_ready = is_ready
        self._metrics = metrics

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await Outgoing(send, "probe").respond(self._answer(scope["path"]))

    def _answer(self, path: str) -> Response:
        match path:
            case "/healthz" | "/livez":
                return Response(200, b"ok", _TEXT)
            case "/readyz" if self._is_ready():
                return Response(200, b"ok", _TEXT)
            case "/readyz":
                return Response(503, b"the objects of the cluster are still being read", _TEXT)
            case "/metrics":
                return Response(200, "".join(self._metrics()).encode(), CONTENT_TYPE)
        return Response(404, b"here are /healthz, /readyz and /metrics", _TEXT)
