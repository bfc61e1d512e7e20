"""How far those that are active have come: from what runs for them. Functions of a connection, and conditions for one.

In the records an experiment or a trial is ACTIVE, whatever becomes of its runs; people want to know whether it waits.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final, TypeVar

from sqlalchemy import ColumnElement, Connection, and_, or_, select

from muster.experiments.states import ExperimentId, TrialId
from muster.records.tables_experiments import EXPERIMENTS, TRIALS
from muster.records.tables_tasks import ALLOCATIONS
from muster.tasks.allocation_states import Phase

_ACTIVE: Final = "ACTIVE"
Key = TypeVar("Key", ExperimentId, TrialId)


class Standing(StrEnum):
    """The later ones go before the earlier ones: one run that runs is enough."""

    QUEUED = "QUEUED"
    PULLING = "PULLING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"


_ORDER: Final = tuple(Standing)
_OF_PHASE: Final[Mapping[Phase, Standing]] = {
    Phase.PULLING: Standing.PULLING,
    Phase.STARTING: Standing.STARTING,
    Phase.RUNNING: Standing.RUNNING,
    Phase.WAITING: Standing.RUNNING,
    Phase.TERMINATING: Standing.RUNNING,
}
"""All others are of runs that have no place yet, or none any more."""


def of_experiments(connection: Connection, experiments: Collection[ExperimentId]) -> Mapping[ExperimentId, Standing]:
    """Of those among them that have runs; the others are queued."""
    if not experiments:
        return {}
    # An expression, which no index is for: what is open is little, and what an experiment ever had may be much.
    experiment = TRIALS.c.experiment_id + 0
    query = (
        select(TRIALS.c.experiment_id, ALLOCATIONS.c.phase)
        .join(ALLOCATIONS, ALLOCATIONS.c.task_id == TRIALS.c.task_id)
        .where(ALLOCATIONS.c.is_open.is_(True), experiment.in_(list(experiments)))
        .distinct()
    )
    return _furthest((ExperimentId(id), phase) for id, phase in connection.execute(query))


def of_trials(connection: Connection, trials: Collection[TrialId]) -> Mapping[TrialId, Standing]:
    """See `of_experiments`."""
    if not trials:
        return {}
    query = (
        select(TRIALS.c.id, ALLOCATIONS.c.phase)
        .join(ALLOCATIONS, ALLOCATIONS.c.task_id == TRIALS.c.task_id)
        .where(ALLOCATIONS.c.is_open.is_(True), TRIALS.c.id.in_(list(trials)))
    )
    return _furthest((TrialId(id), phase) for id, phase in connection.execute(query))


def experiment_is(state: str) -> ColumnElement[bool]:
    """`state`: as it is shown."""
    key = TRIALS.c.experiment_id
    return _is(state, EXPERIMENTS.c.state, EXPERIMENTS.c.id, key, is_elsewhere=EXPERIMENTS.c.is_unmanaged)


def trial_is(state: str) -> ColumnElement[bool]:
    """Of a query that has the trial's experiment. `state`: as it is shown."""
    return _is(state, TRIALS.c.state, TRIALS.c.id, TRIALS.c.id, is_elsewhere=EXPERIMENTS.c.is_unmanaged)


def _is(
    state: str,
    column: ColumnElement[str],
    id: ColumnElement[int],
    key: ColumnElement[int],
    *,
    is_elsewhere: ColumnElement[bool],
) -> ColumnElement[bool]:
    if state not in Standing.__members__:
        return column == state
    wanted = Standing(state)

    def has(*standings: Standing) -> ColumnElement[bool]:
        phases = [phase.value for phase, standing in _OF_PHASE.items() if standing in standings]
        live = TRIALS.alias()
        found = (
            select(live.c[key.key or ""])
            .join(ALLOCATIONS, ALLOCATIONS.c.task_id == live.c.task_id)
            .where(ALLOCATIONS.c.is_open.is_(True), ALLOCATIONS.c.phase.in_(phases))
        )
        return id.in_(found)

    later = _ORDER[_ORDER.index(wanted) + 1 :]
    if wanted is Standing.QUEUED:
        return and_(column == _ACTIVE, is_elsewhere.is_(False), ~has(*later))
    here = and_(has(wanted), ~has(*later)) if later else or_(has(wanted), is_elsewhere.is_(True))
    return and_(column == _ACTIVE, here)


def _furthest(found: Iterable[tuple[Key, str]]) -> dict[Key, Standing]:
    standings: dict[Key, Standing] = {}
    for key, phase in found:
        standing = _OF_PHASE.get(Phase(phase), Standing.QUEUED)
        before = standings.get(key, Standing.QUEUED)
        standings[key] = max(before, standing, key=_ORDER.index)
    return standings
