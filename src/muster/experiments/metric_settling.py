"""What follows from reports for their trials and experiments. Functions of a connection, with the rows written already.

A trial's row is written once, however many reports there were of it; what its search must hear goes into the inbox of
its experiment in the same change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection

from muster.api.meta import Instant
from muster.experiments import inbox, metric_blocks, metric_records, metric_reports, metric_revising
from muster.experiments.inbox import Validated
from muster.experiments.metric_memory import Remembered
from muster.experiments.states import ExperimentId, TrialId


@dataclass(slots=True)
class Touched:
    """What a change does to a trial, beside adding rows. `improved`, `validated`: the steps of a new best validation
    and of a new latest one."""

    known: Remembered
    groups: set[str] = field(default_factory=set)
    revised: set[str] = field(default_factory=set)
    """Groups in which something was taken back."""
    changed: dict[str, set[int]] = field(default_factory=dict)
    """Rows, by group, that are not what they were."""
    validations: list[Validated] = field(default_factory=list)
    improved: int | None = None
    validated: int | None = None
    is_rolled_back: bool = False


def settle(connection: Connection, touched: Mapping[TrialId, Touched], now: Instant) -> frozenset[ExperimentId]:
    """Returns those in whose inboxes there is something now."""
    changes = []
    for trial, found in touched.items():
        _revise(connection, trial, found)
        _find_validations(connection, trial, found)
        changes.append(_change(trial, found, now))
    metric_records.change_trials(connection, changes)
    told: set[ExperimentId] = set()
    for trial, found in touched.items():
        known = found.known
        if found.is_rolled_back:
            metric_records.lower_best(connection, known.experiment, known.aim, trial)
        if known.best is not None and (found.improved is not None or found.is_rolled_back):
            metric_records.raise_best(connection, known.experiment, known.aim, trial, known.best)
        if found.validations:
            inbox.post(connection, known.experiment, *found.validations)
            told.add(known.experiment)
    return frozenset(told)


def _revise(connection: Connection, trial: TrialId, found: Touched) -> None:
    known = found.known
    for group, rows in found.changed.items():
        metric_blocks.remake(connection, trial, group, rows)
    for group in found.revised:
        kept = known.group(group)
        kept.summary = metric_revising.summary(connection, trial, group, kept.summary)
    if found.is_rolled_back:
        steps = [metric_records.last_step_in_force(connection, trial, group) for group in known.groups]
        known.total_batches = max([0, *steps])
        _revise_validations(connection, trial, found)


def _revise_validations(connection: Connection, trial: TrialId, found: Touched) -> None:
    known = found.known
    latest = metric_records.last_step_in_force(connection, trial, metric_reports.VALIDATION)
    known.latest_validation = found.validated = None if latest < 0 else latest
    best = metric_revising.best(connection, trial, known.aim)
    known.best, found.improved = (None, None) if best is None else best
    if best is None:
        known.best_id = None
    if latest < 0:
        known.latest_id = None


def _find_validations(connection: Connection, trial: TrialId, found: Touched) -> None:
    known = found.known
    if found.improved is not None:
        known.best_id = metric_records.id_of_validation(connection, trial, found.improved)
    if found.validated is not None:
        known.latest_id = metric_records.id_of_validation(connection, trial, found.validated)


def _change(trial: TrialId, found: Touched, now: Instant) -> dict[str, object]:
    known = found.known
    for group in found.groups:
        known.summaries[metric_reports.key(group)] = known.group(group).summary.document()
    return {
        "trial": trial,
        "summary_metrics": known.summaries,
        "total_batches": known.total_batches,
        "searcher_metric": known.best,
        "best_validation_id": known.best_id,
        "latest_validation_id": known.latest_id,
        "last_activity": now,
    }
