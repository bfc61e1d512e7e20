"""How long a token is to live, as Determined's clients say it."""

from dataclasses import dataclass
from typing import Final

from muster.api import errors
from muster.api.meta import Instant
from muster.api.volcano import durations

_DAY: Final = 86_400.0
_FOR_EVER: Final = "-1"


@dataclass(frozen=True, slots=True)
class Lifespans:
    """In seconds. `longest_access`: None where access tokens may live for ever."""

    session: float = 7 * _DAY
    access: float = 30 * _DAY
    longest_access: float | None = None

    def access_expires(self, wanted: str | None, now: Instant) -> Instant | None:
        """`wanted`: a duration as Go writes it, `-1` for ever, nothing for the usual. Raises BadRequest."""
        if wanted == _FOR_EVER:
            if self.longest_access is not None:
                raise self._too_long()
            return None
        seconds = self.access if not wanted else _seconds(wanted)
        if self.longest_access is not None and seconds > self.longest_access:
            raise self._too_long()
        return Instant(now + seconds)

    def _too_long(self) -> errors.BadRequest:
        days = (self.longest_access or 0) / _DAY
        return errors.BadRequest(f"lifespan: access tokens may live for {days:g} days at most")


USUAL: Final = Lifespans()


def _seconds(text: str) -> float:
    try:
        found = durations.parse(text)
    except durations.BadDuration as error:
        raise errors.BadRequest(f"lifespan: {error}, nor -1 for ever") from error
    if found <= 0:
        raise errors.BadRequest(f"lifespan: must be longer than nothing, or -1 for ever; found {text!r}")
    return found
