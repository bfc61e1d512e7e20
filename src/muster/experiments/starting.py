"""Has trials run: starts their runs, tells these when to stop, and says when one could not be started.

A run that is being started cannot hear anything yet: what it is to be told waits until it can. Whether a run was
started before is asked only where nobody knows.
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from sqlalchemy import Connection

from muster.api import errors
from muster.engines.protocol import AllocationId, Failure
from muster.experiments import experiment_records, task_names, trial, trial_records
from muster.experiments.conducting import Spawn
from muster.experiments.course_records import OpenTrial
from muster.experiments.experiment import RunEnded
from muster.experiments.experiment_records import Experiment
from muster.experiments.log_policies import ReadLogs
from muster.experiments.room import Room
from muster.experiments.states import ExperimentId, TrialState
from muster.experiments.trial_records import Trial
from muster.records import Database
from muster.runtime.clock import Clock
from muster.tasks import allocation_records
from muster.tasks.allocation_states import Ended, Signal
from muster.tasks.contract import Allocations, Launch
from muster.tasks.insisting import insist
from muster.tasks.log_lines import Level

_log = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS: Final = 0.5
_LONGEST_PAUSE_SECONDS: Final = 60.0


class Launcher(Protocol):
    """`launching.TrialLauncher` is one."""

    async def launch(
        self, experiment: Experiment, trial: Trial, run: int, allocation: AllocationId, excluded: Collection[str] = ()
    ) -> Launch:
        """`excluded`: nodes that it must not come to. Raises BadRequest, NotFound."""
        ...


class TrialLogs(ReadLogs, Protocol):
    """`tasks.logs.TaskLogs` are."""

    async def tell(self, task: str, text: str, level: Level = ...) -> None: ...

    async def ended(self, task: str) -> None: ...


Tell: TypeAlias = Callable[[ExperimentId, RunEnded], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Services:
    """What starting needs of others."""

    database: Database
    clock: Clock
    allocations: Allocations
    launcher: Launcher
    logs: TrialLogs


class Starter:
    """`tell`: of runs that ended before they began; it raises where it should be tried again."""

    def __init__(self, services: Services, spawn: Spawn, tell: Tell) -> None:
        self._services = services
        self._spawn = spawn
        self._tell = tell
        self._room = Room(services.database, services.allocations)
        self._starting: dict[AllocationId, trial.Ask | None] = {}
        """What each is to be told once it has been started."""
        self._failures: dict[str, int] = {}
        """By task, how often in a row it could not be started for no fault of its own."""

    def do(self, found: OpenTrial, effect: trial.Effect, *, is_repeated: bool) -> None:
        allocation = task_names.allocation(found.task, effect.run)
        match effect:
            case trial.Start() if allocation not in self._starting:
                self._starting[allocation] = None
                self._spawn(self._start(found, effect.run, is_repeated), f"start {allocation}")
            case trial.Ask() if allocation in self._starting:
                self._starting[allocation] = effect
                self._room.wake()
            case trial.Ask():
                self._spawn(self._ask(allocation, effect.signal, effect.reason), f"ask {allocation}")
            case trial.EndLater():
                self._spawn(self._end_later(allocation, effect.seconds), f"end {allocation}")

    def closed(self, found: OpenTrial) -> None:
        self._failures.pop(found.task, None)
        self._spawn(self._say_closed(found), f"close {found.task}")

    async def _say_closed(self, found: OpenTrial) -> None:
        if found.state.phase is TrialState.ERROR:
            await self._say(found.task, f"trial {found.id} has failed: {found.state.reason}", Level.ERROR)
        await self._services.logs.ended(found.task)

    # Starting

    async def _start(self, found: OpenTrial, run: int, is_repeated: bool) -> None:
        allocation = task_names.allocation(found.task, run)
        try:
            lost = await self._tried(found, run, is_repeated)
        finally:
            asked = self._starting.pop(allocation)
        if lost is None:
            self._failures.pop(found.task, None)
            if asked is not None:
                await self._ask(allocation, asked.signal, asked.reason)
            return
        experiment, request_id = task_names.owner(found.task)
        ended = RunEnded(request_id, run, lost)
        await insist(f"telling that {allocation} was not started", lambda: self._tell(experiment, ended), self._clock)

    async def _tried(self, found: OpenTrial, run: int, is_repeated: bool) -> Ended | None:
        """None: it runs, or its end is told by others."""
        allocation = task_names.allocation(found.task, run)
        try:
            if is_repeated and (was_closed := await self._was_closed(allocation)) is not None:
                return _lost() if was_closed else None
            if not await self._launched(found, run, allocation):
                return _lost()
        except errors.AlreadyExists:
            return _lost() if await self._was_closed(allocation) else None
        except errors.ApiError as error:
            if error.retryable:
                return await self._in_vain(found, error)
            await self._say(found.task, f"trial {found.id} could not be started: {error.message}", Level.ERROR)
            return Ended(f"it could not be started: {error.message}", Failure.INVALID_REQUEST, error.message)
        except Exception as error:
            _log.exception("run %s could not be started", allocation)
            return await self._in_vain(found, error)
        return None

    async def _in_vain(self, found: OpenTrial, error: Exception) -> Ended:
        """The next try is another run: nobody knows what has become of this one's name."""
        failures = self._failures.get(found.task, 0)
        self._failures[found.task] = failures + 1
        pause = min(_FIRST_PAUSE_SECONDS * 2.0 ** min(failures, 20), _LONGEST_PAUSE_SECONDS)
        await self._say(found.task, f"trial {found.id} was not started, and is tried again: {error}", Level.WARNING)
        await self._clock.sleep(pause)
        return _lost()

    async def _launched(self, found: OpenTrial, run: int, allocation: AllocationId) -> bool:
        """False where it was to end before there was room for it."""
        experiment_id, _ = task_names.owner(found.task)

        def read(connection: Connection) -> tuple[Experiment, Trial]:
            return experiment_records.get(connection, experiment_id), trial_records.get(connection, found.id)

        experiment, row = await self._services.database.read(read)
        launch = await self._services.launcher.launch(experiment, row, run, allocation, found.state.excluded)
        return await self._room.start(experiment.workspace, launch, lambda: self._starting.get(allocation) is not None)

    async def _was_closed(self, allocation: AllocationId) -> bool | None:
        """Whether its owner was told of its end, or need not be. None: there is none of this name."""
        return await self._services.database.read(
            lambda connection: allocation_records.was_closed(connection, allocation)
        )

    # Ending

    async def _ask(self, allocation: AllocationId, signal: Signal, reason: str) -> None:
        async def act() -> None:
            await self._services.allocations.signal(allocation, signal, reason)

        await insist(f"telling {allocation} to end", act, self._clock)

    async def _end_later(self, allocation: AllocationId, seconds: float) -> None:
        await self._clock.sleep(seconds)
        await self._ask(allocation, Signal.KILL, "it gave up, and did not end by itself")

    async def _say(self, task: str, text: str, level: Level) -> None:
        try:
            await self._services.logs.tell(task, text, level)
        except Exception as error:  # a line of a log is not worth more trouble
            _log.warning("the log of task %s could not be written: %s", task, error)

    @property
    def _clock(self) -> Clock:
        return self._services.clock


def _lost() -> Ended:
    return Ended("it was not started", Failure.RESTORE_ERROR)
