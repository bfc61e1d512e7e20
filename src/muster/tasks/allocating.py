"""The service of allocations: the shell around `allocation.step`.

Each allocation is one machine with an inbox. What happens to it is taken in order; the new state is durable before
anything is done about it, and before whoever asked is answered. After a restart the states are read again, the engine
is asked what has become of each, and what may not have been done is done again. No task or thread is held for an
allocation that nothing happens to.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace
from sqlalchemy import Connection

from muster.api import errors
from muster.api.errors import ApiError
from muster.api.meta import Instant
from muster.engines import protocol as engines
from muster.engines.protocol import AllocationId, Caveat, Failure, ResourceManager
from muster.records import Database
from muster.runtime.clock import Clock
from muster.runtime.reconciling import Reconciler
from muster.tasks import allocation_records as records
from muster.tasks.allocation import due, resume, step
from muster.tasks.allocation_effects import Effects, Host, at_first_part
from muster.tasks.allocation_records import Kept, Opened
from muster.tasks.allocation_states import (
    Changed,
    Close,
    Effect,
    EngineFailed,
    Event,
    Granted,
    Phase,
    Release,
    Report,
    Signal,
    Signalled,
    State,
    Tell,
    Ticked,
    WasReleased,
    WasReported,
    is_beyond,
)
from muster.tasks.contract import Allocations, Exited, Launch, OnChange, OnExit
from muster.tasks.delays import Delays
from muster.tasks.insisting import insist
from muster.tasks.launching import TOKEN, prepared
from muster.tasks.live import Entry, Live, Sessions, TaskLog
from muster.tasks.log_lines import Level
from muster.tasks.port_registry import PortRegistry

_log = logging.getLogger(__name__)
T = TypeVar("T")
HEART: Final = "allocations"
BEAT_SECONDS: Final = 30.0
RESTORE_SECONDS: Final = 60.0
"""For so long whoever asks waits for an allocation that may yet be restored."""


class AllocationService:
    """`run` must be kept running; what is asked before it has restored what was there waits for that."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        engine: ResourceManager,
        sessions: Sessions,
        log: TaskLog,
        *,
        ports: PortRegistry | None = None,
        host: Host = at_first_part,
    ) -> None:
        self._database = database
        self._clock = clock
        self._engine = engine
        self._sessions = sessions
        self.effects = Effects(engine, sessions, log, clock, ports or PortRegistry(), host)
        self.ports, self.proxies, self.requests = self.effects.ports, self.effects.proxies, self.effects.requests
        self._exits: dict[str, OnExit] = {}
        self._changes: list[OnChange] = []
        self._live: dict[AllocationId, Live] = {}
        self._starting: set[AllocationId] = set()
        self._restored = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None
        self._delays = Delays(clock, self._tell_delay)
        self._timers: Reconciler[AllocationId] = Reconciler("allocations: timers", self._tick, clock=clock)

    # What is asked

    def on_exit(self, task_type: str, handler: OnExit) -> None:
        if task_type in self._exits:
            raise ValueError(f"two handlers for the exits of {task_type}")
        self._exits[task_type] = handler

    def on_change(self, handler: OnChange) -> None:
        self._changes.append(handler)

    async def start(self, launch: Launch) -> Sequence[Caveat]:
        await self._ready()
        # Not in the task of whoever asks, who may go away while it is being made.
        started = await asyncio.shield(self.spawn(self._tried(launch), f"start {launch.request.allocation}"))
        if isinstance(started, Exception):
            raise started
        return started

    async def signal(self, allocation: AllocationId, signal: Signal, reason: str) -> None:
        await self._ready()
        live = self._live.get(allocation)
        if live is not None:
            await self.send(live, Signalled(self._clock.now(), signal, reason))

    def state(self, allocation: AllocationId) -> State | None:
        live = self._live.get(allocation)
        return None if live is None else live.state

    def story(self, allocation: AllocationId) -> Sequence[Entry]:
        """What has happened to it lately."""
        live = self._live.get(allocation)
        return () if live is None else list(live.story)

    @property
    def count(self) -> int:
        return len(self._live)

    def phases(self) -> Iterator[Phase]:
        """Of each that is not over."""
        return (live.state.phase for live in self._live.values())

    def known(self, allocation: AllocationId) -> Live | None:
        return self._live.get(allocation)

    async def find(self, allocation: AllocationId) -> Live:
        """Raises NotFound."""
        await self._ready()
        live = self._live.get(allocation)
        if live is None:
            raise errors.NotFound(f"allocation {allocation} not found, or it has ended")
        return live

    async def send(self, live: Live, event: Event) -> State:
        """The state after it, durable."""
        done: asyncio.Future[State] = asyncio.get_running_loop().create_future()
        self._post(live, event, done)
        return await done

    async def _ready(self) -> None:
        try:
            async with asyncio.timeout(RESTORE_SECONDS):
                await self._restored.wait()
        except TimeoutError as error:
            raise errors.Unavailable("the server is still restoring what ran before it was started") from error

    # Its own life

    async def run(self) -> None:
        events = self._engine.events()  # before anything is asked of it
        self._live.clear()
        self._restored.clear()
        try:
            async with asyncio.TaskGroup() as self._tasks:
                for name, act in (
                    ("requests", self.requests.run),
                    ("timers", self._timers.run),
                    ("heart", self._beat),
                    ("delays", self._delays.run),
                ):
                    self._tasks.create_task(act(), name=f"allocations: {name}")
                await self._restore()
                self._restored.set()
                async for event in events:
                    self._heard(event)
        finally:
            self._tasks = None
            self._restored.clear()
            for live in self._live.values():
                _fail(done for _, done in live.inbox)
                live.rendezvous.end(_stopped())
                live.gather.end(_stopped())

    def spawn(self, act: Coroutine[None, None, T], name: str) -> "asyncio.Task[T]":
        if self._tasks is None:
            act.close()
            raise errors.Unavailable("the service of allocations does not run")
        return self._tasks.create_task(act, name=f"allocations: {name}")

    async def _beat(self) -> None:
        """So that what was lost while the server was down is not counted as having run."""
        await self._restored.wait()
        while True:
            await self._write(self._alive)
            await self._clock.sleep(BEAT_SECONDS)

    def _alive(self, connection: Connection) -> None:
        records.beat(connection, HEART, self._clock.now())

    # Beginning

    async def _tried(self, launch: Launch) -> Sequence[Caveat] | Exception:
        """An error is whoever asked's to hear: here it would end the service."""
        id = launch.request.allocation
        if id in self._live or id in self._starting:
            return errors.AlreadyExists(f"allocation {id} exists already")
        self._starting.add(id)
        try:
            return await self._start(launch)
        except Exception as error:
            return error
        finally:
            self._starting.discard(id)

    async def _start(self, launch: Launch) -> Sequence[Caveat]:
        request, id = launch.request, launch.request.allocation
        caveats = await self._engine.check(request)
        ports = self.ports.reserve(id, launch.ports)
        try:
            asked = prepared(request, ports, launch.proxies)
            live = await self._add(launch, asked, ports)
        except BaseException:
            self.ports.release(id)
            raise
        try:
            token = await self._sessions.open_allocation(launch.user, request.task, id)
            secrets = {**launch.secrets, TOKEN: token}
            await self.requests.create(id, lambda: self._engine.allocate(asked, secrets))
        except Exception as error:
            await self._abandon(live, str(error))
            raise
        return caveats

    async def _add(self, launch: Launch, request: engines.Request, ports: dict[str, int]) -> Live:
        id = request.allocation
        state = State(
            id=id,
            is_preemptible=request.is_preemptible,
            preemption_timeout=float(request.preemption_timeout_seconds),
            requested_at=self._clock.now(),
        )
        kept = Kept(request, launch.user, tuple(launch.proxies), ports)
        encoded = msgspec.json.encode(kept).decode()
        await self._database.write(lambda connection: records.add(connection, kept, state, encoded))
        live = self._live[id] = Live(id, request.task, request.task_type, _without_template(kept), state)
        self._changed(live)
        return live

    async def _abandon(self, live: Live, why: str) -> None:
        """Whoever asked is told so directly, and not once more as of an exit."""
        self._live.pop(live.id, None)
        failed = EngineFailed(self._clock.now(), Failure.INVALID_REQUEST, why)
        live.state = replace(step(live.state, failed)[0], is_released=True, is_reported=True)
        await self._save(live.state)
        self._changed(live)
        await self._do(live, Close())
        await self._do(live, Release())

    # After a restart

    async def _restore(self) -> None:
        rows = await self._database.read(records.opened)
        last = await self._database.read(lambda connection: records.last_beat(connection, HEART))
        held = set(await self._engine.held())
        for row in rows:
            await self._restore_one(row, last or self._clock.now())
        for id in sorted(held - {row.id for row in rows}):
            _log.warning("allocation %s is nobody's: released", id)
            self.effects.release(id)

    async def _restore_one(self, row: Opened, last: Instant) -> None:
        """Whatever is wrong with it is its own trouble, and keeps no other from being restored."""
        kept, state = row.kept, row.state
        live = self._live[row.id] = Live(row.id, row.task, row.task_type, _without_template(kept), state)
        self.ports.restore(row.id, kept.ports)
        try:
            for effect in resume(state):
                await self._do(live, effect)
            if not row.is_readable:
                raise errors.NotFound("its record cannot be read")
            if not state.is_over:
                await self._engine.allocate(kept.request, {}, is_restored=True)
        except Exception as error:
            if not isinstance(error, errors.NotFound):
                _log.exception("allocation %s could not be taken up again", row.id)
            # It was last known to be there when the server was: what came after that must not be billed.
            at = Instant(max(last, state.started_at or last))
            self._post(live, EngineFailed(at, Failure.RESTORE_ERROR, f"after a restart of the server: {error}"))
        self._set_timer(live)

    # What happens

    def _heard(self, event: engines.Event) -> None:
        live = self._live.get(event.allocation)
        if live is None:
            return  # of nobody that we know, or no more
        now = self._clock.now()
        match event:
            case engines.Granted():
                self._post(live, Granted(now, event.resources, event.is_recovered))
            case engines.ResourceChanged():
                self._post(live, Changed(now, event.resource))
            case engines.Delayed():
                self._delays.heard(live.id, event.reason)
            case engines.PreemptionAsked():
                self._post(live, Signalled(now, Signal.PREEMPT, event.reason))
            case engines.Failed():
                self._post(live, EngineFailed(now, event.failure, event.message))
            case engines.Released():
                self._post(live, WasReleased(now))

    def _post(self, live: Live, event: Event, done: "asyncio.Future[State] | None" = None) -> None:
        live.inbox.append((event, done))
        if not live.is_busy:
            self.spawn(self._drain(live), f"of {live.id}")
            live.is_busy = True

    async def _drain(self, live: Live) -> None:
        try:
            while live.inbox:
                await self._take(live)
        finally:
            live.is_busy = False

    async def _take(self, live: Live) -> None:
        """All that waits at once: what comes in bursts is written once."""
        batch = list(live.inbox)
        live.inbox.clear()
        state, effects = live.state, list[Effect]()
        for event, _ in batch:
            state, more = self._step(live, state, event)
            effects += more
        try:
            if state != live.state:
                await self._save(state)
                live.state = state
                self._changed(live)
        except BaseException:
            _fail(done for _, done in batch)
            raise
        for _, done in batch:
            if done is not None and not done.done():
                done.set_result(state)
        # What is told people last: nothing else waits for that.
        for effect in sorted(effects, key=lambda effect: isinstance(effect, Tell)):
            await self._do(live, effect)
        self._set_timer(live)

    def _step(self, live: Live, state: State, event: Event) -> tuple[State, list[Effect]]:
        try:
            after, effects = step(state, event)
        except Exception as error:
            # A bug in the machine must not leave anything running that nobody looks after.
            _log.exception("allocation %s failed on %s; before: %s", live.id, event, list(live.story))
            trouble = EngineFailed(self._clock.now(), Failure.INTERNAL_ERROR, str(error))
            after, effects = step(state, trouble)
        live.story.append(Entry(event, after.phase, effects))
        return after, effects

    def _changed(self, live: Live) -> None:
        for handler in self._changes:
            handler(live.task, live.state)

    async def _save(self, state: State) -> None:
        await self._write(lambda connection: records.save(connection, state))

    async def _write(self, act: Callable[[Connection], None]) -> None:
        await insist("writing the records of allocations", lambda: self._database.write(act), self._clock)

    # What is done about it

    async def _do(self, live: Live, effect: Effect) -> None:
        if isinstance(effect, Report):
            self._live.pop(live.id, None)
            self.spawn(self._report(live, effect), f"report {live.id}")
            return
        if isinstance(effect, Close):
            self._delays.forget(live.id)
        await self.effects.do(live, effect)

    async def _tell_delay(self, id: AllocationId, text: str) -> None:
        live = self._live.get(id)
        if live is not None and not is_beyond(live.state.phase, Phase.STARTING):
            await self.effects.tell(live, text, Level.INFO)

    async def _report(self, live: Live, effect: Report) -> None:
        """Nobody knows it any more by now: its owner may start the next one under whichever name."""
        handler = self._exits.get(live.task_type)
        if handler is not None:
            exited = Exited(live.id, live.task, live.task_type, effect.ended, live.state)
            await insist(f"telling of the exit of allocation {live.id}", lambda: handler(exited), self._clock)
        live.state, _ = step(live.state, WasReported(self._clock.now()))
        await self._save(live.state)

    # Time

    def _set_timer(self, live: Live) -> None:
        when = due(live.state)
        if when is not None and live.id in self._live:
            # Not quite at once even where it is due: wall clocks step, and a timer must not spin.
            self._timers.queue.add_after(live.id, max(0.001, when - self._clock.now()))

    async def _tick(self, id: AllocationId) -> None:
        live = self._live.get(id)
        if live is not None:
            await self.send(live, Ticked(self._clock.now()))


def _fail(waiting: "Iterable[asyncio.Future[State] | None]") -> None:
    for done in waiting:
        if done is not None and not done.done():
            done.set_exception(_stopped())


def _stopped() -> ApiError:
    return errors.Unavailable("the server is being stopped, or started again")


def _without_template(kept: Kept) -> Kept:
    return replace(kept, request=replace(kept.request, template={}))


_conforms: type[Allocations] = AllocationService
