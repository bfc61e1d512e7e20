"""Webhooks on virtual time: what waits is sent, later and later where it fails, and at last given up."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from sqlalchemy import Connection, func, insert, select

from muster.accounts.audit import SYSTEM
from muster.accounts.callers import Caller, UserId, WorkspaceId
from muster.api import errors
from muster.records.tables_accounts import USERS, WORKSPACES
from muster.records.tables_tasks import TASKS
from muster.records.tables_webhooks import WEBHOOK_DELIVERIES
from muster.runtime.clock import VirtualClock
from muster.tasks import log_lines, log_records, webhook_records, webhook_shipping
from muster.tasks.log_lines import Line, Origin, Piece
from muster.tasks.logs import Appended
from muster.tasks.webhook_payloads import Alert, ExperimentFacts
from muster.tasks.webhook_records import Delivery
from muster.tasks.webhook_rules import Format, Mode, NewTrigger, NewWebhook, Subject, TriggerType, Webhook
from muster.tasks.webhook_scanning import LogScanner
from muster.tasks.webhook_sending import Never, NotNow, Outcome, Taken
from muster.tasks.webhook_shipping import LONGEST_PAUSE, MOST_ATTEMPTS, Shipper, pause_after
from muster.tasks.webhooks import Experiment, Webhooks, to_tell_of_end
from muster.testing.inline_database import InlineDatabase
from muster.testing.virtual import on_virtual_time

LAB = WorkspaceId(2)
STATE = NewTrigger(TriggerType.STATE_CHANGE, state="COMPLETED")
LOG = NewTrigger(TriggerType.TASK_LOG, pattern="out of (memory|disk)")
DONE = Experiment(Subject(LAB), ExperimentFacts(7, "mnist", "COMPLETED"))


@dataclass
class Receivers:
    """What was sent, when and how often at a time; answers as it is told to."""

    clock: VirtualClock
    answer: Callable[[Delivery], Outcome] = lambda delivery: Taken()
    seconds: float = 0.0
    got: list[tuple[float, Delivery]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0

    async def check(self, url: str) -> None:
        return

    async def send(self, delivery: Delivery, now: float) -> Outcome:
        self.got.append((now, delivery))
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            await self.clock.sleep(self.seconds)
        finally:
            self.at_once -= 1
        return self.answer(delivery)


@dataclass
class World:
    clock: VirtualClock
    database: InlineDatabase
    receivers: Receivers
    webhooks: Webhooks
    scanner: LogScanner

    async def webhook(self, *triggers: NewTrigger, name: str = "hook", mode: Mode = Mode.WORKSPACE) -> Webhook:
        wanted = NewWebhook(name, "https://example.org/hook", Format.DEFAULT, mode, triggers or (STATE,), LAB)
        return await self.webhooks.create(SYSTEM, wanted)

    async def ended(self, about: Experiment) -> None:
        await self.webhooks.queue(lambda connection: to_tell_of_end(connection, about))

    async def waiting(self) -> int:
        query = select(func.count()).select_from(WEBHOOK_DELIVERIES).where(WEBHOOK_DELIVERIES.c.is_dead.is_(False))
        return await self.database.read(lambda connection: connection.scalar(query) or 0)

    async def written(self, task: str, *texts: str) -> None:
        piece = Piece(Origin(f"{task}.1", "c", "node-1", "task"), [Line(0, text) for text in texts], is_timed=False)
        chunks = list(log_lines.chunks(task, piece))
        await self.database.write(lambda connection: log_records.add(connection, chunks, 0))
        self.scanner.observe(Appended(task, piece.origin, piece.lines))

    @asynccontextmanager
    async def shipping(self) -> AsyncIterator[None]:
        shipper = Shipper(self.database, self.clock, self.receivers.send, random.Random(1))
        self.webhooks.on_enqueued(shipper.wake)
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(shipper.run()), tasks.create_task(self.scanner.run())]
            yield
            for task in running:
                task.cancel()


async def a_world(clock: VirtualClock) -> World:
    database = InlineDatabase()
    rows = [{"id": 1, "name": "Uncategorized", "user_id": 1}, {"id": 2, "name": "Lab", "user_id": 1}]
    config = {"integrations": {"webhooks": {"webhook_name": ["special"]}}}

    def fill(connection: Connection) -> None:
        connection.execute(insert(USERS).values({"id": 1, "username": "ann", "created": 0.0, "modified": 0.0}))
        for row in rows:
            connection.execute(insert(WORKSPACES).values({**row, "created": 0.0}))
        task = {"type": "COMMAND", "user_id": 1, "workspace_id": 2, "created": 0.0, "description": "a task"}
        connection.execute(insert(TASKS).values({**task, "id": "plain"}))
        connection.execute(insert(TASKS).values({**task, "id": "naming", "config": config}))

    await database.write(fill)
    receivers = Receivers(clock)
    numbers = iter(range(1, 10_000))
    webhooks = Webhooks(database, clock, receivers, lambda: UUID(int=next(numbers)))
    return World(clock, database, receivers, webhooks, LogScanner(database, webhooks))


@on_virtual_time
async def test_what_happened_is_sent_once_to_those_whom_it_concerns(clock: VirtualClock) -> None:
    world = await a_world(clock)
    hook = await world.webhook()
    await world.webhook(NewTrigger(TriggerType.STATE_CHANGE, state="ERROR"), name="of errors")
    await world.webhook(STATE, name="specific", mode=Mode.SPECIFIC)
    async with world.shipping():
        await world.ended(DONE)
        await world.ended(Experiment(Subject(WorkspaceId(1)), DONE.facts))
        await world.ended(Experiment(Subject(LAB, is_excluded=True), DONE.facts))
        await clock.sleep(1)
    assert [delivery.webhook for _, delivery in world.receivers.got] == [hook.id]
    assert await world.waiting() == 0


@on_virtual_time
async def test_a_failing_receiver_is_asked_later_and_later_and_given_up_at_last(clock: VirtualClock) -> None:
    world = await a_world(clock)
    hook = await world.webhook()
    world.receivers.answer = lambda delivery: NotNow("the receiver answered 500")
    async with world.shipping():
        await world.ended(DONE)
        await clock.sleep(48 * 3600)
    times = [at for at, _ in world.receivers.got]
    assert len(times) == MOST_ATTEMPTS
    for number, (before, after) in enumerate(itertools.pairwise(times), start=1):
        assert pause_after(number) <= after - before <= pause_after(number) * 1.2 + 0.001
    assert len({delivery.event for _, delivery in world.receivers.got}) == 1
    (dead,) = await world.webhooks.dead_letters(hook.id)
    assert (dead.attempts, dead.error) == (MOST_ATTEMPTS, "the receiver answered 500")
    # Somebody has repaired the receiver.
    world.receivers.answer = lambda delivery: Taken()
    async with world.shipping():
        assert await world.webhooks.revive(SYSTEM, hook.id) == 1
        await clock.sleep(1)
    assert len(world.receivers.got) == MOST_ATTEMPTS + 1
    assert await world.webhooks.dead_letters(hook.id) == []


@on_virtual_time
async def test_what_can_never_be_taken_is_given_up_at_once_and_forgotten_in_time(clock: VirtualClock) -> None:
    world = await a_world(clock)
    hook = await world.webhook()
    world.receivers.answer = lambda delivery: Never("the receiver answered 404")
    async with world.shipping():
        await world.ended(DONE)
        await clock.sleep(86_400)
        assert len(world.receivers.got) == 1
        assert len(await world.webhooks.dead_letters(hook.id)) == 1
        await clock.sleep(31 * 86_400)
        assert await world.webhooks.dead_letters(hook.id) == []


@on_virtual_time
async def test_a_receiver_that_asks_for_time_gets_it_but_not_for_ever(clock: VirtualClock) -> None:
    world = await a_world(clock)
    await world.webhook()
    answers: Iterator[Outcome] = iter([NotNow("429", after=600.0), NotNow("429", after=1e9), Taken()])
    world.receivers.answer = lambda delivery: next(answers)
    async with world.shipping():
        await world.ended(DONE)
        await clock.sleep(86_400)
    first, second, third = (at for at, _ in world.receivers.got)
    assert 600 <= second - first <= 721
    assert LONGEST_PAUSE <= third - second <= LONGEST_PAUSE * 1.2 + 1


@on_virtual_time
async def test_what_waits_or_was_on_its_way_is_sent_after_a_crash(clock: VirtualClock) -> None:
    world = await a_world(clock)
    await world.webhook()
    world.receivers.seconds = 5.0
    async with world.shipping():
        await world.ended(DONE)
        await clock.sleep(1)
    assert len(world.receivers.got) == 1
    assert await world.waiting() == 1
    async with world.shipping():
        await clock.sleep(10)
    assert len(world.receivers.got) == 2
    assert await world.waiting() == 0


@on_virtual_time
async def test_few_are_sent_at_a_time_and_a_slow_receiver_holds_up_nobody(clock: VirtualClock) -> None:
    world = await a_world(clock)
    slow = await world.webhook()
    world.receivers.seconds = 100.0
    for _ in range(100):
        await world.ended(DONE)
    async with world.shipping():
        await clock.sleep(1)
        assert len(world.receivers.got) == 2
        other = await world.webhook(name="other")
        await world.ended(DONE)
        await clock.sleep(1)
        assert [delivery.webhook for _, delivery in world.receivers.got] == [slow.id, slow.id, other.id]
        await clock.sleep(100 * 60)
    assert len(world.receivers.got) == 102
    assert world.receivers.most_at_once <= 8


@on_virtual_time
async def test_a_changed_address_holds_for_what_waits_and_a_deleted_webhook_hears_nothing(clock: VirtualClock) -> None:
    world = await a_world(clock)
    hook, gone = await world.webhook(), await world.webhook(name="gone")
    await world.ended(DONE)
    await world.webhooks.set_url(SYSTEM, hook.id, "https://example.org/moved")
    await world.webhooks.delete(SYSTEM, gone.id)
    async with world.shipping():
        await clock.sleep(1)
    assert [delivery.url for _, delivery in world.receivers.got] == ["https://example.org/moved"]


@on_virtual_time
async def test_a_full_queue_takes_no_more(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.tasks.webhook_records.MOST_WAITING", 3)
    world = await a_world(clock)
    await world.webhook()
    for _ in range(5):
        await world.ended(DONE)
    assert await world.waiting() == 3


@on_virtual_time
async def test_a_pattern_in_a_log_is_told_once_for_each_task(clock: VirtualClock) -> None:
    world = await a_world(clock)
    await world.written("plain", "out of disk, before anybody wanted to know")
    await world.webhook(LOG, STATE)
    async with world.shipping():
        for text in ("fine", "CUDA out of memory", "out of disk"):
            await world.written("plain", text)
        await world.written("naming", "out of disk")
        await world.written("unknown", "out of disk")
        await clock.sleep(1)
    again = LogScanner(world.database, world.webhooks)  # as after a restart, which remembers nothing
    await world.written("plain", "out of memory again")
    assert not await again.advance()
    sent = [delivery.body.decode() for _, delivery in world.receivers.got]
    assert len(sent) == 2
    assert '"task_log":{"task_id":"plain","node_name":"node-1","triggering_log":"CUDA out of memory"}' in sent[0]
    assert '"condition":{"regex":"out of (memory|disk)"}' in sent[0]
    assert '"task_id":"naming"' in sent[1]
    assert await world.waiting() == 0


@on_virtual_time
async def test_lines_that_nobody_had_looked_at_when_the_server_died_are_looked_at_when_it_is_back(
    clock: VirtualClock,
) -> None:
    world = await a_world(clock)
    await world.webhook(LOG)
    for number in range(120):
        await world.written("plain", f"line {number}\n")
    await world.written("plain", "out of memory\n")
    world.database.failures.append(RuntimeError("killed before it was written what was found"))
    with pytest.raises(RuntimeError):
        await world.scanner.advance()
    again = LogScanner(world.database, world.webhooks)
    while await again.advance():
        pass
    assert await world.waiting() == 1


@on_virtual_time
async def test_two_servers_tell_it_once(clock: VirtualClock) -> None:
    world = await a_world(clock)
    await world.webhook(LOG)
    await world.written("plain", "out of memory")
    other = LogScanner(world.database, world.webhooks)
    first, second = await asyncio.gather(world.scanner.advance(), other.advance())
    assert (first, second) == (False, True)
    assert not await other.advance()
    assert await world.waiting() == 1


@on_virtual_time
async def test_a_webhook_that_goes_while_logs_are_looked_through_hears_nothing(clock: VirtualClock) -> None:
    world = await a_world(clock)
    gone = await world.webhook(LOG)
    await world.webhook(LOG, name="stays")
    await world.written("plain", "out of memory")
    advancing = asyncio.create_task(world.scanner.advance())
    await asyncio.sleep(0)
    await world.webhooks.delete(SYSTEM, gone.id)
    await advancing
    assert await world.waiting() == 1


@on_virtual_time
async def test_without_patterns_nothing_is_looked_through(clock: VirtualClock) -> None:
    world = await a_world(clock)
    await world.webhook(STATE)
    hook = await world.webhook(LOG, name="of logs")
    await world.webhooks.delete(SYSTEM, hook.id)
    await world.written("plain", "out of disk")
    assert not await world.scanner.advance()
    assert await world.database.read(webhook_records.scanned_until) is None
    await world.webhook(LOG, name="later")
    assert await world.database.read(webhook_records.scanned_until) == 1


@on_virtual_time
async def test_alerts_go_to_the_webhooks_that_the_task_names(clock: VirtualClock) -> None:
    world = await a_world(clock)
    custom = NewTrigger(TriggerType.CUSTOM)
    special = await world.webhook(custom, name="special", mode=Mode.SPECIFIC)
    await world.webhook(custom, name="another", mode=Mode.SPECIFIC)
    task = Caller(UserId(1), "ann", allocation="naming.1", task="naming")
    async with world.shipping():
        await world.webhooks.alert(task, 0, 3, Alert("loss", "it is NaN", "ERROR"))
        await world.webhooks.alert(
            Caller(UserId(1), "ann", allocation="plain.1", task="plain"), 0, 0, Alert("", "", "")
        )
        await clock.sleep(1)
    ((_, delivery),) = world.receivers.got
    assert delivery.webhook == special.id
    assert b'"custom_data":{"title":"loss","description":"it is NaN","level":"ERROR"}' in delivery.body
    assert b'"trial_id":3' in delivery.body
    with pytest.raises(errors.NotFound):
        await world.webhooks.alert(Caller(UserId(1), "ann"), 5, 0, Alert("", "", ""))
    with pytest.raises(errors.BadRequest, match=r"data\.title"):
        await world.webhooks.alert(task, 0, 0, Alert("x" * 300, "", ""))


def test_pauses_grow_to_a_limit_and_take_a_day_at_most() -> None:
    pauses = [pause_after(number) for number in range(1, MOST_ATTEMPTS)]
    assert pauses == sorted(pauses)
    assert pauses[0] == webhook_shipping.FIRST_PAUSE
    assert sum(pauses) < 86_400
