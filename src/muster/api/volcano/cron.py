"""Schedules of cron jobs: five fields, or a word such as @daily, or `@every 90m`. Parsing only; when the next time
comes is asked elsewhere, where there is a clock.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from zoneinfo import ZoneInfo

from muster.api.volcano import durations

_MONTHS = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6,
    "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12,
}  # fmt: skip
_DAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}
_TERM = re.compile(r"(\*|\?|[a-z0-9]+)(?:-([a-z0-9]+))?(?:/([0-9]{1,9}))?", re.ASCII)
_ZONE_PART = re.compile(r"[A-Za-z0-9._+-]{1,14}", re.ASCII)
_WORDS: Mapping[str, str] = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class BadSchedule(ValueError):
    """The text is not a schedule."""


class BadTimeZone(ValueError):
    """There is no such time zone."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    least: int
    greatest: int
    names: Mapping[str, int]


_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of month", 1, 31, {}),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 6, _DAYS),
)


@dataclass(frozen=True, slots=True)
class Schedule:
    """The times that match. Where both days are restricted, a day that is in either matches, as cron has it."""

    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days_of_month: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    days_of_week: frozenset[int] = frozenset()
    is_any_day_of_month: bool = False
    is_any_day_of_week: bool = False
    every_seconds: float | None = None
    """A fixed pace instead of times of the clock."""


@lru_cache(maxsize=1024)
def parse(text: str) -> Schedule:
    """Raises BadSchedule that says which part cannot be understood."""
    if "TZ=" in text:
        raise BadSchedule("a schedule cannot name a time zone, use timeZone instead")
    if text.startswith("@every "):
        return _every(text.removeprefix("@every ").strip())
    if text.startswith("@"):
        if text not in _WORDS:
            raise BadSchedule(f"{text!r} is none of {', '.join(_WORDS)}, @every")
        text = _WORDS[text]
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise BadSchedule(f"expected 5 fields (minute, hour, day of month, month, day of week), found {len(parts)}")
    minutes, hours, days, months, weekdays = (_values(p, field) for p, field in zip(parts, _FIELDS, strict=True))
    return Schedule(minutes, hours, days, months, weekdays, _is_any(parts[2]), _is_any(parts[4]))


def _is_any(part: str) -> bool:
    """Whether a day field restricts nothing. `*/2` does."""
    return any(term in ("*", "?", "*/1", "?/1") for term in part.split(","))


def _every(text: str) -> Schedule:
    try:
        seconds = durations.parse(text)
    except durations.BadDuration as error:
        raise BadSchedule(str(error)) from error
    # Go rounds a pace below a second up to one.
    return Schedule(every_seconds=max(1.0, float(int(seconds))))


def _values(part: str, field: _Field) -> frozenset[int]:
    found: set[int] = set()
    for term in part.lower().split(","):
        match = _TERM.fullmatch(term)
        if match is None:
            raise BadSchedule(f"{field.name}: cannot understand {term!r}")
        found.update(_range(match, term, field))
    return frozenset(found)


def _range(match: re.Match[str], term: str, field: _Field) -> range:
    start, end, step = match.groups()
    if start in ("*", "?"):
        if end is not None:
            raise BadSchedule(f"{field.name}: cannot understand {term!r}")
        low, high = field.least, field.greatest
    else:
        low = _number(start, field)
        # `5/10` means from 5 on, every 10.
        high = _number(end, field) if end is not None else field.greatest if step else low
    if low > high:
        raise BadSchedule(f"{field.name}: {term!r} begins after it ends")
    if step is not None and int(step) == 0:
        raise BadSchedule(f"{field.name}: the step of {term!r} must be greater than 0")
    return range(low, high + 1, int(step or 1))


def _number(text: str, field: _Field) -> int:
    value = field.names.get(text)
    if value is None:
        if not text.isdigit() or len(text) > 4:
            raise BadSchedule(f"{field.name}: {text!r} is not a number")
        value = int(text)
    if not field.least <= value <= field.greatest:
        raise BadSchedule(f"{field.name}: {text} is not from {field.least} to {field.greatest}")
    return value


@lru_cache(maxsize=1024)
def check_time_zone(name: str) -> None:
    """Raises BadTimeZone. The database of time zones is read once a name; it is a table, not state."""
    parts = name.split("/")
    if any(not _ZONE_PART.fullmatch(part) or part in (".", "..") or part.startswith("-") for part in parts):
        raise BadTimeZone(f"unknown timeZone {name}")
    if name.lower() == "local":
        raise BadTimeZone("timeZone must be an explicit time zone, not the server's own")
    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:
        raise BadTimeZone(f"invalid timeZone {name}: not in the time zone database") from error
