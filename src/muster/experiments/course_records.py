"""The course of an experiment in the records: what is needed to take it up again, and each change of it as one.

Functions of a connection.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from sqlalchemy import Connection, bindparam, func, insert, select, update

from muster.accounts import audit, sessions
from muster.accounts.audit import By, Deed
from muster.accounts.callers import UserId, WorkspaceId
from muster.api import raw
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.experiments import experiment_records, inbox, task_names, trial, trial_records
from muster.experiments.experiment import Before, Outcome
from muster.experiments.states import ENDED, TRIAL_ENDED, ExperimentId, ExperimentState, TrialId, TrialState
from muster.records.tables_accounts import PROJECTS
from muster.records.tables_experiments import EXPERIMENTS, TRIAL_TASKS, TRIALS
from muster.records.tables_tasks import TASKS
from muster.search.protocol import Create, RequestId
from muster.tasks import log_retention


class Kept(msgspec.Struct, frozen=True):
    """What an experiment keeps of its search. `continued`: how often it went on after its end. `is_spent`: it has cost
    what it may."""

    snapshot: bytes = b""
    """Empty: not begun."""
    continued: int = 0
    is_spent: bool = False

    def encoded(self) -> bytes:
        return msgspec.msgpack.encode(self)


@dataclass(frozen=True, slots=True)
class OpenTrial:
    id: TrialId
    task: str
    state: trial.State


@dataclass(frozen=True, slots=True)
class Course:
    """All of an experiment that its conductor must know. `trials`: those that have not ended; whoever has read it keeps
    them up to date. `before`: those that had ended when it was continued."""

    experiment: ExperimentId
    state: ExperimentState
    config: Document
    job: str
    user: UserId
    workspace: WorkspaceId
    slots_per_trial: int
    max_slots: int | None
    log_retention_days: int | None
    slot_seconds: float
    kept: Kept
    trials: dict[RequestId, OpenTrial]
    before: Mapping[RequestId, tuple[TrialId, Before]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """All that some events have led to. `kept`: None where the search was not asked. `taken`: the last of the inbox;
    0 for none."""

    at: Instant
    state: ExperimentState
    outcome: Outcome
    progress: float
    error: str = ""
    kept: Kept | None = None
    taken: int = 0
    trial_progress: Mapping[RequestId, float] = field(default_factory=dict)
    deeds: Sequence[tuple[By, Deed]] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """`made`: trials that are new, or go on. `sessions`: which were closed."""

    made: Mapping[RequestId, OpenTrial]
    sessions: frozenset[int]


def load(connection: Connection, experiment: ExperimentId) -> Course:
    """Raises NotFound."""
    columns = EXPERIMENTS.c
    query = (
        select(
            columns.state, columns.config, columns.job_id, columns.user_id, columns.slots_per_trial,
            columns.max_slots, columns.log_retention_days, columns.slot_seconds, columns.search,
            PROJECTS.c.workspace_id,
        )
        .join(PROJECTS, PROJECTS.c.id == columns.project_id)
        .where(columns.id == experiment)
    )  # fmt: skip
    row = connection.execute(query).one_or_none()
    if row is None:
        raise experiment_records.not_found(experiment)
    kept = Kept() if row.search is None else msgspec.msgpack.decode(row.search, type=Kept)
    return Course(
        experiment,
        ExperimentState(row.state),
        row.config,
        row.job_id,
        UserId(row.user_id),
        WorkspaceId(row.workspace_id),
        row.slots_per_trial,
        row.max_slots,
        row.log_retention_days,
        row.slot_seconds,
        kept,
        _open(connection, experiment),
        _before(connection, experiment, row.config) if kept.continued else {},
    )


def _open(connection: Connection, experiment: ExperimentId) -> dict[RequestId, OpenTrial]:
    query = (
        select(TRIALS.c.id, TRIALS.c.request_id, TRIALS.c.task_id, TRIALS.c.machine)
        .where(TRIALS.c.experiment_id == experiment, TRIALS.c.state.not_in(list(TRIAL_ENDED)))
        .order_by(TRIALS.c.id)
    )
    return {
        RequestId(row.request_id): OpenTrial(TrialId(row.id), row.task_id, msgspec.convert(row.machine, trial.State))
        for row in connection.execute(query)
    }


def _before(
    connection: Connection, experiment: ExperimentId, config: Document
) -> dict[RequestId, tuple[TrialId, Before]]:
    """A single trial may be trained for longer than it was at first; in a search, what is done is done."""
    is_single = raw.dig(config, "searcher", "name") == "single"
    query = select(TRIALS.c.id, TRIALS.c.request_id, TRIALS.c.state, TRIALS.c.run).where(
        TRIALS.c.experiment_id == experiment, TRIALS.c.state.in_(list(TRIAL_ENDED))
    )
    return {
        RequestId(row.request_id): (
            TrialId(row.id),
            Before(row.state == TrialState.COMPLETED and not is_single, row.run),
        )
        for row in connection.execute(query)
    }


def save(connection: Connection, course: Course, change: Change) -> Written:
    made = {action.request_id: _make(connection, course, change, action) for action in change.outcome.created}
    closed = _change_trials(connection, course, change, made)
    for request_id, progress in change.trial_progress.items():
        found = course.trials.get(request_id)
        if found is not None:
            trial_records.change(connection, found.id, {"progress": progress})
    if change.taken:
        inbox.taken(connection, course.experiment, change.taken)
    for by, deed in change.deeds:
        audit.note(connection, change.at, by, deed)
    _change_experiment(connection, course, change, sum(id not in course.before for id in made))
    return Written(made, closed)


def _change_experiment(connection: Connection, course: Course, change: Change, new_trials: int) -> None:
    outcome = change.outcome
    values: dict[str, object] = {"state": change.state.value, "progress": change.progress}
    if change.kept is not None:
        values["search"] = change.kept.encoded()
    if new_trials:
        values["trial_count"] = EXPERIMENTS.c.trial_count + new_trials
    if outcome.slot_seconds:
        values["slot_seconds"] = EXPERIMENTS.c.slot_seconds + outcome.slot_seconds
    if change.error:
        values["error"] = change.error
    if outcome.note:
        values["notes"] = func.ltrim(EXPERIMENTS.c.notes + f"\n{outcome.note}", "\n")
    if change.state in ENDED:
        values |= {"ended": change.at, "is_untidy": True}
    connection.execute(update(EXPERIMENTS).where(EXPERIMENTS.c.id == course.experiment).values(values))


# Trials


def _make(connection: Connection, course: Course, change: Change, action: Create) -> OpenTrial:
    before = course.before.get(action.request_id)
    number = 0 if before is None else course.kept.continued
    task = task_names.task(course.experiment, action.request_id, number)
    state = change.outcome.changed[action.request_id]
    connection.execute(insert(TASKS).values(_task(course, task, change.at)))
    values: dict[str, object] = {"hparams": action.hparams, "task_id": task, **_columns(state, change.at)}
    if before is None:
        values |= {
            "experiment_id": course.experiment,
            "request_id": action.request_id,
            "seed": action.seed,
            "warm_start": _warm_start(connection, course.config),
            "log_retention_days": course.log_retention_days,
            "created": change.at,
        }
        id = trial_records.add(connection, values)
    else:
        id = before[0]
        trial_records.change(connection, id, values)
    connection.execute(insert(TRIAL_TASKS).values(task_id=task, trial_id=id))
    if course.log_retention_days is not None:
        log_retention.keep(connection, [task], course.log_retention_days, round(change.at * 1_000_000))
    return OpenTrial(id, task, state)


def _task(course: Course, task: str, at: Instant) -> dict[str, object]:
    """`config`: what others read of it: who sums up usage by label, and webhooks."""
    return {
        "id": task,
        "type": "TRIAL",
        "job_id": course.job,
        "user_id": course.user,
        "workspace_id": course.workspace,
        "description": f"Trial of Experiment {course.experiment}",
        "config": {name: course.config.get(name) for name in ("labels", "integrations")},
        "snapshot": {"context": task_names.context(course.experiment)},
        "created": at,
    }


def _warm_start(connection: Connection, config: Document) -> str | None:
    """The checkpoint that its trials begin with."""
    uuid, source = (raw.dig(config, "searcher", key) for key in ("source_checkpoint_uuid", "source_trial_id"))
    if isinstance(uuid, str) and uuid:
        return uuid
    if not isinstance(source, int):
        return None
    return connection.scalar(select(TRIALS.c.latest_checkpoint).where(TRIALS.c.id == source))


_CHANGE: Final = update(TRIALS).where(TRIALS.c.id == bindparam("of_id"))
_END: Final = update(TASKS).where(TASKS.c.id == bindparam("of_id"))


def _change_trials(
    connection: Connection, course: Course, change: Change, made: Mapping[RequestId, OpenTrial]
) -> frozenset[int]:
    """Which sessions were closed."""
    changed = {
        id: (course.trials[id] if id in course.trials else made[id], state)
        for id, state in change.outcome.changed.items()
    }
    rows = [
        {"of_id": found.id, **_columns(state, change.at)} for id, (found, state) in changed.items() if id not in made
    ]
    if rows:
        connection.execute(_CHANGE, rows)
    closed = [found.task for found, state in changed.values() if state.is_over]
    if closed:
        connection.execute(_END, [{"of_id": task, "ended": change.at} for task in closed])
    return frozenset().union(*(sessions.close_of_task(connection, task) for task in closed))


def _columns(state: trial.State, at: Instant) -> dict[str, object]:
    return {
        "state": state.phase.value,
        "restarts": state.restarts,
        "run": state.run,
        "machine": msgspec.to_builtins(state),
        "ended": at if state.is_over else None,
    }
