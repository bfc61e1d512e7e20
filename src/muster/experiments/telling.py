"""Tells webhooks of experiments that have come to their end, and what else webhooks ask of experiments.

The end and the word of it are one change of the records: there is no one without the other.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from muster.accounts.authorizing import Authorizer
from muster.accounts.callers import Caller
from muster.accounts.permissions import Permission
from muster.api import errors
from muster.experiments import experiment_records, trial_records
from muster.experiments.experiment_records import Experiment
from muster.experiments.states import ENDED, ExperimentId
from muster.records import Database
from muster.tasks import webhook_rules, webhooks
from muster.tasks.webhook_payloads import ExperimentFacts, Happening
from muster.tasks.webhook_rules import Webhook
from muster.tasks.webhooks import Webhooks

T = TypeVar("T")


class Herald:
    def __init__(self, database: Database, hooks: Webhooks) -> None:
        self._database = database
        self._hooks = hooks

    async def write(self, experiment: ExperimentId, change: Callable[[Connection], T], *, may_end: bool) -> T:
        """`may_end`: the experiment had not ended before, and may have after."""
        if not may_end:
            return await self._database.write(change)
        made: list[T] = []

        def meant(connection: Connection) -> Sequence[tuple[Webhook, Happening]]:
            made.append(change(connection))
            found = experiment_records.get(connection, experiment)
            if found.state not in ENDED:
                return ()
            return webhooks.to_tell_of_end(connection, told(found))

        await self._hooks.queue(meant)
        return made[-1]


class Speakers:
    """Who may speak for an experiment: those who may edit it, and its own trials."""

    def __init__(self, database: Database, authorizer: Authorizer) -> None:
        self._database = database
        self._authorizer = authorizer

    async def find(self, caller: Caller, experiment: int) -> webhooks.Experiment | None:
        """None where there is none, or the caller may not speak for it: for `Webhooks`."""

        def read(connection: Connection) -> tuple[Experiment, bool]:
            found = experiment_records.get(connection, experiment)
            trial = trial_records.of_task(connection, caller.task) if caller.task else None
            is_own = trial is not None and trial_records.get(connection, trial).experiment == found.id
            return found, is_own

        try:
            found, is_own = await self._database.read(read)
        except errors.NotFound:
            return None
        if is_own or (
            not caller.task and await self._authorizer.allows(caller, Permission.EDIT_EXPERIMENTS, found.workspace)
        ):
            return told(found)
        return None


def told(found: Experiment) -> webhooks.Experiment:
    facts = ExperimentFacts(
        found.id,
        found.name,
        found.state.value,
        slots=found.slots_per_trial,
        seconds=int((found.ended or found.created) - found.created),
        pool=found.pool,
        workspace=found.workspace_name,
        project=found.project_name,
    )
    return webhooks.Experiment(webhook_rules.subject(found.workspace, found.config), facts)
