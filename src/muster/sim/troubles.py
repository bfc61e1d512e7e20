"""When the control plane itself suffers faults, and since when it does not: promises about time count from there."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

from muster.runtime.clock import Clock

RECOVERY_SECONDS = 60.0
"""Until everything runs again and knows what happened: a lease must run out, watches and parts are started again after
pauses that grow."""


class Troubles:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._under_way = 0
        self._ended = -math.inf

    @contextmanager
    def lasting(self) -> Iterator[None]:
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._ended = self._clock.monotonic()

    def strike(self) -> None:
        """At this moment, and over."""
        self._ended = self._clock.monotonic()

    @property
    def recovered_at(self) -> float:
        """When all will be, or was, as if nothing had happened; never, while something happens."""
        return math.inf if self._under_way else self._ended + RECOVERY_SECONDS
