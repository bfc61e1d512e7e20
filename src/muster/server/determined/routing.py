"""Routes of Determined's API: each names its messages, its handler and who may call it, in one table per area.

A handler is `async (Call, request) -> reply`, over messages that are plain typed structs; nothing of HTTP is in it. The
router knows the wire: how requests are read, replies written, errors told. A route without a rule cannot be made.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar, cast

import msgspec

from muster.accounts.callers import Caller, WorkspaceId
from muster.accounts.permissions import Permission


class Message(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Requests: every field has a default, which is what an absent one means; path and query parameters are fields like
    those of the body. Replies: all fields are written, also where they equal their default."""


class Nothing(Message, frozen=True):
    """No request fields, or an empty reply."""


@dataclass(frozen=True, slots=True)
class Call:
    """All that is known about a call beside its message. `remote`: the address it came from. `is_secure`: over TLS.
    `host`: by which the client calls us."""

    caller: Caller
    remote: str = ""
    is_secure: bool = False
    host: str = ""


Req = TypeVar("Req", bound=Message)
Handle: TypeAlias = Callable[[Call, Req], Awaitable[Message]]
Follow: TypeAlias = Callable[[Call, Req], AsyncIterator[Message | bytes]]
"""Bytes: whole lines, encoded as `wire.encode_result` does it, where many readers share them."""
Scope: TypeAlias = Callable[[Call, Req], Awaitable[WorkspaceId | None]]
"""Which workspace a call is about; None: the whole cluster."""
Own: TypeAlias = Callable[[Call, Req], Awaitable[bool]]
"""Whether a call is about the very task that makes it."""
Rep = TypeVar("Rep", bound=Message)
Dress: TypeAlias = Callable[[Call, Rep], Sequence[tuple[str, str]]]
"""Headers that go with a reply."""


@dataclass(frozen=True, slots=True)
class Rule(Generic[Req]):
    """`permission`: None where it is enough to be known. `scope`: None where it is needed in the whole cluster.
    `own`: where tasks may call it for themselves, the field that holds an allocation's or a task's id, or what finds
    out whether a call is about the task."""

    permission: Permission | None
    scope: Scope[Req] | None = None
    own: str | Own[Req] = ""
    is_public: bool = False


def known() -> Rule[Req]:
    """For whoever is logged in."""
    return Rule(None)


def public() -> Rule[Req]:
    """For anybody."""
    return Rule(None, is_public=True)


@dataclass(frozen=True, slots=True)
class Route:
    """Made by `route` and `stream`, which see to it that its parts speak of the same request."""

    method: str
    path: str
    request: type[Message]
    reply: type[Message]
    rule: Rule[Message]
    handle: Handle[Message] | None
    follow: Follow[Message] | None
    body: str = ""
    is_large: bool = False
    is_long: bool = False
    dress: Dress[Message] | None = None


def route(
    method: str,
    path: str,
    request: type[Req],
    reply: type[Message],
    rule: Rule[Req],
    handle: Handle[Req],
    *,
    body: str = "",
) -> Route:
    """`path`: as in `/api/v1/users/{userId}`. `body`: the field that is the whole of the body, where not each of its
    members is a field."""
    erased = cast(Rule[Message], rule), cast(Handle[Message], handle)
    return Route(method, path, request, reply, erased[0], erased[1], None, body)


def long_poll(made: Route) -> Route:
    """A route that answers late: it is given up when the client leaves or the server closes."""
    return replace(made, is_long=True)


def large(made: Route) -> Route:
    """A route whose requests hold files, or whole batches of what a task has written."""
    return replace(made, is_large=True)


def dressed(made: Route, reply: type[Rep], dress: Dress[Rep]) -> Route:
    """A route whose replies have headers of their own."""
    assert made.reply is reply
    return replace(made, dress=cast(Dress[Message], dress))


def stream(path: str, request: type[Req], reply: type[Message], rule: Rule[Req], follow: Follow[Req]) -> Route:
    """Replies come one by one, as long as there are any."""
    return Route("GET", path, request, reply, cast(Rule[Message], rule), None, cast(Follow[Message], follow))
