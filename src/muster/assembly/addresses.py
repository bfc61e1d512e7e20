"""Where a platform listens, and how others reach it."""

import contextlib
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Final
from urllib.parse import urlsplit

from muster.accounts.hosts import is_loopback, is_loopback_url
from muster.api import errors
from muster.server import activation
from muster.server.listening import address, bind
from muster.settings.sections import PlatformSettings

_NEAR: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
"""How who listens on all addresses is reached from this machine."""


@dataclass(frozen=True, slots=True)
class Place:
    """`url`: how others reach us. `is_local`: nobody does but this machine."""

    sockets: Sequence[socket.socket]
    url: str
    is_local: bool


def check(settings: PlatformSettings) -> None:
    """Raises BadRequest that names the setting which will not do."""
    if settings.url:
        parts = urlsplit(settings.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
            told = "write it as https://muster.example.org or http://10.0.0.1:7077"
            raise errors.BadRequest(f"url: {told}, found {settings.url!r}")
    for number, text in enumerate(settings.security.trusted_proxies):
        try:
            ip_network(text)
        except ValueError as error:
            told = f"security.trusted_proxies[{number}]: {error}; write it as 10.0.0.1 or 10.1.0.0/16"
            raise errors.BadRequest(told) from error


def take(settings: PlatformSettings, stack: contextlib.AsyncExitStack) -> Place:
    """Listens from now on, and until the stack is closed. Raises OSError where the address is taken."""
    passed = activation.passed_sockets(os.environ, os.getpid())
    sockets = passed or [bind(settings.host, settings.port)]
    for each in sockets:
        stack.callback(each.close)
    host = str(sockets[0].getsockname()[0]) if passed else settings.host
    found = address(sockets[0], is_secure=settings.security.tls.is_on, host=near(host))
    return Place(sockets, settings.url.rstrip("/") or found, _is_local(settings, sockets))


def near(host: str) -> str:
    """The same, as it is reached from this machine."""
    return _NEAR.get(host, host)


def _is_local(settings: PlatformSettings, sockets: Sequence[socket.socket]) -> bool:
    """A proxy on this machine brings others in, and nobody would name it a URL but for them."""
    is_passed_on = settings.security.trusted_proxies or (settings.url and not is_loopback_url(settings.url))
    return not is_passed_on and all(is_loopback(str(each.getsockname()[0])) for each in sockets)
