"""Who sent a request: from its headers, whichever way the client has of saying it.

The command line sends `Authorization: Bearer`, a task `Grpc-Metadata-x-allocation-token`, a browser the cookie `auth`.
The first of them that is there decides; a wrong one is not made good by another.
"""

from collections.abc import Awaitable, Callable, Mapping
from hmac import compare_digest
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from muster.accounts.callers import Caller
from muster.api import errors

ALLOCATION_HEADER: Final = "grpc-metadata-x-allocation-token"
_BEARER: Final = "bearer "
Lookup: TypeAlias = Callable[[str], Awaitable[Caller | None]]
"""For whom a token speaks."""


class Credentials:
    """`root`: the token that the server's owner finds in the data directory, and for whom it speaks."""

    def __init__(self, lookup: Lookup, root_token: str, root: Caller) -> None:
        self._lookup = lookup
        self._root_token = root_token.encode()
        self._root = root

    async def caller(self, headers: Mapping[str, str]) -> Caller | None:
        """None for nobody we know."""
        return await self.of_token(token_of(headers))

    async def of_token(self, token: str) -> Caller | None:
        if not token:
            return None
        if self._root_token and compare_digest(token.encode(), self._root_token):
            return self._root
        return await self._lookup(token)


def token_of(headers: Mapping[str, str]) -> str:
    """Empty where none was sent."""
    for name in ("authorization", ALLOCATION_HEADER):
        sent = headers.get(name)
        if sent:
            return sent[len(_BEARER) :].strip() if sent[: len(_BEARER)].lower() == _BEARER else ""
    return cookie(headers, "auth")


def cookie(headers: Mapping[str, str], name: str) -> str:
    """Empty also where there are several that differ: a script in a page of some task may have put another one before
    ours, so that somebody acts as somebody else without noticing."""
    pairs = (pair.strip().partition("=") for pair in headers.get("cookie", "").split(";"))
    found = {value.strip('"') for each, _, value in pairs if each == name}
    return found.pop() if len(found) == 1 else ""


def check_origin(method: str, headers: Mapping[str, str]) -> None:
    """A browser sends its cookie also where a page of somebody else asks it to; such a page must not change anything,
    nor log somebody in as somebody else. Raises Forbidden."""
    if method in ("GET", "HEAD") or "authorization" in headers:
        return
    site, origin = headers.get("sec-fetch-site", ""), headers.get("origin", "")
    if site and site not in ("same-origin", "none"):
        raise errors.Forbidden("a page of another site may not use this session")
    if not site and origin and urlsplit(origin).netloc != headers.get("host", ""):
        raise errors.Forbidden(f"a page of {origin} may not use this session")
