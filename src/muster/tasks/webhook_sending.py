"""Sends one event to one receiver, and sees to it that nobody can make the server call what only it can reach.

The address is looked at where it cannot change any more: when the connection is opened, after all names are resolved.
Redirects are not followed, proxies not used, and replies not read: only their status counts.
"""

import asyncio
import hashlib
import hmac
import ipaddress
import socket
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Self, TypeAlias
from urllib.parse import urlsplit

import aiohttp
from aiohttp import ClientError, ClientTimeout, TCPConnector
from aiohttp.abc import AbstractCookieJar

from muster.api import errors
from muster.tasks.webhook_records import Delivery
from muster.version import VERSION

SIGNATURE: Final = "X-Determined-AI-Signature"
SIGNED_AT: Final = "X-Determined-AI-Signature-Timestamp"
EVENT_ID: Final = "X-Muster-Event-Id"
"""The same for each attempt: receivers know by it what they had already."""
_TIMEOUT: Final = ClientTimeout(total=10.0, connect=5.0)
_WORTH_ANOTHER_TRY: Final = frozenset({408, 425, 429})
_MOST_CONNECTIONS: Final = 16
_LOOKUP_SECONDS: Final = 5.0
_LONGEST_ERROR: Final = 500
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_EMBEDDING: Final = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
"""Where the last four bytes are an address of the other kind."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The receiver has it."""


@dataclass(frozen=True, slots=True)
class NotNow:
    """It may go better later. `after`: the seconds that the receiver asks for."""

    error: str
    after: float | None = None


@dataclass(frozen=True, slots=True)
class Never:
    """It will not go better later."""

    error: str


Outcome: TypeAlias = Taken | NotNow | Never


def networks(texts: Sequence[str], field: str) -> tuple[Network, ...]:
    """Raises BadRequest. `field`: where they were set."""
    found: list[Network] = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text, strict=False))
        except ValueError as error:
            raise errors.BadRequest(f"{field}: {error}; write networks as in 10.0.0.0/8") from error
    return tuple(found)


def is_allowed(text: str, allowed: Sequence[Network]) -> bool:
    """Whether events may be sent to the address: all that are public, and those that were set."""
    try:
        address = _plain(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return False
    if any(address.version == network.version and address in network for network in allowed):
        return True
    is_of_a_site = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    return address.is_global and not address.is_multicast and not is_of_a_site


def _plain(address: Address) -> Address:
    """The address that is meant by one that only wraps it."""
    if address.version == 4:
        return address
    assert isinstance(address, ipaddress.IPv6Address)
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
    if inner is None and any(address in network for network in _EMBEDDING) and int(address) > 1:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address if inner is None else inner


def signature(key: str, timestamp: int, body: bytes) -> str:
    return hmac.new(key.encode(), f"{timestamp},".encode() + body, hashlib.sha256).hexdigest()


_HOW: Final = "an administrator can allow its network (webhooks.allowed_networks)"
_refused: ContextVar[list[str]] = ContextVar("refused addresses")


class Sender:
    """Use as an async context manager. `allowed`: networks that are not public, and may be called all the same."""

    def __init__(self, key: str, allowed: Sequence[Network] = ()) -> None:
        self._key = key
        self._allowed = tuple(allowed)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        jar: AbstractCookieJar = aiohttp.DummyCookieJar()
        connector = TCPConnector(
            limit=_MOST_CONNECTIONS, force_close=True, use_dns_cache=False, socket_factory=self._socket
        )
        self._session = aiohttp.ClientSession(connector=connector, cookie_jar=jar, timeout=_TIMEOUT)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def check(self, url: str) -> None:
        """Raises BadRequest where the address is one that will not be called, as far as that can be seen now."""
        parts = urlsplit(url)
        try:
            async with asyncio.timeout(_LOOKUP_SECONDS):
                found = await asyncio.get_running_loop().getaddrinfo(parts.hostname, None, type=socket.SOCK_STREAM)
        except (OSError, TimeoutError, UnicodeError):
            return  # a name may come to mean something later
        addresses = [str(each[4][0]) for each in found]
        if not any(is_allowed(address, self._allowed) for address in addresses):
            raise errors.BadRequest(f"url: {addresses[0]} is not a public address; {_HOW}")

    async def send(self, delivery: Delivery, now: float) -> Outcome:
        assert self._session is not None
        refused: list[str] = []
        token = _refused.set(refused)
        try:
            async with self._session.post(
                delivery.url, data=delivery.body, headers=self._headers(delivery, now), allow_redirects=False
            ) as reply:
                return _judged(reply.status, reply.headers.get("Retry-After", ""))
        except TimeoutError:
            return NotNow("no reply in time")
        except aiohttp.InvalidURL as error:
            return Never(f"the address will not do: {error}"[:_LONGEST_ERROR])
        except (ClientError, OSError, ValueError) as error:
            if refused:
                return Never(f"{refused[0]} is not a public address; {_HOW}")
            return NotNow(f"{type(error).__name__}: {error}"[:_LONGEST_ERROR])
        finally:
            _refused.reset(token)

    def _headers(self, delivery: Delivery, now: float) -> dict[str, str]:
        timestamp = int(now)
        return {
            "Content-Type": "application/json; charset=UTF-8",
            "User-Agent": f"muster/{VERSION}",
            EVENT_ID: delivery.event,
            SIGNED_AT: str(timestamp),
            SIGNATURE: signature(self._key, timestamp, delivery.body),
        }

    def _socket(self, info: tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]) -> socket.socket:
        """Called for every address that a connection is opened to, and for no other."""
        family, kind, protocol, _name, address = info
        if not is_allowed(address[0], self._allowed):
            _refused.get().append(address[0])
            raise OSError(f"{address[0]} is not a public address")
        return socket.socket(family, kind, protocol)


def _judged(status: int, retry_after: str) -> Outcome:
    if 200 <= status < 300:
        return Taken()
    if status >= 500 or status in _WORTH_ANOTHER_TRY:
        seconds = retry_after.strip()
        is_told = seconds.isascii() and seconds.isdigit() and len(seconds) <= 9
        return NotNow(f"the receiver answered {status}", float(seconds) if is_told else None)
    if 300 <= status < 400:
        return Never(f"the receiver answered {status}; redirects are not followed, name the last address instead")
    return Never(f"the receiver answered {status}")
