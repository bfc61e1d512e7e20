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
    """`url`: how others reach us. `is_local`: nobody does but this machine. `pages`: for those of tasks, where they
    have a port of their own."""

    sockets: Sequence[socket.socket]
    url: str
    is_local: bool
    pages: socket.socket | None = None


def check(settings: PlatformSettings) -> None:
    """Raises BadRequest that names the setting which will not do."""
    host = _host("url", settings.url)
    _host("tasks.master_url", settings.tasks.master_url)
    pages = _host("proxy.url", settings.proxy.url)
    if pages and settings.proxy.port is None:
        raise errors.BadRequest("proxy.url: needs proxy.port, at which pages of tasks are served")
    if pages and host and pages != host:
        # Of another host browsers would not send us the session by which we know who may look.
        raise errors.BadRequest(f"proxy.url: must have the host of url, {host}, and another port; found {pages}")
    for number, text in enumerate(settings.security.trusted_proxies):
        try:
            ip_network(text)
        except ValueError as error:
            told = f"security.trusted_proxies[{number}]: {error}; write it as 10.0.0.1 or 10.1.0.0/16"
            raise errors.BadRequest(told) from error


def _host(field: str, url: str) -> str:
    """Empty where there is none. Raises BadRequest."""
    if not url:
        return ""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
        told = "write it as https://muster.example.org or http://10.0.0.1:7077"
        raise errors.BadRequest(f"{field}: {told}, found {url!r}")
    return parts.hostname


def take(settings: PlatformSettings, stack: contextlib.AsyncExitStack) -> Place:
    """Listens from now on, and until the stack is closed. Raises OSError where the address is taken, BadRequest where
    it is the one for pages of tasks."""
    passed = activation.passed_sockets(os.environ, os.getpid())
    sockets = passed or [bind(settings.host, settings.port)]
    for each in sockets:
        stack.callback(each.close)
    pages = _pages(settings, stack)
    host = str(sockets[0].getsockname()[0]) if passed else settings.host
    found = address(sockets[0], is_secure=settings.security.tls.is_on, host=near(host))
    return Place(sockets, settings.url.rstrip("/") or found, _is_local(settings, sockets), pages)


def _pages(settings: PlatformSettings, stack: contextlib.AsyncExitStack) -> socket.socket | None:
    port = settings.proxy.port
    if port is None:
        return None
    try:
        return stack.enter_context(bind(settings.host, port))
    except OSError as error:
        raise errors.BadRequest(f"proxy.port: cannot listen on {settings.host}:{port}: {error.strerror}") from error


def near(host: str) -> str:
    """The same, as it is reached from this machine."""
    return _NEAR.get(host, host)


def _is_local(settings: PlatformSettings, sockets: Sequence[socket.socket]) -> bool:
    """A proxy on this machine brings others in, and nobody would name it a URL but for them."""
    is_passed_on = settings.security.trusted_proxies or (settings.url and not is_loopback_url(settings.url))
    return not is_passed_on and all(is_loopback(str(each.getsockname()[0])) for each in sockets)
