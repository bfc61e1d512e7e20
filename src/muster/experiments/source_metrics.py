"""What trials have reported that use a checkpoint, or a version of a model: batch inference, fine tuning."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Connection, select

from muster.accounts.callers import WorkspaceId
from muster.experiments import metric_reading
from muster.experiments.metric_reading import Reported
from muster.experiments.states import TrialId
from muster.records.tables_accounts import PROJECTS
from muster.records.tables_experiments import EXPERIMENTS, TRIAL_SOURCES, TRIALS

MOST: Final = 10_000
"""Reports in one answer."""


@dataclass(frozen=True, slots=True)
class Source:
    """What trials have used. `version`: of the model with that number; None for any use of the checkpoint. `use`: what
    for; empty for anything."""

    checkpoint: str
    version: tuple[int, int] | None = None
    use: str = ""


def users(connection: Connection, source: Source) -> dict[TrialId, WorkspaceId]:
    """Trials that use it, and where each of them is."""
    rows = connection.execute(
        select(TRIALS.c.id, PROJECTS.c.workspace_id)
        .join(TRIAL_SOURCES, TRIAL_SOURCES.c.trial_id == TRIALS.c.id)
        .join(EXPERIMENTS, EXPERIMENTS.c.id == TRIALS.c.experiment_id)
        .join(PROJECTS, PROJECTS.c.id == EXPERIMENTS.c.project_id)
        .where(*_of(source))
        .order_by(TRIALS.c.id)
    )
    return {TrialId(row.id): WorkspaceId(row.workspace_id) for row in rows}


def reports(connection: Connection, trials: Collection[TrialId], group: str) -> Sequence[Reported]:
    """By trial, group and steps; no more than `MOST`. `group`: empty for all."""
    found: list[Reported] = []
    for trial in sorted(trials):
        found += metric_reading.of_trial(connection, trial, group, MOST - len(found))
    return found


def _of(source: Source) -> Sequence[ColumnElement[bool]]:
    table = TRIAL_SOURCES
    chosen = [table.c.checkpoint_uuid == source.checkpoint]
    if source.version is not None:
        model, version = source.version
        chosen += [table.c.model_id == model, table.c.model_version == version]
    if source.use:
        chosen.append(table.c.type == source.use)
    return chosen
