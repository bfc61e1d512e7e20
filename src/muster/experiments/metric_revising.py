"""What is known about a trial's metrics, made anew where something was taken back. Functions of a connection.

Figures can be kept up while values come, but not while they go: then they are worked out from the columns.
"""

import math

import numpy as np
from sqlalchemy import Connection

from muster.experiments import metric_blocks, metric_records, metric_reports, metric_summaries
from muster.experiments.metric_records import Aim
from muster.experiments.metric_reports import SEPARATOR, VALIDATION
from muster.experiments.metric_summaries import GroupSummary, Summary
from muster.experiments.series import Series
from muster.experiments.states import TrialId


def summary(connection: Connection, trial: TrialId, group: str, had: GroupSummary) -> GroupSummary:
    """Of what is in force. `had`: before; types stay as they were."""
    columns = metric_blocks.read(connection, trial, group, lambda path: SEPARATOR not in path)
    newest = metric_records.newest(connection, trial, group)
    values = {} if newest is None else metric_reports.decode(group, newest.metrics)[0]
    made: dict[str, Summary] = {}
    for name, found in had.metrics.items():
        if found.type != metric_summaries.NUMBER:
            made[name] = Summary(found.type, values.get(name, found.last))
        elif name in columns:
            made[name] = _of_column(columns[name])
    return GroupSummary(made)


def best(connection: Connection, trial: TrialId, aim: Aim) -> tuple[float, int] | None:
    """The best validation that is in force, and its step."""
    column = metric_blocks.read(connection, trial, VALIDATION, lambda path: path == aim.metric).get(aim.metric)
    if column is None or np.isnan(column.values).all():
        return None
    place = int(np.nanargmin(column.values) if aim.is_smaller_better else np.nanargmax(column.values))
    return float(column.values[place]), int(column.steps[place])


def _of_column(column: Series) -> Summary:
    values = column.values
    is_empty = bool(np.isnan(values).all())
    return Summary(
        metric_summaries.NUMBER,
        last=metric_summaries.worded(float(values[-1])),
        count=len(values),
        min=math.nan if is_empty else float(np.nanmin(values)),
        max=math.nan if is_empty else float(np.nanmax(values)),
        sum=float(values.sum()),
    )
