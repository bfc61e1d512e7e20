"""An experiment as Determined's clients are told of it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, TypeAlias

import msgspec

from muster.accounts.authorizing import Authorizer
from muster.accounts.callers import Caller, WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import raw
from muster.api.meta import Instant
from muster.api.raw import JSON, Document
from muster.experiments.config import showing
from muster.experiments.listing import Listed
from muster.server.determined import acting
from muster.server.determined.routing import Message

Labels: TypeAlias = Annotated[Sequence[str], msgspec.Meta(max_length=100)]
"""That something is looked for by: all of them."""


class State(StrEnum):
    """Of experiments; trials have all of these but those about deletion."""

    UNSPECIFIED = "STATE_UNSPECIFIED"
    ACTIVE = "STATE_ACTIVE"
    PAUSED = "STATE_PAUSED"
    STOPPING_COMPLETED = "STATE_STOPPING_COMPLETED"
    STOPPING_CANCELED = "STATE_STOPPING_CANCELED"
    STOPPING_ERROR = "STATE_STOPPING_ERROR"
    COMPLETED = "STATE_COMPLETED"
    CANCELED = "STATE_CANCELED"
    ERROR = "STATE_ERROR"
    DELETED = "STATE_DELETED"
    DELETING = "STATE_DELETING"
    DELETE_FAILED = "STATE_DELETE_FAILED"
    STOPPING_KILLED = "STATE_STOPPING_KILLED"
    QUEUED = "STATE_QUEUED"
    PULLING = "STATE_PULLING"
    STARTING = "STATE_STARTING"
    RUNNING = "STATE_RUNNING"


class Experiment(Message, frozen=True):
    """`duration`: in seconds. `checkpoint_size`: in bytes. `error`: ours alone; why it has failed, or could not be
    deleted."""

    id: int
    name: str
    description: str
    labels: Sequence[str]
    notes: str
    state: State
    error: str
    archived: bool
    parent_archived: bool
    job_id: str
    project_id: int
    project_name: str
    project_owner_id: int
    workspace_id: int
    workspace_name: str
    user_id: int
    username: str
    display_name: str
    start_time: str
    end_time: str | None
    duration: int
    progress: float
    num_trials: int
    trial_ids: Sequence[int]
    searcher_type: str
    searcher_metric: str
    best_trial_id: int | None
    best_trial_searcher_metric: float | None
    resource_pool: str
    forked_from: int | None
    external_experiment_id: str | None
    unmanaged: bool
    checkpoint_count: int
    checkpoint_size: str
    config: Mapping[str, JSON]
    original_config: str
    hyperparameters: Mapping[str, JSON]
    pachyderm_integration: Mapping[str, JSON] | None


@dataclass(frozen=True, slots=True)
class Eyes:
    """Who looks. `open`: the workspaces in which they see configurations with all that is secret; None for all."""

    open: Collection[WorkspaceId] | None
    now: Instant

    def sees(self, workspace: WorkspaceId) -> bool:
        return self.open is None or workspace in self.open


async def eyes(authorizer: Authorizer, caller: Caller, now: Instant) -> Eyes:
    return Eyes(await authorizer.workspaces(caller, Permission.EDIT_EXPERIMENTS), now)


def states(asked: Sequence[State]) -> list[str]:
    """As the records name them."""
    return [state.name for state in dict.fromkeys(asked) if state is not State.UNSPECIFIED]


def told(listed: Listed, eyes: Eyes, trials: Sequence[int] = ()) -> Experiment:
    found = listed.experiment
    is_open = eyes.sees(found.workspace)
    config = found.config if is_open else showing.shown(found.config)
    return Experiment(
        id=found.id,
        name=found.name,
        description=found.description,
        labels=found.labels,
        notes=found.notes,
        state=State[listed.state],
        error=found.error,
        archived=found.is_archived,
        parent_archived=listed.is_parent_archived,
        job_id=found.job,
        project_id=found.project,
        project_name=found.project_name,
        project_owner_id=found.project_owner,
        workspace_id=found.workspace,
        workspace_name=found.workspace_name,
        user_id=found.user,
        username=found.username,
        display_name=found.display_name,
        start_time=acting.time(found.created) or "",
        end_time=acting.time(found.ended),
        duration=max(0, int((found.ended or eyes.now) - found.created)),
        progress=found.progress,
        num_trials=found.trial_count,
        trial_ids=trials,
        searcher_type=found.searcher_type,
        searcher_metric=found.searcher_metric,
        best_trial_id=found.best_trial,
        best_trial_searcher_metric=found.best_metric,
        resource_pool=found.pool,
        forked_from=found.forked_from,
        external_experiment_id=found.external_id,
        unmanaged=found.is_unmanaged,
        checkpoint_count=found.checkpoint_count,
        checkpoint_size=str(found.checkpoint_bytes),
        config=config,
        original_config=found.original_config if is_open else showing.shown_text(found.original_config),
        hyperparameters=config.get("hyperparameters") or {},
        pachyderm_integration=raw.dig(config, "integrations", "pachyderm") or None,
    )


def unmade(config: Document, now: Instant) -> Experiment:
    """Of one that was only checked: the client's library wants a whole one all the same."""
    return Experiment(
        id=0,
        name=config.get("name") or "",
        description=config.get("description") or "",
        labels=config.get("labels") or (),
        notes="",
        state=State.UNSPECIFIED,
        error="",
        archived=False,
        parent_archived=False,
        job_id="",
        project_id=0,
        project_name=config.get("project") or "",
        project_owner_id=0,
        workspace_id=0,
        workspace_name=config.get("workspace") or "",
        user_id=0,
        username="",
        display_name="",
        start_time=acting.time(now) or "",
        end_time=None,
        duration=0,
        progress=0.0,
        num_trials=0,
        trial_ids=(),
        searcher_type=raw.dig(config, "searcher", "name", default=""),
        searcher_metric=raw.dig(config, "searcher", "metric", default=""),
        best_trial_id=None,
        best_trial_searcher_metric=None,
        resource_pool=raw.dig(config, "resources", "resource_pool", default=""),
        forked_from=None,
        external_experiment_id=None,
        unmanaged=False,
        checkpoint_count=0,
        checkpoint_size="0",
        config=config,
        original_config="",
        hyperparameters=config.get("hyperparameters") or {},
        pachyderm_integration=None,
    )
