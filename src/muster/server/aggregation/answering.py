"""The aggregated API as an ASGI application: discovery by every replica, all else by the one that leads, whose memory
has the answers."""

import itertools
import logging
from collections.abc import Callable
from typing import Final

from starlette.types import Receive, Scope, Send

from muster.api import errors
from muster.api.errors import ApiError
from muster.server import discovery, paths
from muster.server.access import Attributes
from muster.server.aggregation.authorizing import Reviews
from muster.server.aggregation.front_proxy import Caller, FrontProxy
from muster.server.exchange import ClientGone, Outgoing, Request, Response, json_response, refusal, request_of
from muster.server.paths import MISSING
from muster.server.visibility import VisibilityApi
from muster.version import VERSION

_OPENAPI: Final = ("openapi", "v2")
_NOTHING_DESCRIBED: Final = json_response(
    {"swagger": "2.0", "info": {"title": "Muster", "version": VERSION}, "paths": {}}
)
"""Without one the API server complains in its log, whenever it puts those of all groups together."""
_RETRY_SECONDS: Final = 1
_log = logging.getLogger(__name__)


def serves(path: str) -> bool:
    return path.startswith(("/apis", "/openapi"))


class Aggregated:
    """`front_proxy`: whom to believe about who is asking, as last heard."""

    def __init__(
        self,
        api: VisibilityApi,
        reviews: Reviews,
        front_proxy: Callable[[], FrontProxy | None],
        is_leading: Callable[[], bool],
    ) -> None:
        self._api = api
        self._reviews = reviews
        self._front_proxy = front_proxy
        self._is_leading = is_leading
        self._discovery = discovery.what_is_asked()
        self._numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request_id = f"{next(self._numbers):08x}"
        outgoing = Outgoing(send, request_id)
        try:
            request = request_of(scope, receive, request_id)
            outgoing.accepts_gzip = "gzip" in request.headers.get("accept-encoding", "")
            await outgoing.respond(await self._answer(request, self._caller(scope)))
        except ClientGone:
            return
        except ApiError as error:
            await outgoing.respond(_refused(error))
        except Exception as error:
            _log.exception("request %s failed: %s", request_id, scope["path"])
            told = errors.InternalError(f"failed on this request (id {request_id}): {type(error).__name__}")
            await outgoing.respond(refusal(told))

    def _caller(self, scope: Scope) -> Caller:
        """Raises Unauthorized."""
        believed = self._front_proxy()
        if believed is None:
            raise errors.Unauthorized("Unauthorized: this cluster does not say which API servers to believe")
        shown = scope.get("extensions", {}).get("tls", {}).get("client_cert_chain", ())
        return believed.caller(shown[0] if shown else "", scope["headers"])

    async def _answer(self, request: Request, caller: Caller) -> Response:
        parts = paths.segments(request.path)
        if parts == _OPENAPI:
            return _NOTHING_DESCRIBED
        if request.method == "GET" and parts[:1] == ("apis",) and len(parts) <= 3:
            return self._discover(request, parts[1:])
        if not self._is_leading():
            raise errors.Unavailable("this replica does not lead, and only the leader knows; ask again")

        async def check(asked: Attributes) -> None:
            await self._reviews.check(caller, asked)

        answer = await self._api.answer(request, check, parts)
        if answer is None:
            raise errors.NotFound(MISSING)
        return answer

    def _discover(self, request: Request, parts: tuple[str, ...]) -> Response:
        match parts:
            case (group,):
                return self._discovery.group(group)
            case (group, version):
                return self._discovery.version(group, version)
        return self._discovery.root(request, is_core=False)


def _refused(error: ApiError) -> Response:
    if not isinstance(error, errors.Unavailable):
        return refusal(error)
    error.retry_after = _RETRY_SECONDS
    told = refusal(error)
    # The next attempt should not come over the same connection: it would lead to the same replica.
    return Response(told.status, told.body, headers=(*told.headers, ("connection", "close")))
