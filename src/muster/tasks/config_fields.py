"""Reading configurations that people wrote: all that is wrong is told at once, each with its path. Pure."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from muster.api import errors, fields, raw
from muster.api.raw import JSON, Document

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS: Final[Mapping[str, float]] = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_POWERS: Final[Mapping[str, int]] = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_MOST: Final = 2**31 - 1
DEVICES_INSTEAD: Final = (
    "a task has the GPUs of its resources.slots; for another device of the node, mount its file by a hostPath volume "
    "in environment.pod_spec"
)


class Fields:
    """One object of a configuration. What is not asked for by name is unknown, and told by `finish`."""

    def __init__(self, values: JSON, path: str = "", problems: list[str] | None = None) -> None:
        self.problems: list[str] = [] if problems is None else problems
        self.path = path
        self._values: Mapping[str, JSON] = {}
        self._known: set[str] = set()
        if isinstance(values, Mapping):
            self._values = values
        elif values is not None:
            self.problem("", f"must be an object, found {raw.type_name(values)}")

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path and name else self.path or name

    def problem(self, name: str, text: str) -> None:
        self.problems.append(f"{self.at(name)}: {text}")

    def raw(self, name: str) -> JSON:
        self._known.add(name)
        return self._values.get(name)

    def text(self, name: str, default: str = "", *, choices: Sequence[str] = ()) -> str:
        found = self.raw(name)
        if found is None:
            return default
        if not isinstance(found, str) or "\0" in found:
            self.problem(name, f"must be a text, found {_shown(found)}")
            return default
        if choices and found not in choices:
            self.problem(name, f"must be one of {', '.join(choices)}, found {_shown(found)}")
            return default
        return found

    def integer(self, name: str, default: int | None = None, *, least: int = 0, most: int = _MOST) -> int | None:
        found = self.raw(name)
        if found is None:
            return default
        if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
            self.problem(name, f"must be a whole number from {least} to {most}, found {_shown(found)}")
            return default
        return found

    def number(self, name: str, default: float | None = None, *, above: float | None = None) -> float | None:
        """`above`: it must be more than that."""
        found = self.raw(name)
        if found is None:
            return default
        is_number = isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found)
        if not is_number or (above is not None and found <= above):
            wanted = "a number" if above is None else f"a number above {above:g}"
            self.problem(name, f"must be {wanted}, found {_shown(found)}")
            return default
        return float(found)

    def flag(self, name: str, default: bool = False) -> bool:
        found = self.raw(name)
        if found is None:
            return default
        if not isinstance(found, bool):
            self.problem(name, f"must be true or false, found {_shown(found)}")
            return default
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        found = self.raw(name)
        if found is None:
            return ()
        if not isinstance(found, list) or not all(isinstance(each, str) and "\0" not in each for each in found):
            self.problem(name, "must be a list of texts")
            return ()
        return tuple(found)

    def integers(self, name: str) -> tuple[int, ...]:
        found = self.raw(name)
        if found is None:
            return ()
        if not isinstance(found, list) or not all(type(each) is int and 0 <= each <= _MOST for each in found):
            self.problem(name, f"must be a list of whole numbers from 0 to {_MOST}")
            return ()
        return tuple(found)

    def duration(self, name: str) -> float | None:
        """Seconds; from a number of them, or from a text as `1h30m`."""
        found = self.raw(name)
        if found is None:
            return None
        seconds = duration(found)
        if seconds is None:
            self.problem(name, f'must be a time as "90s", "30m" or "1h30m", found {_shown(found)}')
        return seconds

    def size(self, name: str) -> int | None:
        """Bytes; from a number of them, or from a text as `4Gi`."""
        found = self.raw(name)
        if found is None:
            return None
        if isinstance(found, int) and not isinstance(found, bool) and found >= 0:
            return found
        match = _SIZE.fullmatch(found.strip()) if isinstance(found, str) else None
        if match is None:
            self.problem(name, f'must be a size in bytes, or as "4Gi", found {_shown(found)}')
            return None
        return int(float(match[1]) * 1024 ** _POWERS[match[2].lower()])

    def inside(self, name: str) -> "Fields":
        return Fields(self.raw(name), self.at(name), self.problems)

    def each(self, name: str) -> Iterator["Fields"]:
        found = self.raw(name)
        if found is None:
            return
        if not isinstance(found, list):
            self.problem(name, f"must be a list, found {raw.type_name(found)}")
            return
        for number, value in enumerate(found):
            yield Fields(value, self.at(f"{name}[{number}]"), self.problems)

    def document(self, name: str) -> Document:
        """As it is: somebody else knows what it should be."""
        found = self.raw(name)
        if found is None:
            return {}
        if not isinstance(found, dict):
            self.problem(name, f"must be an object, found {raw.type_name(found)}")
            return {}
        return found

    def refuse(self, name: str, instead: str, *, unless: Iterable[JSON] = ()) -> None:
        """A name that Determined knows and that cannot be kept here. `unless`: values that mean nothing anyway."""
        found = self.raw(name)
        if found is not None and found not in (*unless, [], {}, "", False):
            self.problem(name, instead)

    def finish(self) -> None:
        for name in self._values:
            if name not in self._known:
                hint = fields.nearest(str(name), self._known) or f"; known are {', '.join(sorted(self._known))}"
                self.problem(str(name)[:80], f"unknown key{hint}")


def duration(value: JSON) -> float | None:
    """None where it is none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if value >= 0 else None
    if not isinstance(value, str) or not value:
        return None
    if value == "0":
        return 0.0
    total, end = 0.0, 0
    for match in _DURATION.finditer(value):
        if match.start() != end:
            return None
        total, end = total + float(match[1]) * _SECONDS[match[2]], match.end()
    return total if end == len(value) else None


def refuse(problems: Sequence[str], what: str) -> None:
    """Raises BadRequest where there are any."""
    if problems:
        raise errors.BadRequest(f"{what}: {'; '.join(problems[:10])}")


def _shown(value: JSON) -> str:
    return f"{raw.encode(value).decode(errors='replace')[:80]}"
