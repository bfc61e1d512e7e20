"""Finds the route of a request, lets in who may, and answers as the wire wants it."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeAlias
from urllib.parse import unquote

from muster.accounts.audit import By
from muster.accounts.authorizing import Hidden
from muster.accounts.callers import NOBODY, Caller, WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import errors
from muster.api.errors import ApiError
from muster.server.determined import wire
from muster.server.determined.authenticating import check_origin, token_of
from muster.server.determined.routing import Call, Message, Route
from muster.server.exchange import Answer, ClientGone, Request, Response, Stream, closing

_log = logging.getLogger(__name__)
STREAM_TYPE: Final = "application/json"
_MAX_PUBLIC_BODY_BYTES: Final = 64 * 1024
_MAX_PUBLIC_BODY_SECONDS: Final = 30.0
"""Of those whom we do not know. A login is small, and comes at once."""
_MAX_BODY_BYTES: Final = 4 * 1024 * 1024
_MAX_LARGE_BODY_BYTES: Final = 128 * 1024 * 1024
"""Where contexts and batches of log lines are part of the message."""
Authenticate: TypeAlias = Callable[[Mapping[str, str]], Awaitable[Caller | None]]
"""From the headers, names in lower case. None for nobody we know."""


OnRefusal: TypeAlias = Callable[[By, str, str, str], None]
"""For the record: who it was, `request.forbidden` and the like, what was asked for, and why not."""


class Authorize(Protocol):
    async def check(self, caller: Caller, permission: Permission, workspace: WorkspaceId | None) -> None:
        """Raises Forbidden. `workspace`: None where it must be held in the whole cluster."""
        ...


@dataclass(slots=True)
class _Node:
    """What follows one segment of a path."""

    named: dict[str, "_Node"] = field(default_factory=dict)
    parameter: "_Node | None" = None
    routes: dict[str, "_Entry"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Entry:
    route: Route
    names: tuple[str, ...]
    """Of the parameters in the path."""


class Router:
    def __init__(
        self,
        routes: Iterable[Route],
        authenticate: Authenticate,
        authorize: Authorize,
        on_refusal: OnRefusal | None = None,
    ) -> None:
        self._root = _Node()
        self._authenticate = authenticate
        self._authorize = authorize
        self._on_refusal = on_refusal
        self.routes = tuple(routes)
        for route in self.routes:
            self._add(route)

    async def answer(self, request: Request) -> Answer | None:
        """None where the path is none of ours."""
        matches = list(_matches(self._root, request.path.strip("/").split("/")))
        if not matches:
            return None
        try:
            return await self._answer(matches, request)
        except ApiError as error:
            return _refusal(error)
        except ClientGone:
            raise
        except Exception:
            _log.exception("request %s failed: %s %s", request.id, request.method, request.path)
            return _refusal(errors.InternalError(f"the server failed on this request (id {request.id})"))

    @staticmethod
    def nothing_at(path: str) -> Response:
        """For paths that look like ours: whoever asks reads our errors."""
        return _refusal(errors.NotFound(f"nothing is served at {path}; /docs/api lists what is"))

    async def _answer(self, matches: Sequence["_Match"], request: Request) -> Answer:
        for routes, values in matches:
            entry = routes.get(request.method) or _headed(routes, request.method)
            if entry is not None:
                path = {name: _decoded(name, value) for name, value in zip(entry.names, values, strict=True)}
                return await self._call(entry.route, path, request)
        served = sorted({method for routes, _ in matches for method in routes})
        refusal = _refusal(
            errors.MethodNotAllowed(f"{request.method} is not served at {request.path}, but {', '.join(served)}")
        )
        return replace(refusal, headers=(*refusal.headers, ("allow", ", ".join(served))))

    async def _call(self, route: Route, path: Mapping[str, str], request: Request) -> Answer:
        caller = await self._authenticate(request.headers)
        try:
            return await self._let_in(caller, route, path, request)
        except ApiError as error:
            if self._on_refusal is not None and _is_for_the_record(error, route, request):
                by = By(caller or NOBODY, request.remote)
                # What was wrong with its content is not told: the message may quote a secret from it.
                is_told = isinstance(error, errors.Forbidden | Hidden)
                detail = error.message if is_told else error.reason
                self._on_refusal(by, _action(error), f"{request.method} {request.path}", detail)
            raise

    async def _let_in(self, caller: Caller | None, route: Route, path: Mapping[str, str], request: Request) -> Answer:
        if caller is None and not route.rule.is_public:
            raise errors.Unauthorized("log in first: no known session or token came with the request")
        check_origin(request.method, request.headers)
        body = b"" if route.method == "GET" else await _body(caller, route, request)
        message = wire.decode(route, path, request.query.pairs, body)
        call = Call(caller or NOBODY, request.remote, request.is_secure, request.headers.get("host", ""))
        if caller is not None:
            await self._check(route, call, message)
        if route.follow is not None:
            return _stream(_lines(route, call, message))
        if route.is_long:
            return _stream(_late(route, call, message))
        assert route.handle is not None
        reply = await route.handle(call, message)
        headers = () if route.dress is None else tuple(route.dress(call, reply))
        return Response(200, wire.encode(reply), headers=headers)

    async def _check(self, route: Route, call: Call, message: Message) -> None:
        rule, caller = route.rule, call.caller
        if rule.is_public:
            return
        if caller.allocation:
            await self._check_own(route, call, message)
            return
        if rule.permission is not None:
            workspace = await rule.scope(call, message) if rule.scope is not None else None
            await self._authorize.check(caller, rule.permission, workspace)

    @staticmethod
    async def _check_own(route: Route, call: Call, message: Message) -> None:
        """A task may do what concerns itself; for anything else it has its user's own session."""
        own, caller = route.rule.own, call.caller
        if not own:
            if route.rule.permission is None:
                return
            raise errors.Forbidden(
                f"tasks may not call {route.method} {route.path}; use the session of the task's user"
            )
        if not isinstance(own, str):
            if not await own(call, message):
                raise errors.Forbidden(f"this is not about task {caller.task}, to which this token belongs")
            return
        named = str(getattr(message, own))
        if named not in (caller.allocation, caller.task):
            raise errors.Forbidden(f"{named} is not the task that this token belongs to")

    def _add(self, route: Route) -> None:
        node = self._root
        names: list[str] = []
        for part in route.path.strip("/").split("/"):
            if part.startswith("{"):
                names.append(part[1:-1])
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.named.setdefault(part, _Node())
        if route.method in node.routes:
            raise ValueError(f"two routes for {route.method} {route.path}")
        node.routes[route.method] = _Entry(route, tuple(names))


_Match: TypeAlias = tuple[Mapping[str, _Entry], tuple[str, ...]]
"""Routes by method, and the values of the path's parameters as they were sent."""


def _matches(node: _Node, parts: Sequence[str], values: tuple[str, ...] = ()) -> Iterator[_Match]:
    """All that a path can mean. A segment that is named comes before one that is a parameter; but a user may be called
    like one of our own words, and is then found by what follows, or by the method."""
    if not parts:
        if node.routes:
            yield node.routes, values
        return
    part, following = parts[0], parts[1:]
    named = node.named.get(part)
    if named is not None:
        yield from _matches(named, following, values)
    if node.parameter is not None and part:
        yield from _matches(node.parameter, following, (*values, part))


def _headed(routes: Mapping[str, _Entry], method: str) -> _Entry | None:
    """What can be got can be asked for without its content; not what never ends, or is waited for."""
    found = routes.get("GET") if method == "HEAD" else None
    return None if found is None or found.route.follow is not None or found.route.is_long else found


async def _body(caller: Caller | None, route: Route, request: Request) -> bytes:
    """Raises TooLarge, and BadRequest where who is not known takes their time."""
    if caller is not None:
        return await request.body(_MAX_LARGE_BODY_BYTES if route.is_large else _MAX_BODY_BYTES, _HINT)
    try:
        async with asyncio.timeout(_MAX_PUBLIC_BODY_SECONDS):
            return await request.body(_MAX_PUBLIC_BODY_BYTES, _HINT)
    except TimeoutError as error:
        raise errors.BadRequest("the body did not come in time") from error


_HINT: Final = "large data belongs into files that tasks can read"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def _decoded(name: str, value: str) -> str:
    """Split first, decoded then: a slash in a name never becomes a separator."""
    if "%" not in value:
        return value
    try:
        found = unquote(value, errors="strict")
    except UnicodeDecodeError as error:
        raise errors.BadRequest(f"{name}: {value[:100]!r} is not percent-encoded UTF-8") from error
    if _CONTROL.search(found):
        raise errors.BadRequest(f"{name}: {value[:100]!r} has control characters")
    return found


_RECORDED: Final = {
    400: "request.invalid",
    401: "request.unknown",
    403: "request.forbidden",
    413: "request.too_large",
    422: "request.invalid",
}


def _action(error: ApiError) -> str:
    return _RECORDED[errors.Forbidden.http_status if isinstance(error, Hidden) else error.http_status]


def _is_for_the_record(error: ApiError, route: Route, request: Request) -> bool:
    """Whoever asked for what they may not have, came with a token that is not one, or sent what must not be taken in.
    Not who has not logged in yet, and not who looks for what is not there; logins have records of their own."""
    if isinstance(error, Hidden):
        return True
    status = error.http_status
    if status not in _RECORDED or route.rule.is_public:
        return False
    if status == errors.Unauthorized.http_status:
        return bool(token_of(request.headers))
    return status == errors.Forbidden.http_status or request.method != "GET"


def _stream(chunks: AsyncGenerator[bytes, None]) -> Stream:
    return Stream(chunks, STREAM_TYPE, waits=True, refuse=_refusal, last_words=wire.error_line)


async def _lines(route: Route, call: Call, message: Message) -> AsyncGenerator[bytes, None]:
    assert route.follow is not None
    replies = route.follow(call, message)
    is_begun = False
    async with closing(replies):
        try:
            async for reply in replies:
                is_begun = True
                yield reply if isinstance(reply, bytes) else wire.encode_result(reply)
        except ApiError as error:
            if not is_begun:
                raise
            yield wire.error_line(error)
        except Exception:
            if not is_begun:
                raise
            _log.exception("stream %s failed", route.path)
            yield wire.error_line(errors.InternalError("the server failed while it told this"))


async def _late(route: Route, call: Call, message: Message) -> AsyncGenerator[bytes, None]:
    """The one reply of a long poll."""
    assert route.handle is not None
    yield wire.encode(await route.handle(call, message))


def _refusal(error: ApiError) -> Response:
    status, body = wire.error_body(error)
    headers = () if error.retry_after is None else (("retry-after", str(error.retry_after)),)
    return Response(status, body, headers=headers)
