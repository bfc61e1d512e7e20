"""One thing done with many experiments or runs: with each that may be changed; the others are told why not."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from sqlalchemy import Connection

from muster.accounts.audit import By, Deed, note
from muster.accounts.authorizing import Authorizer
from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.accounts.projects import ProjectId
from muster.api import errors
from muster.api.errors import ApiError
from muster.experiments import experiment_records, listing, run_listing, trial_records
from muster.experiments.contract import Experiments
from muster.experiments.listing import ExperimentFilter
from muster.experiments.run_listing import Run, RunFilter
from muster.experiments.states import TRIAL_ENDED, ExperimentId, TrialId
from muster.records import Database
from muster.runtime.clock import Clock

_AT_ONCE: Final = 32
"""Enough for their changes to share commits."""
Act: TypeAlias = Callable[[ExperimentId], Awaitable[None]]
ActOnRun: TypeAlias = Callable[[Run], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`error`: empty where it was done."""

    id: int
    error: str = ""


class Bulk:
    def __init__(self, database: Database, clock: Clock, authorizer: Authorizer) -> None:
        self._database = database
        self._clock = clock
        self._authorizer = authorizer

    async def each(self, by: By, chosen: ExperimentFilter, act: Act) -> Sequence[Outcome]:
        """Those that are chosen by their numbers and are not there are told of as well."""
        visible = await self._authorizer.workspaces(by.caller, Permission.VIEW_EXPERIMENTS)
        seen, now = replace(chosen, visible=visible), self._clock.now()
        found: dict[int, WorkspaceId] = dict(
            await self._database.read(lambda connection: listing.ids(connection, seen, now))
        )

        async def one(id: int) -> Outcome:
            async def done() -> None:
                if id not in found:
                    raise experiment_records.not_found(id)
                await self._authorizer.check(by.caller, Permission.EDIT_EXPERIMENTS, found[id])
                await act(ExperimentId(id))

            return await _outcome(id, done)

        return await _together(list(dict.fromkeys([*chosen.ids.including, *found])), one)


class RunBulk:
    """Of runs. Where a run is all of its experiment, what is done is done with that."""

    def __init__(self, database: Database, clock: Clock, authorizer: Authorizer, experiments: Experiments) -> None:
        self._database = database
        self._clock = clock
        self._authorizer = authorizer
        self._experiments = experiments

    async def each(self, by: By, chosen: RunFilter, act: ActOnRun) -> Sequence[Outcome]:
        visible = await self._authorizer.workspaces(by.caller, Permission.VIEW_EXPERIMENTS)
        seen, now = replace(chosen, visible=visible), self._clock.now()
        found = await self._database.read(lambda connection: run_listing.whole(connection, seen, now))
        runs: dict[int, Run | None] = dict.fromkeys(chosen.ids or ())
        runs |= {run.trial.id: run for run in found}

        async def one(id: int) -> Outcome:
            async def done() -> None:
                run = runs[id]
                if run is None:
                    raise errors.NotFound(f"run {id} not found")
                await self._authorizer.check(by.caller, Permission.EDIT_EXPERIMENTS, run.trial.workspace)
                await act(run)

            return await _outcome(id, done)

        return await _together(list(runs), one)

    # What can be done with a run

    def kill(self, by: By) -> ActOnRun:
        async def act(run: Run) -> None:
            await self._experiments.kill_trial(by, run.trial.id)

        return act

    def pause(self, by: By) -> ActOnRun:
        async def act(run: Run) -> None:
            await self._experiments.pause(by, _whole(run, "paused"))

        return act

    def resume(self, by: By) -> ActOnRun:
        async def act(run: Run) -> None:
            await self._experiments.activate(by, _whole(run, "resumed"))

        return act

    def delete(self, by: By) -> ActOnRun:
        async def act(run: Run) -> None:
            await self._experiments.delete(by, _whole(run, "deleted"))

        return act

    def move(self, by: By, to: ProjectId, *, is_whole_only: bool) -> ActOnRun:
        """`is_whole_only`: what belongs to a search stays; else all of the search goes along."""
        moved: set[ExperimentId] = set()

        async def act(run: Run) -> None:
            experiment = _whole(run, "moved") if is_whole_only else run.experiment.id
            if experiment not in moved:
                moved.add(experiment)
                await self._experiments.move(by, experiment, to)

        return act

    def archive(self, by: By, *, is_archived: bool) -> ActOnRun:
        action = "trial.archive" if is_archived else "trial.unarchive"

        async def act(run: Run) -> None:
            trial = TrialId(run.trial.id)
            if run.trial.state not in TRIAL_ENDED:
                raise errors.Conflict(f"run {trial} is {run.trial.state}: only one that has ended is archived")

            def change(connection: Connection) -> None:
                trial_records.change(connection, trial, {"is_archived": is_archived})
                note(connection, self._clock.now(), by, Deed(action, str(trial)))

            await self._database.write(change)

        return act


def _whole(run: Run, done: str) -> ExperimentId:
    """The experiment that a run is all of. Raises BadRequest."""
    if run.experiment.is_search:
        raise errors.BadRequest(
            f"run {run.trial.id} belongs to search {run.experiment.id}, which is {done} as a whole"
        )  # fmt: skip
    return run.experiment.id


async def _outcome(id: int, done: Callable[[], Awaitable[None]]) -> Outcome:
    try:
        await done()
    except ApiError as error:
        return Outcome(id, error.message)
    return Outcome(id)


async def _together(wanted: Sequence[int], one: Callable[[int], Awaitable[Outcome]]) -> Sequence[Outcome]:
    """In the order of `wanted`."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def waited(id: int) -> Outcome:
        async with gate:
            return await one(id)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(waited(id), name=f"one of many: {id}") for id in wanted]
    return [task.result() for task in tasks]
