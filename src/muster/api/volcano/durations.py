"""Lengths of time as Go writes them: `300ms`, `1h30m`, `-1.5s`."""

import re
from fractions import Fraction

_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_WHOLE = re.compile(rf"[+-]?(?:0|(?:{_PART.pattern})+)", re.ASCII)
_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_LONGEST = 64


class BadDuration(ValueError):
    """The text is not a duration, or longer than 64 bits of nanoseconds."""


def parse(text: str) -> float:
    """Seconds. Raises BadDuration."""
    if len(text) > _LONGEST or not _WHOLE.fullmatch(text):
        raise BadDuration(f"{text[:_LONGEST]!r} is not a duration such as 30s, 5m or 1h30m")
    total = sum(Fraction(number.removesuffix(".")) * _NANOSECONDS[unit] for number, unit in _PART.findall(text))
    if total >= 2**63:
        raise BadDuration(f"{text!r} is longer than 290 years")
    seconds = float(Fraction(total, 10**9))
    return -seconds if text.startswith("-") else seconds
