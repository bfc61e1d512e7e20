"""What of a request's and a reply's headers goes on through the proxy. Pure.

Bodies are framed anew on each side by that side's own parser: lengths and encodings of the transfer are never copied.
What proves to us who somebody is stays with us: a task must not be able to act as whoever looks at it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from muster.server.determined.authenticating import ALLOCATION_HEADER

Pairs: TypeAlias = Sequence[tuple[str, str]]
SESSION_COOKIE: Final = "auth"
TOKEN_COOKIE: Final = "muster-proxy-token"  # noqa: S105 - a name
_HOP: Final = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "trailers", "transfer-encoding", "upgrade", "http2-settings", "expect", "content-length",
    }
)  # fmt: skip
"""Of one connection only. A length is told by whoever sends a body."""
_OURS: Final = frozenset(
    {
        "forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port",
        "x-forwarded-prefix", "x-real-ip", ALLOCATION_HEADER,
    }
)  # fmt: skip
"""We say where a request comes from, not the client."""
_ORIGIN_WIDE: Final = frozenset(
    {
        "alt-svc", "clear-site-data", "service-worker-allowed", "strict-transport-security", "public-key-pins",
    }
)  # fmt: skip
"""A reply with them would speak for all of this server, not for one service."""
_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BAD_VALUE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Front:
    """How the client sees us: for whom the service should take itself to be asked."""

    host: str
    scheme: str
    remote: str
    prefix: str
    """`/proxy/<service>`"""


def forwarded(
    pairs: Pairs, front: Front, *, keeps_authorization: bool, authorization: str = ""
) -> list[tuple[str, str]]:
    """For the service. `authorization`: what to say to it where the client says nothing."""
    dropped = _HOP | _OURS | _named_in_connection(pairs)
    kept: list[tuple[str, str]] = []
    for name, value in pairs:
        if name in dropped or name.startswith("sec-websocket-") or not _is_sound(name, value):
            continue
        if name == "authorization" and not keeps_authorization:
            continue
        sent = _without_ours(value) if name == "cookie" else value
        if sent:
            kept.append((name, sent))
    if authorization and all(name != "authorization" for name, _ in kept):
        kept.append(("authorization", authorization))
    return [
        *((name, value) for name, value in kept if name != "host"),
        ("host", front.host),
        ("x-forwarded-for", front.remote),
        ("x-forwarded-host", front.host),
        ("x-forwarded-proto", front.scheme),
        ("x-forwarded-prefix", front.prefix),
    ]


def returned(pairs: Pairs, front: Front, origin: str) -> list[tuple[str, str]]:
    """For the client. `origin`: of the service as we reach it, as in `http://10.0.0.1:2900`."""
    dropped = (_HOP | _ORIGIN_WIDE | _named_in_connection(pairs)) - {"content-length"}
    told: list[tuple[str, str]] = []
    for sent, value in pairs:
        name = sent.lower()
        if name in dropped or not _is_sound(name, value):
            continue
        if name in ("location", "content-location"):
            told.append((name, _location(value, origin)))
        elif name == "set-cookie":
            told += [("set-cookie", cookie)] if (cookie := _cookie(value, front.prefix)) else []
        else:
            told.append((name, value))
    if any(name.lower() == "transfer-encoding" for name, _ in pairs):
        return [(name, value) for name, value in told if name != "content-length"]
    return told


def own_cookie(token: str, front: Front) -> tuple[str, str]:
    """So that a page which was opened with a token in its address can load the rest of itself."""
    secure = "; Secure" if front.scheme == "https" else ""
    return "set-cookie", f"{TOKEN_COOKIE}={token}; Path={front.prefix}/; HttpOnly; SameSite=Lax{secure}"


def _named_in_connection(pairs: Pairs) -> set[str]:
    return {
        token.strip().lower() for name, value in pairs if name.lower() == "connection" for token in value.split(",")
    }


def _is_sound(name: str, value: str) -> bool:
    return _NAME.fullmatch(name) is not None and _BAD_VALUE.search(value) is None


def _without_ours(cookies: str) -> str:
    return "; ".join(
        pair.strip()
        for pair in cookies.split(";")
        if pair.strip() and pair.partition("=")[0].strip() not in (SESSION_COOKIE, TOKEN_COOKIE)
    )


def _location(value: str, origin: str) -> str:
    """A service that names itself by the address at which we reach it means the one at which the client does."""
    try:
        parts = urlsplit(value)
    except ValueError:
        return value
    if f"{parts.scheme}://{parts.netloc}".lower() != origin.lower():
        return value
    path = parts.path or "/"
    return f"{path}{'?' if parts.query else ''}{parts.query}{'#' if parts.fragment else ''}{parts.fragment}"


def _cookie(value: str, prefix: str) -> str:
    """Only for this service, and never in place of ours. Empty: none."""
    pair, *attributes = (part.strip() for part in value.split(";"))
    name = pair.partition("=")[0].strip()
    if name in (SESSION_COOKIE, TOKEN_COOKIE) or "=" not in pair:
        return ""
    path = next((each for each in attributes if each.lower().startswith("path=")), "")[5:].strip()
    own = path if path == prefix or path.startswith(f"{prefix}/") else f"{prefix}/"
    kept = [each for each in attributes if each and not each.lower().startswith(("path=", "domain="))]
    return "; ".join([pair, *kept, f"Path={own}"])


def decoded(raw: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in raw]
