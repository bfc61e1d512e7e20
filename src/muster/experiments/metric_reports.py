"""What a trial reports: values by name, in a group, at a step. Pure.

JSON has no NaN and no infinities: they come, are kept and are told as the words that Determined's library sends. A
value may be nested; its numbers are then known by the path to them.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from muster.api import errors, raw
from muster.api.meta import Instant
from muster.api.raw import JSON, Document
from muster.experiments.states import TrialId

TRAINING: Final = "training"
VALIDATION: Final = "validation"
SYSTEM: Final = ("cpu", "memory", "gpu", "disk", "network")
"""Of the machine: reported at no step."""
SEPARATOR: Final = "\x1f"
"""Between the parts of a path. No name has it, whereas dots and slashes are common in them."""

_MOST_BYTES: Final = 1024 * 1024
_MOST_LEAVES: Final = 2000
_DEEPEST: Final = 8
_LONGEST: Final = 254
_MOST_STEPS: Final = 2**53
_WORDS: Final[Mapping[str, float]] = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_BATCHES: Final = "batch_metrics"


@dataclass(frozen=True, slots=True)
class Report:
    """`steps`: None for what belongs to no step. `allocation`: the run of a task that says so; "" where a user does."""

    trial: TrialId
    run: int
    group: str
    steps: int | None
    at: Instant
    metrics: Mapping[str, JSON]
    batches: Sequence[JSON] = ()
    allocation: str = ""


def check(report: Report) -> None:
    """Raises BadRequest with the field that is wrong."""
    if not report.group or len(report.group) > _LONGEST or "." in report.group or _CONTROL.search(report.group):
        raise errors.BadRequest(
            f"group: expected a name without dots, of 1 to {_LONGEST} characters, found {report.group[:60]!r}"
        )
    if report.steps is None and report.group in (TRAINING, VALIDATION):
        raise errors.BadRequest(f"metrics.stepsCompleted: {report.group} metrics belong to a step; say to which")
    if report.steps is not None and not 0 <= report.steps <= _MOST_STEPS:
        raise errors.BadRequest(f"metrics.stepsCompleted: must be from 0 to {_MOST_STEPS}, found {report.steps}")
    checked = _Checked()
    for name, value in report.metrics.items():
        checked.take(f"metrics.metrics.avgMetrics.{name[:60]}", (name,), value)
    for place, batch in enumerate(report.batches):
        checked.take(f"metrics.metrics.batchMetrics[{place}]", (), batch)


class _Checked:
    """Counts as it goes: a report is bounded as a whole. Numbers of batches may be many, but are never drawn."""

    def __init__(self) -> None:
        self._leaves = 0

    def take(self, field: str, path: tuple[str, ...], value: JSON) -> None:
        if isinstance(value, dict) and value:
            if len(path) >= _DEEPEST:
                raise errors.BadRequest(f"{field}: is nested deeper than {_DEEPEST} levels")
            for name, member in value.items():
                self.take(field, (*path, name), member)
            return
        self._check_path(field, path)
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise errors.BadRequest(f"{field}: {str(value)[:30]}… is out of range; report large numbers as floats")
        if isinstance(value, float) and not math.isfinite(value):
            raise errors.BadRequest(f'{field}: write it as a word, such as "NaN" or "-Infinity"')

    def _check_path(self, field: str, path: tuple[str, ...]) -> None:
        self._leaves += not field.startswith("metrics.metrics.batchMetrics")
        if self._leaves > _MOST_LEAVES:
            raise errors.BadRequest(f"metrics.metrics.avgMetrics: at most {_MOST_LEAVES} values in one report")
        joined = SEPARATOR.join(path)
        if len(joined) > _LONGEST or not all(part and not _CONTROL.search(part) for part in path):
            raise errors.BadRequest(
                f"{field}: a name, with those around it, has 1 to {_LONGEST} characters and no control characters"
            )


# How it is kept


def key(group: str) -> str:
    """Under which the values of a group are told, in reports and in summaries."""
    return {TRAINING: "avg_metrics", VALIDATION: "validation_metrics"}.get(group, group)


def group_of(key: str) -> str:
    """The other way round."""
    return {"avg_metrics": TRAINING, "validation_metrics": VALIDATION}.get(key, key)


def encoded(report: Report) -> str:
    """As it is told: readers pass it on as it is. Raises BadRequest where it is too large."""
    return encode(report.group, report.metrics, report.batches)


def encode(group: str, metrics: Mapping[str, JSON], batches: Sequence[JSON]) -> str:
    document: Document = {_body_key(group): metrics}
    if batches:
        document[_BATCHES] = batches
    text = raw.encode(document)
    if len(text) > _MOST_BYTES:
        raise errors.BadRequest(
            f"metrics: is {len(text) // 1024} KiB long; at most {_MOST_BYTES // 1024} KiB are taken in one report"
        )
    return text.decode()


def decode(group: str, text: str) -> tuple[Document, Sequence[JSON]]:
    """The values, and those of single batches."""
    document = raw.decode(text)
    return document[_body_key(group)], document.get(_BATCHES, ())


def _body_key(group: str) -> str:
    return "validation_metrics" if group == VALIDATION else "avg_metrics"


# Numbers


def number(value: JSON) -> float | None:
    """None where it is none. Truth values are not numbers, whatever Python says."""
    if isinstance(value, float):
        return value
    if isinstance(value, int):
        return None if isinstance(value, bool) else float(value)
    return _WORDS.get(value) if isinstance(value, str) else None


def numbers(metrics: Mapping[str, JSON]) -> Iterator[tuple[str, float]]:
    """All numbers, each with its path; those inside of lists have none."""
    for name, value in metrics.items():
        found = number(value)
        if found is not None:
            yield name, found
        elif isinstance(value, dict):
            for path, inner in numbers(value):
                yield f"{name}{SEPARATOR}{path}", inner
