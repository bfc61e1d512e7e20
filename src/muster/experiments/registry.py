"""All experiments that have not ended, each with its conductor; and who hears of what happens to their runs.

After a start those that the records name are taken up again. What has ended costs nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Final

from muster.accounts.audit import By, Deed
from muster.api import errors
from muster.engines.protocol import AllocationId
from muster.experiments import experiment as machine
from muster.experiments import experiment_records, log_policies, task_names, trial
from muster.experiments.conducting import Conductor, Means, Write
from muster.experiments.course_records import Course, load
from muster.experiments.experiment import OfTrial, RunEnded
from muster.experiments.starting import Services, Starter
from muster.experiments.states import ENDED, ExperimentId, ExperimentState
from muster.tasks.contract import Exited

_log = logging.getLogger(__name__)
_RUNNING: Final = frozenset(ExperimentState) - ENDED - {ExperimentState.DELETING, ExperimentState.DELETE_FAILED}
_RESTORE_SECONDS: Final = 60.0
"""For so long whoever asks waits for what may yet be taken up again."""


class Conductors:
    """`run` must be kept running; what is asked before it has taken up what was there waits for that."""

    def __init__(self, services: Services, write: Write, forget: Callable[[frozenset[int]], None]) -> None:
        self._services = services
        self._found: dict[ExperimentId, Conductor] = {}
        self._restored = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._changed: list[Callable[[Course], None]] = []
        starter = Starter(services, self.spawn, self._run_ended)
        self._means = Means(
            database=services.database,
            clock=services.clock,
            runner=starter,
            spawn=self.spawn,
            write=write,
            forget=forget,
            changed=self._course_changed,
        )

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as self._tasks:
                for experiment in await self._services.database.read(
                    lambda connection: experiment_records.in_states(connection, _RUNNING)
                ):
                    self.begin(experiment)
                self._restored.set()
                await asyncio.Event().wait()
        finally:
            self._tasks = None
            self._restored.clear()
            for conductor in self._found.values():
                conductor.close()
            self._found.clear()

    def spawn(self, act: Coroutine[None, None, None], name: str) -> None:
        if self._tasks is None:
            act.close()
            raise errors.Unavailable("the service of experiments does not run")
        task = self._tasks.create_task(_guarded(act, name), name=f"experiments: {name}")
        task.add_done_callback(lambda _: act.close())  # one that is cancelled before it begins never looks at it

    def on_change(self, handler: Callable[[Course], None]) -> None:
        """Told of each change of an experiment's course, once it is durable. It must not raise and not block."""
        self._changed.append(handler)

    # What there is

    def begin(self, experiment: ExperimentId) -> None:
        """It is in the records, and may have begun already."""
        conductor = self._found.setdefault(experiment, Conductor(experiment, self._means))
        conductor.wake()

    def wake(self, experiment: ExperimentId) -> None:
        """There is something in its inbox. Of one that does not run: nothing happens."""
        conductor = self._found.get(experiment)
        if conductor is not None:
            conductor.wake()

    def refresh(self, experiment: ExperimentId) -> None:
        """Somebody else has changed what the records say of it."""
        conductor = self._found.get(experiment)
        if conductor is not None:
            conductor.refresh()

    def course(self, experiment: ExperimentId) -> Course | None:
        """As it was last written; None where it does not run, or was not read yet."""
        conductor = self._found.get(experiment)
        return None if conductor is None else conductor.course

    async def tell(
        self, experiment: ExperimentId, event: machine.Event, deed: tuple[By, Deed] | None = None
    ) -> ExperimentState | None:
        """How it stands after that, which is durable; None where it does not run."""
        await self.ready()
        conductor = self._found.get(experiment)
        return None if conductor is None else await conductor.tell(event, deed)

    async def ready(self) -> None:
        """Raises Unavailable."""
        try:
            async with asyncio.timeout(_RESTORE_SECONDS):
                await self._restored.wait()
        except TimeoutError as error:
            raise errors.Unavailable("the server is still taking up what ran before it was started") from error

    async def exited(self, exited: Exited) -> None:
        """A run of a trial has ended: for `Allocations.on_exit`."""
        experiment, request_id = task_names.owner(exited.task)
        if exited.ended.failure is not None:
            for event in await self._after_failure(experiment, exited.allocation):
                await self.tell(experiment, OfTrial(request_id, event))
        state = exited.state
        seconds = 0.0
        if state.started_at is not None and state.ended_at is not None:
            seconds = max(0.0, state.ended_at - state.started_at)
        slots = sum(part.resource.slots for part in state.parts)
        run = task_names.run(exited.allocation)
        await self._run_ended(experiment, RunEnded(request_id, run, exited.ended, seconds * slots))

    async def _after_failure(self, experiment: ExperimentId, allocation: AllocationId) -> Sequence[trial.Event]:
        await self.ready()
        if experiment not in self._found:
            return ()
        course = self.course(experiment)
        if course is None:
            course = await self._services.database.read(lambda connection: load(connection, experiment))
        return await log_policies.after_failure(self._services.logs, course, allocation)

    async def _run_ended(self, experiment: ExperimentId, ended: RunEnded) -> None:
        await self.tell(experiment, ended)

    def _course_changed(self, course: Course) -> None:
        if course.state in ENDED:
            self._found.pop(course.experiment, None)
        for handler in self._changed:
            handler(course)


async def _guarded(act: Coroutine[None, None, None], name: str) -> None:
    """What goes wrong with one must not end the others."""
    try:
        await act
    except Exception:
        _log.exception("experiments: %s failed", name)
