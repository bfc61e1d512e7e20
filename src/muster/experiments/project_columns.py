"""What tables of a project's experiments and runs can show: their own columns, hyperparameters, metrics and metadata.
Functions of a connection."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sqlalchemy import Connection, Select, select

from muster.accounts.projects import ProjectId
from muster.api import errors
from muster.api.meta import Instant
from muster.api.raw import JSON
from muster.experiments import filter_columns, metric_reports
from muster.experiments.filter_columns import HYPERPARAMETER, METADATA, Kind
from muster.experiments.filters import ColumnType
from muster.experiments.metric_reports import TRAINING, VALIDATION
from muster.experiments.metric_summaries import NUMBER
from muster.records.json_values import TextAt
from muster.records.tables_experiments import EXPERIMENTS, TRIALS

_LOOKED_AT: Final = 2000
"""So many trials, the newest: a project may have a million, and they are much alike."""
_FIGURES: Final = ("last", "max", "mean", "min")


class Location(StrEnum):
    EXPERIMENT = "LOCATION_TYPE_EXPERIMENT"
    HYPERPARAMETERS = "LOCATION_TYPE_HYPERPARAMETERS"
    VALIDATIONS = "LOCATION_TYPE_VALIDATIONS"
    TRAINING = "LOCATION_TYPE_TRAINING"
    CUSTOM_METRIC = "LOCATION_TYPE_CUSTOM_METRIC"
    RUN = "LOCATION_TYPE_RUN"
    RUN_HYPERPARAMETERS = "LOCATION_TYPE_RUN_HYPERPARAMETERS"
    RUN_METADATA = "LOCATION_TYPE_RUN_METADATA"


@dataclass(frozen=True, slots=True)
class ProjectColumn:
    name: str
    title: str
    location: Location
    type: ColumnType


@dataclass(frozen=True, slots=True)
class Range:
    name: str
    least: float
    greatest: float


_TYPES: Final[Mapping[Kind, ColumnType]] = {
    Kind.NUMBER: ColumnType.NUMBER,
    Kind.DATE: ColumnType.DATE,
    Kind.LABELS: ColumnType.ARRAY,
}


def columns(connection: Connection, project: ProjectId, *, is_of_runs: bool) -> Sequence[ProjectColumn]:
    known = filter_columns.of_runs(Instant(0)) if is_of_runs else filter_columns.of_experiments(Instant(0))
    location = Location.RUN if is_of_runs else Location.EXPERIMENT
    own = [
        ProjectColumn(name, column.title, location, _TYPES.get(column.kind, ColumnType.TEXT))
        for name, column in known.named.items()
    ]
    rows = connection.execute(_newest(project)).all()
    parameters = Location.RUN_HYPERPARAMETERS if is_of_runs else Location.HYPERPARAMETERS
    found = [*own, *_values((row.hparams for row in rows), HYPERPARAMETER, parameters)]
    if is_of_runs:
        found += _values((row.metadata for row in rows), METADATA, Location.RUN_METADATA)
    return [*found, *_metrics(row.summary_metrics for row in rows)]


def ranges(connection: Connection, project: ProjectId) -> Sequence[Range]:
    """Between what the figures of each metric are."""
    found: dict[str, tuple[float, float]] = {}
    for row in connection.execute(_newest(project)):
        for name, value in _figures(row.summary_metrics):
            number = metric_reports.number(value)
            if number is not None and math.isfinite(number):
                least, greatest = found.get(name, (number, number))
                found[name] = (min(least, number), max(greatest, number))
    return [Range(name, *found[name]) for name in sorted(found)]


def metadata_values(connection: Connection, project: ProjectId, key: str) -> Sequence[str]:
    """What a project's runs have said of themselves under a key, such as `team.name`. Raises BadRequest."""
    if '"' in key:
        raise errors.BadRequest("key: must have no quotation marks")
    value = TextAt(TRIALS.c.metadata, key.split("."))
    of_runs = TRIALS.join(EXPERIMENTS, EXPERIMENTS.c.id == TRIALS.c.experiment_id)
    query = select(value).select_from(of_runs).distinct()
    chosen = query.where(EXPERIMENTS.c.project_id == project, value.is_not(None)).order_by(value).limit(_LOOKED_AT)
    return [str(found) for found in connection.scalars(chosen)]


def _newest(project: ProjectId) -> Select[tuple[object, ...]]:
    wanted: Select[tuple[object, ...]] = select(TRIALS.c.hparams, TRIALS.c.metadata, TRIALS.c.summary_metrics)
    mine = wanted.join(EXPERIMENTS, EXPERIMENTS.c.id == TRIALS.c.experiment_id).where(
        EXPERIMENTS.c.project_id == project
    )
    return mine.order_by(TRIALS.c.id.desc()).limit(_LOOKED_AT)


def _values(documents: Iterable[JSON], prefix: str, location: Location) -> Iterator[ProjectColumn]:
    """A column for each single value, nested as it may be."""
    found: dict[str, ColumnType] = {}
    for document in documents:
        for path, value in _leaves(document, ""):
            type, before = _type(value), found.get(path)
            found[path] = type if before in (None, type) else ColumnType.TEXT
    for path in sorted(found):
        yield ProjectColumn(f"{prefix}{path}", path, location, found[path])


def _leaves(document: JSON, path: str) -> Iterator[tuple[str, JSON]]:
    for name, value in document.items():
        inner = f"{path}.{name}" if path else name
        if isinstance(value, dict):
            yield from _leaves(value, inner)
        elif value is not None:
            yield inner, value


def _type(value: JSON) -> ColumnType:
    if isinstance(value, list):
        return ColumnType.ARRAY
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return ColumnType.NUMBER if is_number else ColumnType.TEXT


def _metrics(summaries: Iterable[JSON]) -> Iterator[ProjectColumn]:
    names = sorted({name for summary in summaries for name, _ in _figures(summary)})
    for name in names:
        group = name.partition(".")[0]
        location = {VALIDATION: Location.VALIDATIONS, TRAINING: Location.TRAINING}.get(group, Location.CUSTOM_METRIC)
        yield ProjectColumn(name, name, location, ColumnType.NUMBER)


def _figures(summaries: Mapping[str, Mapping[str, Mapping[str, JSON]]]) -> Iterator[tuple[str, JSON]]:
    """`validation.loss.min` and the others, of metrics that are numbers."""
    for key, metrics in summaries.items():
        group = metric_reports.group_of(key)
        for name, summary in metrics.items():
            if summary.get("type") == NUMBER:
                yield from ((f"{group}.{name}.{figure}", summary.get(figure)) for figure in _FIGURES)
