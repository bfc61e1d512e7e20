"""Instants as RFC 3339 text, the way Kubernetes writes its Time (seconds) and MicroTime (microseconds)."""

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

from muster.api.meta import Instant

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UTC = "+00:00"
_TEXT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)


class BadTimestamp(ValueError):
    """The text is not an RFC 3339 date and time with a zone."""


def to_text(instant: Instant) -> str:
    """Whole seconds, rounded down: `2026-01-02T03:04:05Z`."""
    return _second_to_text(round(instant * 1_000_000) // 1_000_000)


@lru_cache(maxsize=256)
def _second_to_text(second: int) -> str:
    """Remembered: much is written in one second."""
    return f"{_at(Instant(float(second))).isoformat(timespec='seconds').removesuffix(_UTC)}Z"


def to_micro_text(instant: Instant) -> str:
    return f"{_at(instant).isoformat(timespec='microseconds').removesuffix(_UTC)}Z"


@lru_cache(maxsize=4096)
def parse(text: str) -> Instant:
    """Raises BadTimestamp. Remembered: what is made together carries the same second."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise _bad(text)
    *parts, fraction, sign, hours, minutes = match.groups()
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    try:
        zone = timezone(-offset if sign == "-" else offset)
        when = datetime(*map(int, parts), tzinfo=zone)  # type: ignore[misc,arg-type]
        micros = (when - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError) as error:
        raise _bad(text) from error
    return Instant((micros + int((fraction or "").ljust(6, "0")[:6])) / 1_000_000)


def left_of(seconds: float, since: Instant, now: Instant) -> float:
    """What is left of a wait that began then; 0 where it is over. Whoever told when may have a clock that is ahead,
    which must not make the wait longer. Where it begins after its own end, a clock was set back: nobody waits until
    it is that late again."""
    left = since + seconds - now
    return 0.0 if left > 2 * seconds else min(seconds, max(0.0, left))


def _at(instant: Instant) -> datetime:
    return _EPOCH + timedelta(microseconds=round(instant * 1_000_000))


def _bad(text: str) -> BadTimestamp:
    return BadTimestamp(f"{text[:80]!r} is not a time: expected RFC 3339 such as 2026-01-02T03:04:05Z")
