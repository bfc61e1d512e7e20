"""How an experiment has become better: each validation that was better than all before it. A function of a
connection."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select

from muster.api.meta import Instant
from muster.experiments import metric_reading, metric_reports
from muster.experiments.metric_reports import VALIDATION
from muster.experiments.states import ExperimentId, TrialId
from muster.records.tables_experiments import METRICS, TRIALS


@dataclass(frozen=True, slots=True)
class Improved:
    trial: TrialId
    at: Instant
    metric: float


def read(connection: Connection, experiment: ExperimentId) -> Sequence[Improved]:
    """The oldest first. Raises NotFound."""
    about = metric_reading.progress(connection, experiment)
    query = (
        select(METRICS.c.trial_id, METRICS.c.at, METRICS.c.metrics)
        .join(TRIALS, TRIALS.c.id == METRICS.c.trial_id)
        .where(TRIALS.c.experiment_id == experiment, METRICS.c.group == VALIDATION, METRICS.c.is_archived.is_(False))
        .order_by(METRICS.c.at, METRICS.c.id)
    )
    found: list[Improved] = []
    least = math.inf
    for trial, at, metrics in connection.execute(query):
        value = metric_reports.number(metric_reports.decode(VALIDATION, metrics)[0].get(about.metric))
        if value is None or math.isnan(value):
            continue
        loss = value if about.is_smaller_better else -value
        if loss < least:
            least = loss
            found.append(Improved(TrialId(trial), Instant(at), value))
    return found
