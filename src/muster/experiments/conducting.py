"""One experiment that has not ended: takes in what happens to it, makes durable what follows from that, and does it.

Whatever comes is taken in order, and what comes at the same time together: one change of the records has all that it
led to. Where that change fails, everything is read again from the records, and whoever told of it tells it again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeAlias

from sqlalchemy import Connection

from muster.accounts.audit import By, Deed
from muster.api import errors
from muster.experiments import experiment as machine
from muster.experiments import inbox, searches, trial
from muster.experiments.course_records import Change, Course, Kept, OpenTrial, Written, load, save
from muster.experiments.experiment import Do, Machine
from muster.experiments.inbox import Entry, Gave
from muster.experiments.states import ENDED, ExperimentId, ExperimentState
from muster.records import Database
from muster.runtime.clock import Clock
from muster.search.protocol import RequestId

_log = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 30.0


class Runner(Protocol):
    """Does what an experiment wants done: `starting.Starter`. All of it may be asked for again, must not raise, and
    must not block."""

    def do(self, found: OpenTrial, effect: trial.Effect, *, is_repeated: bool) -> None:
        """`is_repeated`: nobody knows whether it was done before."""
        ...

    def closed(self, found: OpenTrial) -> None:
        """It has ended, and its sessions with it."""
        ...


Spawn: TypeAlias = Callable[[Coroutine[None, None, None], str], object]


class Write(Protocol):
    """Makes a change durable, with what others must write because of it: `telling.Herald.write`."""

    def __call__(
        self, experiment: ExperimentId, change: Callable[[Connection], Written], *, may_end: bool
    ) -> Awaitable[Written]: ...


@dataclass(frozen=True, slots=True)
class Means:
    """`forget`: sessions that were closed. `changed`: told of each change, once it is durable; neither may raise."""

    database: Database
    clock: Clock
    runner: Runner
    spawn: Spawn
    write: Write
    forget: Callable[[frozenset[int]], None]
    changed: Callable[[Course], None]


@dataclass(slots=True)
class _Told:
    event: machine.Event
    done: "asyncio.Future[ExperimentState]"
    deed: tuple[By, Deed] | None = None


@dataclass(frozen=True, slots=True)
class _Stepped:
    """What the machine has made of what happened, before that is durable."""

    change: Change
    effects: Sequence[Do]
    is_anything: bool


@dataclass(slots=True)
class _Running:
    """As the records have it."""

    course: Course
    machine: Machine
    ids: dict[int, RequestId] = field(default_factory=dict)
    """Of its trials that have not ended."""


class Conductor:
    def __init__(self, experiment: ExperimentId, means: Means) -> None:
        self.experiment = experiment
        self._means = means
        self._running: _Running | None = None
        self._told: list[_Told] = []
        self._is_woken = False
        self._is_stale = False
        self._is_busy = False
        self._failures = 0

    def wake(self) -> None:
        """There is something in its inbox; or it is to be begun, or taken up again."""
        self._is_woken = True
        self._act()

    def refresh(self) -> None:
        """Somebody else has changed what the records say of it."""
        self._is_stale = True
        self.wake()

    async def tell(self, event: machine.Event, deed: tuple[By, Deed] | None = None) -> ExperimentState:
        """How the experiment stands after it, which is durable. Raises what keeps that from being written."""
        done: asyncio.Future[ExperimentState] = asyncio.get_running_loop().create_future()
        self._told.append(_Told(event, done, deed))
        self._act()
        return await done

    @property
    def course(self) -> Course | None:
        """As it was last written; None where it was not read yet."""
        return None if self._running is None else self._running.course

    def close(self) -> None:
        """Whoever waits hears that nobody will answer any more."""
        told, self._told = self._told, []
        _fail(told, errors.Unavailable("the server is being stopped, or started again"))

    def _act(self) -> None:
        if not self._is_busy:
            self._means.spawn(self._drain(), f"experiment {self.experiment}")
            self._is_busy = True

    async def _drain(self) -> None:
        try:
            while self._told or self._is_woken:
                await self._cycle()
        finally:
            self._is_busy = False

    async def _cycle(self) -> None:
        told, self._told, self._is_woken = self._told, [], False
        try:
            running = self._running
            if running is None or self._is_stale:
                running = await self._load()
            stepped = await self._means.database.read(lambda connection: self._stepped(connection, running, told))
            if stepped.is_anything:
                await self._save(running, stepped)
        except Exception as error:
            self._running = None  # nobody knows what of it was written
            _fail(told, error)
            await self._pause(error)
            return
        except BaseException:
            _fail(told, errors.Unavailable("the server is being stopped, or started again"))
            raise
        self._failures = 0
        for each in told:
            if not each.done.done():
                each.done.set_result(running.machine.state)
        for effect in stepped.effects:
            self._do(running, effect)

    async def _pause(self, error: Exception) -> None:
        pause = min(_FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures, 20), _LONGEST_PAUSE_SECONDS)
        self._failures += 1
        _log.error("experiment %d is read again in %.1f s", self.experiment, pause, exc_info=error)
        await self._means.clock.sleep(pause)
        self._is_woken = True

    # What happens

    async def _load(self) -> _Running:
        def read(connection: Connection) -> _Running:
            course = load(connection, self.experiment)
            ids = {int(found.id): request_id for request_id, found in course.trials.items()}
            return _Running(course, searches.machine(course), ids)

        self._is_stale = False
        self._running = running = await self._means.database.read(read)
        for effect in running.machine.resume():
            self._do(running, effect, is_repeated=True)
        return running

    def _stepped(self, connection: Connection, running: _Running, told: Sequence[_Told]) -> _Stepped:
        """In a thread, since some searches think for long. What was in the inbox happened before what is told: a
        program reports before it ends."""
        entries = inbox.waiting(connection, self.experiment)
        events = [event for entry in entries for event in _events(entry, running)]
        if not running.course.kept.snapshot:
            events.insert(0, machine.Begun())
        events += [each.event for each in told]
        for event in events:
            running.machine.take(event)
        outcome, course = running.machine.taken(), running.course
        kept = None
        if _concern_search(events):
            snapshot = running.machine.searcher.snapshot()
            kept = Kept(snapshot, course.kept.continued, running.machine.is_spent)
        change = Change(
            at=self._means.clock.now(),
            state=running.machine.state,
            outcome=outcome,
            progress=running.machine.searcher.progress(),
            error=running.machine.error,
            kept=kept,
            taken=entries[-1].id if entries else 0,
            trial_progress={
                each.request_id: each.progress for each in events if isinstance(each, machine.Progressed)
            },
            deeds=[each.deed for each in told if each.deed is not None],
        )  # fmt: skip
        return _Stepped(change, outcome.effects, bool(events or entries))

    async def _save(self, running: _Running, stepped: _Stepped) -> None:
        change, course = stepped.change, running.course
        written = await self._means.write(
            self.experiment, lambda connection: save(connection, course, change), may_end=change.state in ENDED
        )
        course.trials.update(written.made)
        running.ids |= {int(found.id): request_id for request_id, found in written.made.items()}
        closed = []
        for request_id, state in change.outcome.changed.items():
            found = course.trials[request_id] = replace(course.trials[request_id], state=state)
            if state.is_over:
                closed.append(course.trials.pop(request_id))
                running.ids.pop(int(found.id), None)
        spent = course.slot_seconds + change.outcome.slot_seconds
        running.course = replace(course, state=change.state, kept=change.kept or course.kept, slot_seconds=spent)
        self._means.forget(written.sessions)
        for found in closed:
            self._means.runner.closed(found)
        self._means.changed(running.course)

    def _do(self, running: _Running, wanted: Do, *, is_repeated: bool = False) -> None:
        found = running.course.trials.get(wanted.request_id)
        if found is not None:
            self._means.runner.do(found, wanted.effect, is_repeated=is_repeated)


def _events(entry: Entry, running: _Running) -> Sequence[machine.Event]:
    """None where the trial has ended already."""
    happened = entry.happened
    request_id = running.ids.get(int(happened.trial))
    if request_id is None:
        return ()
    if isinstance(happened, Gave):
        return (machine.OfTrial(request_id, trial.GaveUp(happened.reason)),)
    return (machine.Validated(request_id, happened.metric, happened.length),)


def _concern_search(events: Sequence[machine.Event]) -> bool:
    """How far a trial says that it is decides nothing."""
    return any(not isinstance(event, machine.Progressed | machine.LimitChanged) for event in events)


def _fail(told: Sequence[_Told], error: Exception) -> None:
    for each in told:
        if not each.done.done():
            each.done.set_exception(error)
