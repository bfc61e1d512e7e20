"""What a kind's table looks like, and the few ways in which values are shown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from muster.api import timestamps
from muster.api.meta import Condition, Instant
from muster.api.objects import Object
from muster.api.raw import JSON, Document

NONE = "<none>"
UNKNOWN = "<unknown>"
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 31_536_000


@dataclass(frozen=True, slots=True)
class Column:
    """`priority` 0 is always shown, 1 only in wide output."""

    name: str
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""

    def definition(self) -> Document:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description or self.name,
            "priority": self.priority,
        }


NAME = Column("Name", format="name", description="Name must be unique within a namespace.")
AGE = Column("Age", description="How long ago the object was created.")


@dataclass(frozen=True, slots=True)
class Printer:
    """Columns, and the cells of one object in the same order."""

    columns: tuple[Column, ...]
    cells: Callable[[Object, Instant], Sequence[JSON]]


def age(found: Object, now: Instant) -> str:
    return since(found.meta.creation_timestamp, now)


def since(text: str | None, now: Instant) -> str:
    """How long ago a timestamp was, or <unknown>."""
    at = instant(text)
    return UNKNOWN if at is None else duration(now - at)


def instant(text: str | None) -> Instant | None:
    try:
        return timestamps.parse(text) if text else None
    except timestamps.BadTimestamp:
        return None


def duration(seconds: float) -> str:
    """As kubectl shows it: two units while the second still matters, then one."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    total = max(total, 0)
    if total < 2 * _MINUTE:
        return f"{total}s"
    if total < 10 * _MINUTE:
        return _two(total, _MINUTE, "m", 1, "s")
    if total < 3 * _HOUR:
        return f"{total // _MINUTE}m"
    if total < 8 * _HOUR:
        return _two(total, _HOUR, "h", _MINUTE, "m")
    if total < 2 * _DAY:
        return f"{total // _HOUR}h"
    if total < 8 * _DAY:
        return _two(total, _DAY, "d", _HOUR, "h")
    if total < 2 * _YEAR:
        return f"{total // _DAY}d"
    if total < 8 * _YEAR:
        return _two(total, _YEAR, "y", _DAY, "d")
    return f"{total // _YEAR}y"


def _two(total: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    rest = total % large // small
    return f"{total // large}{large_unit}{rest}{small_unit}" if rest else f"{total // large}{large_unit}"


def condition(conditions: Sequence[Condition], type_: str) -> str:
    """The status of a condition, or the empty string."""
    return next((found.status for found in conditions if found.type == type_), "")


def labels(mapping: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((mapping or {}).items())) or NONE
