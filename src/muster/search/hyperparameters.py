"""The space that is searched: what each hyperparameter can be, how one is drawn from it, and which points a grid has.

Names are taken in sorted order, because documents do not keep theirs: what a seed or a number stands for must not
depend on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final, Protocol, TypeAlias

from muster.api.raw import JSON, Document

Path: TypeAlias = tuple[str, ...]


class Axis(Protocol):
    """One hyperparameter."""

    @property
    def count(self) -> int:
        """Of its points in a grid; 0 where it does not say."""
        ...

    def at(self, unit: float) -> JSON:
        """Equally likely values for equally likely `unit`, which is from 0 and below 1."""
        ...

    def point(self, index: int) -> JSON:
        """The grid's, from 0 to `count` - 1."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    value: JSON
    count: int = 1

    def at(self, unit: float) -> JSON:  # noqa: ARG002
        return self.value

    def point(self, index: int) -> JSON:  # noqa: ARG002
        return self.value


@dataclass(frozen=True, slots=True)
class Integer:
    """Both ends can be drawn."""

    low: int
    high: int
    count: int = 0

    def at(self, unit: float) -> int:
        return min(self.low + int(unit * (self.high - self.low + 1)), self.high)

    def point(self, index: int) -> int:
        """In whole numbers: floating point could round two neighbours to one."""
        steps = max(self.count - 1, 1)
        twice = 2 * index * (self.high - self.low) if self.count > 1 else self.high - self.low
        return self.low + (twice + steps) // (2 * steps)


@dataclass(frozen=True, slots=True)
class Real:
    low: float
    high: float
    count: int = 0

    def at(self, unit: float) -> float:
        """Of both ends, since what lies between them may be more than a double can be."""
        return min(max(self.low * (1 - unit) + self.high * unit, self.low), self.high)

    def point(self, index: int) -> float:
        return self.at(index / (self.count - 1) if self.count > 1 else 0.5)


@dataclass(frozen=True, slots=True)
class Logarithmic:
    """`exponent` is what is spread evenly."""

    exponent: Real
    base: float = 10.0

    @property
    def count(self) -> int:
        return self.exponent.count

    def at(self, unit: float) -> float:
        return self.power(self.exponent.at(unit))

    def point(self, index: int) -> float:
        return self.power(self.exponent.point(index))

    def power(self, exponent: float) -> float:
        return float(self.base**exponent)


@dataclass(frozen=True, slots=True)
class Choice:
    values: tuple[JSON, ...]

    @property
    def count(self) -> int:
        return len(self.values)

    def at(self, unit: float) -> JSON:
        return self.values[int(unit * len(self.values))]

    def point(self, index: int) -> JSON:
        return self.values[index]


class Space:
    """All hyperparameters of a search, by where they stand."""

    def __init__(self, axes: Mapping[Path, Axis]) -> None:
        self.axes: Final = dict(sorted(axes.items()))

    @property
    def points(self) -> int:
        """Of the grid."""
        return prod(axis.count for axis in self.axes.values())

    def at(self, units: list[float]) -> Document:
        """`units`: one for each axis."""
        return self.document([axis.at(unit) for axis, unit in zip(self.axes.values(), units, strict=True)])

    def point(self, number: int) -> Document:
        """The grid's, from 0; the last name changes fastest."""
        values: list[JSON] = []
        for axis in reversed(self.axes.values()):
            number, index = divmod(number, axis.count)
            values.append(axis.point(index))
        return self.document(values[::-1])

    def document(self, values: list[JSON]) -> Document:
        """One value for each axis, where it stands."""
        found: Document = {}
        for path, value in zip(self.axes, values, strict=True):
            level = found
            for name in path[:-1]:
                level = level.setdefault(name, {})
            level[path[-1]] = value
        return found


def flat_name(path: Path) -> str:
    return ".".join(path)
