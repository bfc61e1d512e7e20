"""Lengths of time as people read and write them."""

import re

from muster.api import errors, timestamps
from muster.api.meta import Instant

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def show(seconds: float) -> str:
    """Two units at most: `0.4s`, `12s`, `3m5s`, `2h10m`, `4d6h`."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f}s"
    whole = int(seconds)
    for size, unit, below, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size}{unit}{f'{rest}{smaller}' if rest else ''}"
    return f"{whole}s"


def age(created: str, now: float) -> str:
    """How long ago a timestamp of an object was; `-` where it has none."""
    try:
        return show_whole(now - timestamps.parse(created))
    except timestamps.BadTimestamp:
        return "-"


def show_whole(seconds: float) -> str:
    """As `show`, without fractions: ages come from timestamps that have none."""
    return show(seconds) if seconds >= 10 else f"{max(int(seconds), 0)}s"


def between(start: str, end: str) -> float | None:
    try:
        return max(0.0, timestamps.parse(end) - timestamps.parse(start))
    except timestamps.BadTimestamp:
        return None


def parse(text: str) -> float:
    """Seconds: `90`, `90s`, `5m`, `1h30m`. Raises BadRequest."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise errors.BadRequest(f"{text!r} is not a length of time; write it like 90s, 5m or 1h30m")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def to_text(seconds: float) -> str:
    return timestamps.to_text(Instant(seconds))
