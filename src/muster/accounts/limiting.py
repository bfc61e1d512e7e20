"""How often one may try to log in.

Attempts count when they begin and are given back when they succeed, so that many at once are many attempts. They count
for the address, for the user, and for the user from that address: a guesser is stopped early, one who guesses from
everywhere later, and one who tries many names as well; while a user whose name somebody else abuses can still log in
from elsewhere for long. In memory and bounded: what is forgotten is what has not been used for longest.
"""

import ipaddress
import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from muster.api import errors
from muster.runtime.clock import Clock

_MOST_KEYS: Final = 20_000


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
        self._buckets: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    def attempt(self, username: str, remote: str) -> None:
        """Raises TooManyRequests, with the seconds after which it makes sense to try again."""
        keys = self._keys(username, remote)
        wait = max(self._wait(key, most) for key, most in keys)
        if wait > 0:
            error = errors.TooManyRequests("too many attempts to log in; wait a little")
            error.retry_after = math.ceil(wait)
            raise error
        for key, most in keys:
            self._add(key, most, 1.0)

    def succeeded(self, username: str, remote: str) -> None:
        for key, most in self._keys(username, remote):
            self._add(key, most, -1.0)

    def _keys(self, username: str, remote: str) -> tuple[tuple[tuple[str, str], int], ...]:
        name, address = username[:256].lower(), _network(remote)
        limits = self._limits
        return (((name, address), limits.pair), (("", address), limits.address), ((name, ""), limits.user))

    def _level(self, key: tuple[str, str], most: int) -> float:
        level, at = self._buckets.get(key, (0.0, 0.0))
        return max(0.0, level - (self._clock.monotonic() - at) * most / self._limits.seconds)

    def _wait(self, key: tuple[str, str], most: int) -> float:
        return (self._level(key, most) + 1 - most) * self._limits.seconds / most

    def _add(self, key: tuple[str, str], most: int, amount: float) -> None:
        self._buckets[key] = (max(0.0, self._level(key, most) + amount), self._clock.monotonic())
        self._buckets.move_to_end(key)
        while len(self._buckets) > _MOST_KEYS:
            self._buckets.popitem(last=False)


def _network(remote: str) -> str:
    """Whoever has one address of IPv6 has 2**64 of them."""
    try:
        address = ipaddress.ip_address(remote)
    except ValueError:
        return remote[:64] or "unknown"
    if address.version == 4:
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((int(address), 64), strict=False))
