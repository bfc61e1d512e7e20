"""How often one may try to log in.

Attempts count when they begin and are given back when they succeed, so that many at once are many attempts. They count
for the address, for the user, and for the user from that address: a guesser is stopped early, one who guesses from
everywhere later, and one who tries many names as well. Nobody can keep a user out by that: where a user has logged in
from before, only what fails there counts. In memory and bounded: what is forgotten is what has not been used for
longest.
"""

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from muster.api import errors
from muster.runtime.clock import Clock

_MOST_KEYS: Final = 20_000
_Key: TypeAlias = tuple[str | None, str | None]
"""A user and an address; None where any counts."""
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Limits:
    """Attempts that may fail in `seconds`; then one more each time that a share of it has passed."""

    pair: int = 10
    address: int = 60
    user: int = 120
    seconds: float = 60.0


USUAL: Final = Limits()


class LoginLimiter:
    def __init__(self, clock: Clock, limits: Limits = USUAL) -> None:
        self._clock = clock
        self._limits = limits
        # key -> (attempts that count, when that was so); they leak away with time.
        self._buckets: OrderedDict[_Key, tuple[float, float]] = OrderedDict()
        self._familiar: OrderedDict[_Key, None] = OrderedDict()

    def attempt(self, username: str | None, remote: str) -> None:
        """`username`: None where it is not known yet. Raises TooManyRequests, with the seconds after which it makes
        sense to try again."""
        keys = self._keys(username, remote)
        wait = max(self._wait(key, most) for key, most in keys)
        if wait > 0:
            error = errors.TooManyRequests("too many attempts to log in; wait a little")
            error.retry_after = math.ceil(wait)
            raise error
        for key, most in keys:
            self._add(key, most, 1.0)

    def succeeded(self, username: str | None, remote: str) -> None:
        for key, most in self._keys(username, remote):
            self._add(key, most, -1.0)
        if username is not None:
            self._familiar[_pair(username, remote)] = None
            self._familiar.move_to_end(_pair(username, remote))
            _bound(self._familiar)

    def _keys(self, username: str | None, remote: str) -> Sequence[tuple[_Key, int]]:
        limits = self._limits
        anybody = (None, _network(remote)), limits.address
        if username is None:
            return (anybody,)
        pair = _pair(username, remote)
        here = pair, limits.pair
        return (here,) if pair in self._familiar else (here, anybody, ((pair[0], None), limits.user))

    def _level(self, key: _Key, most: int) -> float:
        level, at = self._buckets.get(key, (0.0, 0.0))
        return max(0.0, level - (self._clock.monotonic() - at) * most / self._limits.seconds)

    def _wait(self, key: _Key, most: int) -> float:
        return (self._level(key, most) + 1 - most) * self._limits.seconds / most

    def _add(self, key: _Key, most: int, amount: float) -> None:
        self._buckets[key] = (max(0.0, self._level(key, most) + amount), self._clock.monotonic())
        self._buckets.move_to_end(key)
        _bound(self._buckets)


def _bound(kept: OrderedDict[_Key, V]) -> None:
    while len(kept) > _MOST_KEYS:
        kept.popitem(last=False)


def _pair(username: str, remote: str) -> _Key:
    return username[:256].lower(), _network(remote)


def _network(remote: str) -> str:
    """Whoever has one address of IPv6 has 2**64 of them."""
    try:
        address = ipaddress.ip_address(remote)
    except ValueError:
        return remote[:64] or "unknown"
    if address.version == 4:
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((int(address), 64), strict=False))
