"""What filters and orders may name, of experiments and of runs, and what that is in the records.

A run is a trial, by its newer name. An experiment has the metrics of its best trial; it has a hyperparameter's value
where one of its trials has it, and is ordered by that of its best.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from sqlalchemy import ColumnElement, and_, case, false, func, not_, or_, select, true

from muster.api import errors, timestamps
from muster.api.meta import Instant
from muster.api.raw import JSON
from muster.experiments import metric_reports, standings
from muster.experiments.filters import ColumnType, Conjunction, Field, Group, Node, Operator, Order
from muster.records.json_values import NumberAt, TextAt
from muster.records.tables_accounts import PROJECTS, USERS, WORKSPACES
from muster.records.tables_experiments import EXPERIMENT_LABELS, EXPERIMENTS, TRIALS

_SUFFIXES: Final = (".min", ".max", ".mean", ".last")
"""Which of the figures about a metric is meant."""
HYPERPARAMETER: Final = "hp."
METADATA: Final = "metadata."


class Kind(StrEnum):
    NUMBER = "number"
    TEXT = "text"
    DATE = "date"
    FLAG = "flag"
    LABELS = "labels"
    STATE = "state"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Column:
    """`title`: as people see it. `is_state`: whether it is as told, of what has states."""

    title: str
    kind: Kind
    value: ColumnElement[object]
    order: ColumnElement[object] | None = None
    """Where that is not by the value itself."""
    within: Callable[[ColumnElement[bool]], ColumnElement[bool]] | None = None
    """Turns what must hold of one into what must hold of one among many."""
    is_state: Callable[[str], ColumnElement[bool]] | None = None


@dataclass(frozen=True, slots=True)
class Columns:
    """Of one table. `free`: those that are not known beforehand, by their whole name; None where it is no such."""

    named: Mapping[str, Column]
    free: Callable[[str, bool], Column | None]

    def find(self, name: str, field: str, *, is_number: bool = True) -> Column:
        """Raises BadRequest."""
        found = self.named.get(name) or self.free(name, is_number)
        if found is None:
            raise errors.BadRequest(f"{field}: there is no column {name[:80]!r}")
        return found


def condition(node: Node, columns: Columns) -> ColumnElement[bool]:
    """Raises BadRequest."""
    if isinstance(node, Group):
        parts = [condition(child, columns) for child in node.children if not _says_nothing(child)]
        if not parts:
            return true()
        return or_(*parts) if node.conjunction is Conjunction.OR else and_(*parts)
    is_number = node.type is ColumnType.NUMBER or (
        node.type is ColumnType.UNSPECIFIED and isinstance(node.value, int | float) and not isinstance(node.value, bool)
    )
    return _holds(node, columns.find(node.column_name, "filter", is_number=is_number))


def ordering(orders: Sequence[Order], columns: Columns) -> list[ColumnElement[object]]:
    """What has no value comes last. Raises BadRequest."""
    keys: list[ColumnElement[object]] = []
    for order in orders:
        column = columns.find(order.column, "sort")
        value = column.value if column.order is None else column.order
        keys.append((value.desc() if order.is_descending else value.asc()).nulls_last())
    return keys


def _says_nothing(node: Node) -> bool:
    return node.is_open if isinstance(node, Field) else all(map(_says_nothing, node.children))


# What a field says


_POSITIVE: Final[Mapping[Operator, Operator]] = {
    Operator.NOT_EQUAL: Operator.EQUAL,
    Operator.NOT_CONTAINS: Operator.CONTAINS,
    Operator.IS_EMPTY: Operator.NOT_EMPTY,
}


def _holds(field: Field, column: Column) -> ColumnElement[bool]:
    if field.operator in _POSITIVE:
        # So that it holds where there is no value at all, too.
        return not_(func.coalesce(_holds(_with_operator(field, _POSITIVE[field.operator]), column), false()))
    found = _tests[column.kind](field, column)
    return found if column.within is None else column.within(found)


def _with_operator(field: Field, operator: Operator) -> Field:
    return Field(field.column_name, operator, field.value, field.type)


def _compared(field: Field, value: ColumnElement[object], given: object) -> ColumnElement[bool]:
    match field.operator:
        case Operator.NOT_EMPTY:
            return value.is_not(None)
        case Operator.EQUAL:
            return value == given
        case Operator.GREATER:
            return value > given
        case Operator.GREATER_OR_EQUAL:
            return value >= given
        case Operator.LESS:
            return value < given
        case Operator.LESS_OR_EQUAL:
            return value <= given
    raise errors.BadRequest(f"filter: {field.operator} is not for {field.column_name[:80]}")


def _number(field: Field, column: Column) -> ColumnElement[bool]:
    return _compared(field, column.value, None if field.operator is Operator.NOT_EMPTY else _as_number(field))


def _date(field: Field, column: Column) -> ColumnElement[bool]:
    return _compared(field, column.value, None if field.operator is Operator.NOT_EMPTY else _as_instant(field))


def _flag(field: Field, column: Column) -> ColumnElement[bool]:
    if field.operator is not Operator.EQUAL:
        return _compared(field, column.value, None)
    if field.value not in (True, False, "true", "false"):
        raise _wrong(field, "true or false")
    return column.value.is_(field.value in (True, "true"))


def _text(field: Field, column: Column) -> ColumnElement[bool]:
    match field.operator:
        case Operator.NOT_EMPTY:
            return column.value != ""
        case Operator.EQUAL:
            return column.value == _as_text(field)
        case Operator.CONTAINS:
            return contains(column.value, _as_text(field))
    raise errors.BadRequest(f"filter: {field.operator} is not for {field.column_name[:80]}, which is a text")


def contains(value: ColumnElement[object], text: str) -> ColumnElement[bool]:
    """In whatever case."""
    return value.icontains(text, autoescape=True)


def _labels(field: Field, column: Column) -> ColumnElement[bool]:
    holds = _text(field, Column("", Kind.TEXT, EXPERIMENT_LABELS.c.label))
    return column.value.in_(select(EXPERIMENT_LABELS.c.experiment_id).where(holds))


def _state(field: Field, column: Column) -> ColumnElement[bool]:
    assert column.is_state is not None
    if field.operator is Operator.NOT_EMPTY:
        return true()
    text = _as_text(field).upper().removeprefix("STATE_")
    if field.operator is Operator.CONTAINS:
        return contains(column.value, text)
    if field.operator is not Operator.EQUAL:
        raise errors.BadRequest(f"filter: {field.operator} is not for {field.column_name[:80]}")
    return column.is_state(text)


def _user(field: Field, column: Column) -> ColumnElement[bool]:
    """By their number or by their name."""
    if field.operator is Operator.EQUAL and (isinstance(field.value, int) or str(field.value).isdigit()):
        return column.value == _as_number(field)
    names = [Column("", Kind.TEXT, each) for each in (USERS.c.username, USERS.c.display_name)]
    found = select(USERS.c.id).where(or_(*(_text(field, each) for each in names)))
    return column.value.in_(found)


_tests: Final[Mapping[Kind, Callable[[Field, Column], ColumnElement[bool]]]] = {
    Kind.NUMBER: _number,
    Kind.TEXT: _text,
    Kind.DATE: _date,
    Kind.FLAG: _flag,
    Kind.LABELS: _labels,
    Kind.STATE: _state,
    Kind.USER: _user,
}


def _as_number(field: Field) -> float:
    try:
        if isinstance(field.value, int | float | str) and not isinstance(field.value, bool):
            return float(field.value)
    except (ValueError, OverflowError) as error:
        raise _wrong(field, "a number") from error
    raise _wrong(field, "a number")


def _as_instant(field: Field) -> Instant:
    try:
        return timestamps.parse(_as_text(field))
    except ValueError as error:
        raise _wrong(field, "RFC 3339 such as 2026-01-02T03:04:05Z") from error


def _as_text(field: Field) -> str:
    value: JSON = field.value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise _wrong(field, "a single value")


def _wrong(field: Field, wanted: str) -> errors.BadRequest:
    return errors.BadRequest(f"filter: {field.column_name[:80]}: expected {wanted}, found {str(field.value)[:60]!r}")


# What experiments have


def of_experiments(now: Instant) -> Columns:
    own = EXPERIMENTS.c
    state = Column("State", Kind.STATE, own.state, is_state=standings.experiment_is)
    named = {
        "id": Column("ID", Kind.NUMBER, own.id),
        "name": Column("Name", Kind.TEXT, own.name),
        "description": Column("Description", Kind.TEXT, own.description),
        "tags": Column("Tags", Kind.LABELS, own.id),
        "forkedFrom": Column("Forked", Kind.NUMBER, own.forked_from),
        "startTime": Column("Started", Kind.DATE, own.created),
        "endTime": Column("Ended", Kind.DATE, own.ended),
        "duration": Column("Duration", Kind.NUMBER, func.coalesce(own.ended, now) - own.created),
        "numTrials": Column("Trials", Kind.NUMBER, own.trial_count),
        "state": state,
        "searcherType": Column("Searcher", Kind.TEXT, own.searcher_type),
        "searcherMetric": Column("Searcher Metric", Kind.TEXT, own.searcher_metric),
        "searcherMetricsVal": Column("Searcher Metric Value", Kind.NUMBER, own.best_metric),
        "resourcePool": Column("Resource Pool", Kind.TEXT, own.pool),
        "progress": Column("Progress", Kind.NUMBER, own.progress * 100),
        "checkpointSize": Column("Checkpoint Size", Kind.NUMBER, own.checkpoint_bytes),
        "checkpointCount": Column("Checkpoints", Kind.NUMBER, own.checkpoint_count),
        "user": Column("User", Kind.USER, own.user_id, order=_username()),
        "projectId": Column("Project ID", Kind.NUMBER, own.project_id),
        "externalExperimentId": Column("External Experiment ID", Kind.TEXT, own.external_id),
        "archived": Column("Archived", Kind.FLAG, own.is_archived),
    }
    return Columns(named, _of_its_trials)


def _username() -> ColumnElement[object]:
    return select(USERS.c.username).where(USERS.c.id == EXPERIMENTS.c.user_id).scalar_subquery()


def _of_its_trials(name: str, is_number: bool) -> Column | None:
    found = _of_trial(name, is_number)
    if found is None:
        return None
    of_best = select(found.value).where(TRIALS.c.id == EXPERIMENTS.c.best_trial_id).scalar_subquery()
    within = _of_any if name.startswith(HYPERPARAMETER) else _of_best
    return replace(found, order=of_best, within=within)


# Trials are looked through once, and not again for each experiment.


def _of_any(holds: ColumnElement[bool]) -> ColumnElement[bool]:
    return EXPERIMENTS.c.id.in_(select(TRIALS.c.experiment_id).where(holds))


def _of_best(holds: ColumnElement[bool]) -> ColumnElement[bool]:
    return EXPERIMENTS.c.best_trial_id.in_(select(TRIALS.c.id).where(holds))


# What runs have: of queries that have the experiment and the project


def of_runs(now: Instant) -> Columns:
    own, above = TRIALS.c, EXPERIMENTS.c
    archived_above = case((or_(PROJECTS.c.archived, WORKSPACES.c.archived, above.is_archived), True), else_=False)
    is_of_search = case((above.searcher_type != "single", True), else_=False)
    named = {
        "id": Column("ID", Kind.NUMBER, own.id),
        "experimentId": Column("Search ID", Kind.NUMBER, above.id),
        "experimentName": Column("Search Name", Kind.TEXT, above.name),
        "experimentDescription": Column("Search Description", Kind.TEXT, above.description),
        "tags": Column("Tags", Kind.LABELS, above.id),
        "forkedFrom": Column("Forked", Kind.NUMBER, above.forked_from),
        "startTime": Column("Started", Kind.DATE, own.created),
        "endTime": Column("Ended", Kind.DATE, own.ended),
        "duration": Column("Duration", Kind.NUMBER, func.coalesce(own.ended, now) - own.created),
        "state": Column("State", Kind.STATE, own.state, is_state=standings.trial_is),
        "searcherType": Column("Searcher", Kind.TEXT, above.searcher_type),
        "searcherMetric": Column("Searcher Metric", Kind.TEXT, above.searcher_metric),
        "searcherMetricsVal": Column("Searcher Metric Value", Kind.NUMBER, own.searcher_metric),
        "resourcePool": Column("Resource Pool", Kind.TEXT, above.pool),
        "experimentProgress": Column("Search Progress", Kind.NUMBER, above.progress * 100),
        "checkpointSize": Column("Checkpoint Size", Kind.NUMBER, own.checkpoint_bytes),
        "checkpointCount": Column("Checkpoints", Kind.NUMBER, own.checkpoint_count),
        "restarts": Column("Restarts", Kind.NUMBER, own.restarts),
        "user": Column("User", Kind.USER, above.user_id, order=_username()),
        "projectId": Column("Project ID", Kind.NUMBER, above.project_id),
        "isExpMultitrial": Column("Part of Search", Kind.FLAG, is_of_search),
        "externalExperimentId": Column("External Experiment ID", Kind.TEXT, above.external_id),
        "externalRunId": Column("External Run ID", Kind.TEXT, own.external_id),
        "logPolicyMatched": Column("Log Signal", Kind.TEXT, own.log_signal),
        "archived": Column("Archived", Kind.FLAG, own.is_archived),
        "parentArchived": Column("Parent Archived", Kind.FLAG, archived_above),
    }
    return Columns(named, _of_trial)


def _of_trial(name: str, is_number: bool) -> Column | None:
    """A hyperparameter, `hp.lr`; of a run's metadata, `metadata.team`; or a metric, `validation.loss.min`."""
    if '"' in name:
        return None
    if name.startswith(HYPERPARAMETER):
        return _of_document(TRIALS.c.hparams, name.split(".")[1:], is_number)
    if name.startswith(METADATA):
        return _of_document(TRIALS.c.metadata, name.split(".")[1:], is_number)
    group, _, metric = name.partition(".")
    metric, _, aggregate = metric.rpartition(".") if metric.endswith(_SUFFIXES) else (metric, "", "last")
    if not group or not metric:
        return None
    return _of_document(TRIALS.c.summary_metrics, [metric_reports.key(group), metric, aggregate], is_number)


def _of_document(column: ColumnElement[object], path: Sequence[str], is_number: bool) -> Column:
    value = NumberAt(column, path) if is_number else TextAt(column, path)
    return Column("", Kind.NUMBER if is_number else Kind.TEXT, value)
