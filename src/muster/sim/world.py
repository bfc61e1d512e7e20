"""One simulated run: a plan is carried out on virtual time, and every commit on the way is looked at.

The store, the controllers, the scheduler and the quota engine are the real ones. Simulated are the disk, the network,
the agents, an extender, and time.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass

from muster.api import core, timestamps, volcano
from muster.api.everything import REGISTRY
from muster.api.meta import Instant
from muster.controllers.scheduling import SchedulingController
from muster.placement.engine import Engine, default_engine
from muster.quota.engine import Engine as QuotaEngine
from muster.runtime import collector
from muster.runtime.clock import Deadlock, Livelock, VirtualClock, run_virtual
from muster.sim import extenders, loads, mixes, orders
from muster.sim.agents import Fleet, registration
from muster.sim.beliefs import Beliefs
from muster.sim.complaints import Complaints
from muster.sim.connections import Connection, Server, Weather
from muster.sim.endings import Endings, has_run, leftovers
from muster.sim.extenders import Extender
from muster.sim.gangs import Gangs
from muster.sim.invariants import Attempts, Capacity, Evictions, Nearness
from muster.sim.ledger import Ledger, Place, Violation
from muster.sim.plans import (
    BotherExtender,
    CrashPart,
    CrashPod,
    CrashProcess,
    CrashServer,
    CutOff,
    Event,
    FullDisk,
    JumpClock,
    LoseNode,
    Order,
    Plan,
    RestartAgent,
    Storm,
    Submit,
    Withdraw,
)
from muster.sim.processes import Assemble, Process
from muster.sim.quotas import Quota
from muster.sim.tape import Commit, Tape
from muster.sim.troubles import Troubles
from muster.sim.turns import Turns
from muster.sim.users import Users, Wanted, insist
from muster.store.protocol import Create, Selection, Store, Write, write_one

LOOK_SECONDS = 10.0
"""Between two looks at what must not last."""
_EVER = Instant(0.0)
_LONGEST_SECONDS = 86_400.0
"""Whatever happens meanwhile, a job is over a day after it was submitted."""
_SETTLE_SECONDS = 600.0
"""A job may be over before all of its pods are: workers go on when their master has succeeded."""


@dataclass(frozen=True, slots=True)
class Outcome:
    plan: Plan
    violation: Violation | None
    digest: str
    """Equal for equal runs, bit for bit."""
    seconds: float
    """Virtual."""
    commits: int
    happened: Counter[str]
    """Events by kind."""
    records: list[bytes]
    """All commits: see `sim.tape`."""


def run(plan: Plan, assemble: Assemble) -> Outcome:
    """The whole plan, until all jobs have ended or something is wrong."""

    async def main(clock: VirtualClock) -> Outcome:
        with Complaints() as complaints:
            async with asyncio.TaskGroup() as tasks:
                return await World(plan, assemble, clock, tasks, complaints).live()

    try:
        with collector.calmed():
            return run_virtual(main)
    except (Deadlock, Livelock) as error:
        violation = Violation(type(error).__name__.lower(), str(error))
        return Outcome(plan, violation, "", 0.0, 0, Counter(), [])


class World:
    def __init__(
        self, plan: Plan, assemble: Assemble, clock: VirtualClock, tasks: asyncio.TaskGroup, complaints: Complaints
    ) -> None:
        self._plan = plan
        self._assemble = assemble
        self._clock = clock
        self._tasks = tasks
        self._complaints = complaints
        self._chance = random.Random(plan.seed)  # noqa: S311  a simulation
        self._troubles = Troubles(clock)
        quota, gangs = Quota(clock), Gangs(clock, self._troubles)
        beliefs = Beliefs(clock, self._troubles, quota, self._deciding)
        turns, self._endings = Turns(clock, self._troubles), Endings()
        self._lasting = (gangs, beliefs)
        self.ledger = Ledger(
            (Capacity(clock), quota, Attempts(), Evictions(), Nearness(), gangs, beliefs, turns, self._endings)
        )
        self._tape = Tape(self._committed)
        self._alarm = asyncio.Event()
        self._weather = Weather()
        self._server = Server(self._tape, clock, self._chance, tasks)
        self._extender = Extender(self._connection())
        self._nodes = {f"n{number}": shape for number, shape in enumerate(plan.nodes)}
        self._fleet = Fleet(self._connection(), clock, self._nodes, plan.renews)
        self._users = Users(self._connection(), clock)
        self._admin = Connection(self._server, Weather())
        self._processes: list[tuple[Process, asyncio.Task[None]]] = []
        self._started = 0
        self._underway: dict[asyncio.Task[None], None] = {}
        self._triggers: list[tuple[int, Callable[[], None]]] = []
        self._happened: Counter[str] = Counter()

    async def live(self) -> Outcome:
        lasting = [self._tasks.create_task(self._prepare(), name="simulation: preparing")]
        await lasting[0]
        lasting.append(self._tasks.create_task(self._fleet.run(), name="simulation: agents"))
        lasting.append(self._tasks.create_task(self._look_for_ever(), name="simulation: looking"))
        history = self._tasks.create_task(self._history(), name="simulation: history")
        alarm = self._tasks.create_task(_wait(self._alarm), name="simulation: alarm")
        await asyncio.wait([history, alarm], return_when=asyncio.FIRST_COMPLETED)
        seconds = self._clock.monotonic()
        violation = self.ledger.violation
        if history.done() and violation is None:
            violation = history.result()
        for task in (history, alarm, *lasting, *self._underway, *(task for _, task in self._processes)):
            task.cancel()
        self._server.crash("lost")
        return Outcome(
            self._plan, violation, self._tape.digest(), seconds, self.ledger.commits, self._happened, self._tape.records
        )

    def _connection(self) -> Connection:
        return Connection(self._server, self._weather)

    # Before

    async def _prepare(self) -> None:
        await self._server.start()
        now = timestamps.to_text(self._clock.now())
        writes: list[Write] = []
        for name, shape in self._nodes.items():
            writes += registration(name, shape, now)
        documents = [*orders.flavors(self._plan), *mixes.job_templates()]
        documents += [loads.a_priority_class(name, value) for name, value in loads.PRIORITIES.items()]
        documents += map(orders.volcano_queue, self._plan.volcano_queues)
        for queue in self._plan.queues:
            documents += [orders.cluster_queue(queue), loads.a_local_queue(queue.name, queue.name)]
        writes += [Create(REGISTRY.by_document(found["apiVersion"], found["kind"]), found) for found in documents]
        for write in writes:
            await write_one(self._admin, write)
        for number in range(self._plan.processes):
            self._processes.append(self._start_process(number))

    def _start_process(self, number: int) -> tuple[Process, asyncio.Task[None]]:
        self._started += 1
        connection = self._connection()
        identity = f"process-{number}-{self._started}"
        is_elected = self._plan.processes > 1
        process = Process(
            identity, connection, self._clock, self._assemble, self._make_scheduler, is_elected=is_elected
        )
        return process, self._tasks.create_task(process.run(), name=identity)

    def _make_scheduler(self, store: Store) -> SchedulingController:
        return SchedulingController(
            store, self._clock, self._make_engine, uses_threads=False, connect=self._extender.connect
        )

    def _make_engine(self) -> Engine:
        shape = self._plan.extender
        return default_engine() if shape is None else extenders.engine(shape)

    def _deciding(self) -> Sequence[QuotaEngine]:
        return [process.quota.engine for process, _ in self._processes if process.is_leading]

    # While it lasts

    def _committed(self, commit: Commit) -> None:
        self.ledger.take(commit)
        if self.ledger.violation is not None:
            self._alarm.set()
        if self._triggers:
            self._pull_triggers()

    def _pull_triggers(self) -> None:
        due = [act for number, act in self._triggers if number <= self.ledger.commits]
        self._triggers = [pair for pair in self._triggers if pair[0] > self.ledger.commits]
        for act in due:
            act()

    async def _look_for_ever(self) -> None:
        """At what no commit shows: that something which should have happened did not."""
        while True:
            await self._clock.sleep(self._plan.renews)
            for found in (self._complaints.first, *(invariant.overdue() for invariant in self._lasting), self._late()):
                if found is not None:
                    self._accuse(found)

    def _late(self) -> Violation | None:
        before = self._clock.monotonic() - _LONGEST_SECONDS
        late = [one for one in self._unserved() if one.at < before and one.kind is not volcano.CRON_JOB]
        return _lateness(late, _LONGEST_SECONDS, "they were submitted")

    async def _history(self) -> Violation | None:
        for event in self._plan.events:
            await self._clock.sleep(max(0.0, event.at - self._clock.monotonic()))
            self._happened[type(event).__name__] += 1
            self._begin(event)
        while self._underway:
            await asyncio.wait(self._underway)
        self._triggers = []
        return await self._come_to_rest()

    def _begin(self, event: Event) -> None:
        match event:
            case Submit():
                self._go(self._submit(event))
            case Withdraw():
                self._go(self._users.withdraw(event.name))
            case LoseNode() | RestartAgent() | CrashPod() | JumpClock() | BotherExtender():
                self._strike_outside(event)
            case CrashPart() | CrashProcess() | CrashServer() | CutOff() | Storm() | FullDisk():
                self._strike(event)
            case _:
                self._go(self._carry_out(event))

    def _strike(self, event: CrashPart | CrashProcess | CrashServer | CutOff | Storm | FullDisk) -> None:
        """What the control plane suffers."""
        match event:
            case CrashPart():
                self._after(event.commits, lambda: self._crash_part(event.part))
            case CrashProcess():
                self._after(event.commits, lambda: self._go(self._crash_process(event)))
            case CrashServer():
                self._after(event.commits, lambda: self._crash_server(event))
            case CutOff():
                self._go(self._cut_off(event))
            case Storm():
                self._weather.begin(event)
                self._suffer(event.seconds, lambda: self._weather.end(event))
            case FullDisk():
                self._tape.is_full = True
                self._suffer(event.seconds, self._empty_disk)

    def _strike_outside(self, event: LoseNode | RestartAgent | CrashPod | JumpClock | BotherExtender) -> None:
        """What those suffer whom it deals with."""
        match event:
            case LoseNode():
                node = self._node(event.node)
                self._fleet.lose(node, reboots=event.reboots)
                self._go(self._later(event.seconds, lambda: self._fleet.bring_back(node)))
            case RestartAgent():
                node = self._node(event.node)
                self._fleet.lose(node, reboots=not event.adopts)
                self._go(self._later(event.seconds, lambda: self._fleet.bring_back(node)))
            case CrashPod():
                self._fleet.crash_pod(event.share)
            case JumpClock():
                self._clock.jump(event.seconds)
                self._troubles.strike()
            case BotherExtender():
                self._extender.mood.begin(event)
                self._suffer(event.seconds, lambda: self._extender.mood.end(event))

    def _node(self, number: int) -> str:
        return f"n{number % len(self._nodes)}"

    def _go(self, act: Coroutine[None, None, None]) -> None:
        task = self._tasks.create_task(act, name="simulation: event")
        self._underway[task] = None
        task.add_done_callback(lambda done: self._underway.pop(done, None))

    def _after(self, commits: int, act: Callable[[], None]) -> None:
        """In the very step in which that commit is made: nobody has been told of it yet."""
        if commits:
            self._triggers.append((self.ledger.commits + commits, act))
        else:
            act()

    async def _later(self, seconds: float, act: Callable[[], None]) -> None:
        await self._clock.sleep(seconds)
        act()

    def _suffer(self, seconds: float, end: Callable[[], None]) -> None:
        self._go(self._suffering(seconds, end))

    async def _suffering(self, seconds: float, end: Callable[[], None]) -> None:
        with self._troubles.lasting():
            await self._later(seconds, end)

    def _empty_disk(self) -> None:
        self._tape.is_full = False

    # People

    async def _submit(self, event: Submit) -> None:
        kind, key = await self._users.submit(event)
        if key not in self.ledger.rows.get(kind, {}) and kind is not core.POD:
            self._accuse(Violation("acknowledged", f"{kind.name} {key} was acknowledged and is not there"))

    async def _carry_out(self, order: Order) -> None:
        carrying = orders.carrying(order, self._plan)
        if carrying is None:
            return
        for write in carrying.out:
            await insist(self._admin, self._clock, write)
        await self._clock.sleep(order.seconds)
        for write in carrying.back:
            await insist(self._admin, self._clock, write)

    # Machines

    def _crash_part(self, number: int) -> None:
        self._troubles.strike()
        for process, _ in self._processes:
            if process.is_leading:
                process.crash_part(number)

    async def _crash_process(self, event: CrashProcess) -> None:
        process, task = self._processes[event.process]
        if process.connection.is_dead:
            return  # before it could start again
        process.connection.is_dead = True
        task.cancel()
        with self._troubles.lasting():
            await self._clock.sleep(event.seconds)
        self._processes[event.process] = self._start_process(event.process)

    def _crash_server(self, event: CrashServer) -> None:
        if self._server.store is not None:
            self._server.crash(event.fate)
            self._go(self._restart_server(event.seconds))

    async def _restart_server(self, seconds: float) -> None:
        with self._troubles.lasting():
            await self._clock.sleep(seconds)
            await self._server.start()
            await self._compare_with_ledger(self._server.reach())

    async def _compare_with_ledger(self, store: Store) -> None:
        """Restarting from the journal gives the state that was there."""
        for kind, rows in list(self.ledger.rows.items()):
            loaded = {found.key: found.raw for found in (await store.list(Selection(kind))).items}
            differing = sorted(key for key in rows.keys() | loaded.keys() if rows.get(key) != loaded.get(key))
            if differing:
                about = tuple(Place(kind.resource, key) for key in differing[:3])
                self._accuse(Violation("restart", f"{kind.plural} {differing} came back otherwise", about))

    async def _cut_off(self, event: CutOff) -> None:
        connection = self._processes[event.process][0].connection
        connection.is_cut = True
        with self._troubles.lasting():
            await self._clock.sleep(event.seconds)
        connection.is_cut = False

    # In the end

    def _accuse(self, violation: Violation) -> None:
        self.ledger.violation = self.ledger.violation or violation
        self._alarm.set()

    async def _come_to_rest(self) -> Violation | None:
        """Nothing happens any more: every job must end, and nothing may be left of it."""
        now, patience = self._clock.now(), self._clock.monotonic() + self._plan.patience
        late = await self._wait_for_all(now, patience)
        if late and all(one.kind is volcano.CRON_JOB for one in late):
            patience += self._plan.set_back
            late = await self._wait_for_all(now, patience)
        if not late:
            await self._users.stop_schedules()
            # A last run may have begun a moment ago.
            late = await self._wait_for_all(now, max(patience, self._clock.monotonic() + _SETTLE_SECONDS))
        if late:
            return _lateness(late, self._plan.patience, "the last fault")
        patience = self._clock.monotonic() + _SETTLE_SECONDS
        while (left := leftovers(self.ledger, self._fleet.running)) and self._clock.monotonic() < patience:
            await self._clock.sleep(LOOK_SECONDS)
        return self._complaints.first or left

    async def _wait_for_all(self, since: Instant, patience: float) -> list[Wanted]:
        """Those that are not over by then."""
        while (late := self._unserved(since)) and self._clock.monotonic() < patience:
            await self._clock.sleep(LOOK_SECONDS)
        return late

    def _unserved(self, since: Instant = _EVER) -> list[Wanted]:
        def has_ended(one: Wanted) -> bool:
            if one.kind is not volcano.CRON_JOB:
                return self._endings.has_ended(one.kind, one.key)
            found, gap = self.ledger.find(one.kind, one.key), self._plan.cron_gap
            is_new = self._clock.monotonic() < one.at + gap
            return found is not None and has_run(found, Instant(since - gap), is_new=is_new)

        return self._users.unserved(has_ended)


def _lateness(late: Sequence[Wanted], seconds: float, after: str) -> Violation | None:
    if not late:
        return None
    first = late[0]
    message = f"{len(late)} jobs have not ended {seconds:g} s after {after}: {first.kind.name} {first.key}"
    return Violation("liveness", message, (Place(first.kind.resource, first.key),))


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
