"""Of each metric of a trial: how often it was reported, and its least, greatest, mean and last value. Pure.

They are kept up as reports come in, never worked out anew from all of them, and look as Determined's clients read
them. A value that is no number has only a type and, unless it is long, the last value.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from muster.api import raw
from muster.api.raw import JSON, Document
from muster.experiments import metric_reports

NUMBER: Final = "number"
_MIXED: Final = "string"
"""What clients are told of a metric that was not always of the same type."""
_LONGEST_LAST: Final = 1024


@dataclass(slots=True)
class Summary:
    """Of one metric. The figures are of numbers only."""

    type: str
    last: JSON = None
    count: int = 0
    min: float = math.nan
    max: float = math.nan
    sum: float = 0.0

    def take(self, value: JSON) -> None:
        type = type_of(value)
        if type != self.type:
            self.type = _MIXED
        number = metric_reports.number(value)
        if self.type == NUMBER and number is not None:
            self.count += 1
            self.sum += number
            if not math.isnan(number):  # it is no extreme; the sum does show it
                # Turned round, since nothing compares with the NaN that they are at first.
                self.min = self.min if self.min <= number else number
                self.max = self.max if self.max >= number else number
        self.last = value

    def document(self) -> Document:
        found: Document = {"type": self.type}
        if type(self.last) not in (str, dict, list) or len(raw.encode(self.last)) <= _LONGEST_LAST:
            found["last"] = self.last
        if self.type == NUMBER:
            mean = self.sum / self.count if self.count else math.nan
            figures = {"count": self.count, "min": self.min, "max": self.max, "sum": self.sum, "mean": mean}
            found |= {name: worded(figure) for name, figure in figures.items()}
        return found


@dataclass(slots=True)
class GroupSummary:
    """Of all metrics of a group, by name."""

    metrics: dict[str, Summary] = field(default_factory=dict)

    def take(self, metrics: Mapping[str, JSON]) -> None:
        for name, value in metrics.items():
            found = self.metrics.get(name)
            if found is None:
                found = self.metrics[name] = Summary(type_of(value))
            found.take(value)

    def document(self) -> Document:
        return {name: summary.document() for name, summary in self.metrics.items()}


def from_document(found: Document) -> GroupSummary:
    """As it was written."""
    return GroupSummary({name: _summary(each) for name, each in found.items()})


def _summary(found: Document) -> Summary:
    made = Summary(found["type"], found.get("last"))
    if made.type == NUMBER:
        made.count = found["count"]
        made.min, made.max, made.sum = (_figure(found[name]) for name in ("min", "max", "sum"))
    return made


def type_of(value: JSON) -> str:
    """As Determined calls it."""
    if metric_reports.number(value) is not None:
        return NUMBER
    return raw.type_name(value)


def worded(figure: float) -> JSON:
    """JSON has no NaN."""
    if math.isfinite(figure):
        return figure
    return "NaN" if math.isnan(figure) else "Infinity" if figure > 0 else "-Infinity"


def _figure(value: JSON) -> float:
    found = metric_reports.number(value)
    return math.nan if found is None else found
