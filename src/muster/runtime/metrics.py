"""Counters, gauges and histograms, and the text in which Prometheus reads them (exposition format 0.0.4).

One owner, one thread: numbers are counted and read in the event loop. Gauges that can be read off the state of the
program are not kept here at all: a collector works them out when somebody asks.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, isnan
from typing import Final, Generic, Literal, TypeAlias, TypeVar

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
DURATION_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds that a piece of work takes."""
WAIT_BUCKETS: Final = (1.0, *(2.5 * 2**power for power in range(13)))
"""Seconds that somebody waits: from one to almost three hours."""
_LINES: Final = 500
"""In one piece of the text, so that whoever sends it can let others have a turn in between."""

LabelValues: TypeAlias = tuple[str, ...]
Sample: TypeAlias = tuple[LabelValues, float]
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True)
class Family:
    """All series of one name. `samples` may be worked out as they are read; None among them: that took long, and
    others may have a turn."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    help: str
    labels: LabelValues
    samples: Iterable[Sample | None]


class _Series(Generic[_V]):
    """By the values of the labels; those that share the first are found together, so that what belongs to one thing
    can be dropped without looking at the rest."""

    def __init__(self, labels: LabelValues) -> None:
        self._labels = labels
        self._groups: dict[str, dict[LabelValues, _V]] = {}

    def group(self, values: LabelValues) -> dict[LabelValues, _V]:
        """Those with the same first value, to be read and changed."""
        if len(self._labels) != len(values):
            wanted = ", ".join(self._labels) or "(none)"
            raise ValueError(f"expected a value for each of the labels {wanted}, found {values}")
        first = values[0] if values else ""
        found = self._groups.get(first)
        if found is None:
            found = self._groups[first] = {}
        return found

    def get(self, values: LabelValues) -> _V | None:
        return self._groups.get(values[0] if values else "", {}).get(values)

    def items(self) -> list[tuple[LabelValues, _V]]:
        return [item for group in self._groups.values() for item in group.items()]

    def forget(self, **labels: str) -> None:
        wanted = [(self._labels.index(label), value) for label, value in labels.items()]
        first = labels.get(self._labels[0])
        for name in [first] if first is not None else list(self._groups):
            group = self._groups.get(name, {})
            for values in [values for values in group if all(values[at] == value for at, value in wanted)]:
                del group[values]
            if not group:
                self._groups.pop(name, None)


class Counter:
    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        self.name, self.help, self.labels = name, help, tuple(labels)
        self._values: _Series[float] = _Series(self.labels)

    def add(self, *values: str, by: float = 1.0) -> None:
        group = self._values.group(values)
        group[values] = group.get(values, 0.0) + by

    def value(self, *values: str) -> float:
        return self._values.get(values) or 0.0

    def items(self) -> list[Sample]:
        return self._values.items()

    def forget(self, **labels: str) -> None:
        """Drops the series that have all these values: what they counted is gone."""
        self._values.forget(**labels)

    def lines(self) -> Iterator[str]:
        yield from lines(Family(self.name, "counter", self.help, self.labels, self._values.items()))


@dataclass(slots=True)
class _Distribution:
    counts: list[int]
    """By bucket, the last one without a bound."""
    total: float = 0.0


class Histogram:
    def __init__(
        self, name: str, help: str, labels: Sequence[str] = (), buckets: Sequence[float] = WAIT_BUCKETS
    ) -> None:
        self.name, self.help, self.labels = name, help, tuple(labels)
        self._bounds = tuple(buckets)
        self._found: _Series[_Distribution] = _Series(self.labels)

    def observe(self, amount: float, *values: str) -> None:
        group = self._found.group(values)
        found = group.get(values)
        if found is None:
            found = group[values] = _Distribution([0] * (len(self._bounds) + 1))
        found.counts[bisect_left(self._bounds, amount)] += 1
        found.total += amount

    def count(self, *values: str) -> int:
        found = self._found.get(values)
        return 0 if found is None else sum(found.counts)

    def forget(self, **labels: str) -> None:
        self._found.forget(**labels)

    def lines(self) -> Iterator[str]:
        yield from _head(self.name, "histogram", self.help)
        for values, found in self._found.items():
            shown = _shown_labels(self.labels, values)
            below = 0
            for bound, count in zip((*self._bounds, inf), found.counts, strict=True):
                below += count
                at = f'le="{_shown(bound)}"'
                yield (
                    f"{self.name}_bucket{{{shown},{at}}} {below}\n"
                    if shown
                    else f"{self.name}_bucket{{{at}}} {below}\n"
                )
            yield f"{_series(self.name + '_sum', shown)} {_shown(found.total)}\n"
            yield f"{_series(self.name + '_count', shown)} {below}\n"


_Kept = TypeVar("_Kept", Counter, Histogram)
Collector: TypeAlias = Callable[[], Iterable[Family]]


class Registry:
    """What is measured, in the order in which it was registered."""

    def __init__(self) -> None:
        self._sources: list[Counter | Histogram | Collector] = []
        self._names: set[str] = set()

    def counter(self, name: str, help: str, labels: Sequence[str] = ()) -> Counter:
        return self._add(Counter(name, help, labels))

    def histogram(
        self, name: str, help: str, labels: Sequence[str] = (), buckets: Sequence[float] = WAIT_BUCKETS
    ) -> Histogram:
        return self._add(Histogram(name, help, labels, buckets))

    def collect(self, collector: Collector) -> None:
        """Asked for its families whenever the metrics are read."""
        self._sources.append(collector)

    def pieces(self) -> Iterator[str]:
        """The text, in pieces that do not take long."""
        piece: list[str] = []
        for line in self._lines():
            piece.append(line)
            if len(piece) == _LINES or not line:
                yield "".join(piece)
                piece.clear()
        yield "".join(piece)

    def text(self) -> str:
        return "".join(self.pieces())

    def _lines(self) -> Iterator[str]:
        for source in self._sources:
            if isinstance(source, Counter | Histogram):
                yield from source.lines()
            else:
                for family in source():
                    yield from lines(family)

    def _add(self, made: _Kept) -> _Kept:
        if made.name in self._names:
            raise ValueError(f"the metric {made.name} exists already")
        self._names.add(made.name)
        self._sources.append(made)
        return made


def lines(family: Family) -> Iterator[str]:
    """With their line ends; nothing in place of a turn for others. Not of histograms, whose samples are not single
    numbers."""
    yield from _head(family.name, family.type, family.help)
    for sample in family.samples:
        if sample is None:
            yield ""
            continue
        values, amount = sample
        yield f"{_series(family.name, _shown_labels(family.labels, values))} {_shown(amount)}\n"


def _head(name: str, type: str, help: str) -> Iterator[str]:
    escaped = help.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {name} {escaped}\n# TYPE {name} {type}\n"


def _series(name: str, shown_labels: str) -> str:
    return f"{name}{{{shown_labels}}}" if shown_labels else name


def _shown_labels(labels: LabelValues, values: LabelValues) -> str:
    return ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(labels, values, strict=True))


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _shown(amount: float) -> str:
    if isnan(amount):
        return "NaN"
    if amount in (inf, -inf):
        return "+Inf" if amount > 0 else "-Inf"
    return str(int(amount)) if amount == int(amount) and abs(amount) < 2**53 else repr(float(amount))
