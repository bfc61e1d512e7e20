"""Metrics in columns: blocks of points that can be read at once, made of the rows that trials have reported.

The blocks of a group end together, at the row whose id they carry; one without a name marks that end. Rows after the
last end are read as they are. Functions of a connection.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from sqlalchemy import Connection, Row, Select, delete, func, insert, select

from muster.experiments import metric_reports, series
from muster.experiments.series import Series
from muster.experiments.states import TrialId
from muster.records.tables_experiments import METRIC_BLOCKS as BLOCKS
from muster.records.tables_experiments import METRICS

T = TypeVar("T", bound=tuple[object, ...])
Wanted: TypeAlias = Callable[[str], bool]
"""Of paths, as `metric_reports.numbers` writes them."""
BLOCK: Final = 8192
SPARE: Final = 1024
"""The latest rows are left alone: a second report of the same step adds to them."""
_MARK: Final = ""


@dataclass(frozen=True, slots=True)
class Block:
    """Ready to be kept. `rows`: of which it is made."""

    trial: TrialId
    group: str
    last: int
    rows: int
    columns: Mapping[str, Series]


def read(connection: Connection, trial: TrialId, group: str, wanted: Wanted) -> Mapping[str, Series]:
    """The series by their paths, each in order."""
    parts: dict[str, list[Series]] = {}
    here = (BLOCKS.c.trial_id == trial, BLOCKS.c.group == group)
    # Each name is looked for by itself, from one to the next: there may be thousands of blocks, and few names.
    name = connection.scalar(select(func.min(BLOCKS.c.name)).where(*here, BLOCKS.c.name > _MARK))
    while name is not None:
        if wanted(name):
            found = select(BLOCKS.c.points).where(*here, BLOCKS.c.name == name).order_by(BLOCKS.c.last_id)
            parts[name] = [series.unpack(points) for points in connection.scalars(found)]
        name = connection.scalar(select(func.min(BLOCKS.c.name)).where(*here, BLOCKS.c.name > name))
    for name, tail in _columns(group, _rows(connection, trial, group, end(connection, trial, group))).items():
        if wanted(name):
            parts.setdefault(name, []).append(tail)
    return {name: series.joined(found).ordered() for name, found in parts.items()}


def next_block(connection: Connection, trial: TrialId, group: str) -> Block | None:
    """To be made of the oldest rows that are in none; None while there are few."""
    after = end(connection, trial, group)
    ids = connection.scalars(_in_force(select(METRICS.c.id), trial, group, after).limit(BLOCK + SPARE)).all()
    if len(ids) < BLOCK + SPARE:
        return None
    last = ids[BLOCK - 1]
    return Block(trial, group, last, BLOCK, _columns(group, _rows(connection, trial, group, after, last)))


def add(connection: Connection, block: Block) -> None:
    mark: dict[str, object] = {
        "trial_id": block.trial, "group": block.group, "name": _MARK, "last_id": block.last, "count": block.rows,
        "points": b"",
    }  # fmt: skip
    columns = [
        {**mark, "name": name, "count": len(column), "points": column.pack()} for name, column in block.columns.items()
    ]
    connection.execute(insert(BLOCKS), [mark, *columns])


def remake(connection: Connection, trial: TrialId, group: str, rows: Collection[int]) -> None:
    """The blocks that have these rows, which were changed."""
    marks = (BLOCKS.c.trial_id == trial, BLOCKS.c.group == group, BLOCKS.c.name == _MARK)
    ends = connection.scalars(select(BLOCKS.c.last_id).where(*marks).order_by(BLOCKS.c.last_id)).all()
    for place in sorted({bisect_left(ends, row) for row in rows} - {len(ends)}):
        after, last = ends[place - 1] if place else 0, ends[place]
        connection.execute(delete(BLOCKS).where(*marks[:2], BLOCKS.c.last_id == last))
        made_of = list(_rows(connection, trial, group, after, last))
        add(connection, Block(trial, group, last, len(made_of), _columns(group, made_of)))


def cut(connection: Connection, trial: TrialId, group: str, row: int) -> None:
    """Forget the blocks from the one on that has this row: it and others after it are no more."""
    connection.execute(
        delete(BLOCKS).where(BLOCKS.c.trial_id == trial, BLOCKS.c.group == group, BLOCKS.c.last_id >= row)
    )


def end(connection: Connection, trial: TrialId, group: str) -> int:
    """The last row that is in a block; 0 where none is."""
    found = select(func.max(BLOCKS.c.last_id)).where(
        BLOCKS.c.trial_id == trial, BLOCKS.c.group == group, BLOCKS.c.name == _MARK
    )  # fmt: skip
    return connection.scalar(found) or 0


def _rows(
    connection: Connection, trial: TrialId, group: str, after: int, last: int | None = None
) -> Iterable[Row[tuple[int, int, float, str]]]:
    columns: Select[tuple[int, int, float, str]] = select(
        METRICS.c.id, METRICS.c.steps, METRICS.c.at, METRICS.c.metrics
    )
    chosen = _in_force(columns, trial, group, after)
    return connection.execute(chosen if last is None else chosen.where(METRICS.c.id <= last))


def _in_force(columns: Select[T], trial: TrialId, group: str, after: int) -> Select[T]:
    here = columns.where(METRICS.c.trial_id == trial, METRICS.c.group == group, ~METRICS.c.is_archived)
    return here.where(METRICS.c.id > after).order_by(METRICS.c.id)


def _columns(group: str, rows: Iterable[Row[tuple[int, int, float, str]]]) -> Mapping[str, Series]:
    points: dict[str, list[tuple[int | None, float, float]]] = {}
    for row in rows:
        metrics, _ = metric_reports.decode(group, row.metrics)
        for name, value in metric_reports.numbers(metrics):
            points.setdefault(name, []).append((row.steps, row.at, value))
    return {name: series.made_of(found) for name, found in points.items()}
