"""Looks for the patterns of webhooks in what tasks write: in each line once, whatever becomes of this process.

How far the logs were looked through is in the records, and moves on in the same transaction in which what was found is
queued. Whoever appends is not held up by it: where more comes than can be looked through, this only falls behind.
A pattern is told once for each task.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection

from muster.api import errors
from muster.records import Database
from muster.tasks import log_records, patterns, webhook_records, webhook_rules
from muster.tasks.log_records import Written
from muster.tasks.logs import Appended
from muster.tasks.webhook_payloads import LogMatched
from muster.tasks.webhook_records import TaskFacts
from muster.tasks.webhook_rules import Subject, Trigger, TriggerId, TriggerType, Webhook, concerns
from muster.tasks.webhooks import Webhooks

_AT_ONCE: Final = 50
"""Chunks."""
_REMEMBERED: Final = 4096


@dataclass(slots=True)
class _Task:
    """`told`: triggers whose pattern was found in its log, and that need not be looked for any more."""

    facts: TaskFacts
    about: Subject
    told: set[TriggerId] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Found:
    task: _Task
    webhook: Webhook
    trigger: Trigger
    what: LogMatched


@dataclass(frozen=True, slots=True)
class _Step:
    """From which chunk to which was looked, and what was there. `has_more`: of chunks."""

    start: int
    end: int
    found: Sequence[_Found]
    has_more: bool


class LogScanner:
    """`observe` is for `TaskLogs.observe`."""

    def __init__(self, database: Database, webhooks: Webhooks) -> None:
        self._database = database
        self._webhooks = webhooks
        self._arrived = asyncio.Event()
        self._tasks: OrderedDict[str, _Task] = OrderedDict()

    def observe(self, _appended: Appended) -> None:
        self._arrived.set()

    async def run(self) -> None:
        """Until cancelled. Begins with what came while nobody looked."""
        self._arrived.set()
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while await self.advance():
                pass

    async def advance(self) -> bool:
        """Looks through the next few chunks. Whether there may be more."""
        step = await self._database.read(self._look, is_long=True)
        if step is None or step.end == step.start:
            return False
        try:
            await self._webhooks.queue(lambda connection: self._new(connection, step))
        except errors.Conflict:
            return True  # another server on the same records was quicker
        for each in step.found:
            each.task.told.add(each.trigger.id)
        return step.has_more

    def _look(self, connection: Connection) -> _Step | None:
        """In a thread. None where nobody wants it."""
        start = webhook_records.scanned_until(connection)
        if start is None:
            return None
        webhooks = webhook_records.listed(connection)
        chunks = log_records.written_after(connection, start, _AT_ONCE)
        found: list[_Found] = []
        for chunk in chunks:
            told = {(each.what.task, each.trigger.id) for each in found}
            matches = self._matches(connection, webhooks, chunk)
            found += [each for each in matches if (each.what.task, each.trigger.id) not in told]
        return _Step(start, chunks[-1].id if chunks else start, found, len(chunks) == _AT_ONCE)

    def _matches(self, connection: Connection, webhooks: Sequence[Webhook], chunk: Written) -> list[_Found]:
        task = self._task(connection, chunk.task)
        if task is None or task.about.is_excluded:
            return []
        wanted = [
            (webhook, trigger)
            for webhook in webhooks
            if concerns(webhook, task.about)
            for trigger in webhook.triggers
            if trigger.type is TriggerType.TASK_LOG and trigger.id not in task.told
        ]
        if not wanted:
            return []
        texts = [line.bare for line in chunk.lines()]
        found: list[_Found] = []
        for webhook, trigger in wanted:
            search = patterns.search(trigger.pattern)
            line = next((text for text in texts if search(text)), None)
            if line is not None:
                what = LogMatched(chunk.task, task.facts.type, chunk.agent, trigger.pattern, line)
                found.append(_Found(task, webhook, trigger, what))
        return found

    def _new(self, connection: Connection, step: _Step) -> list[tuple[Webhook, LogMatched]]:
        """What nobody was told before. Raises Conflict where another server has looked there meanwhile."""
        webhook_records.scanned(connection, step.start, step.end)
        there = {webhook.id for webhook in webhook_records.listed(connection)} if step.found else set()
        return [
            (each.webhook, each.what)
            for each in step.found
            if each.webhook.id in there
            if webhook_records.is_first_match(connection, each.what.task, each.trigger.id)
        ]

    def _task(self, connection: Connection, id: str) -> _Task | None:
        found = self._tasks.get(id)
        if found is None:
            facts = webhook_records.task(connection, id)
            if facts is None:
                return None
            found = self._tasks[id] = _Task(facts, webhook_rules.subject(facts.workspace, facts.config))
            if len(self._tasks) > _REMEMBERED:
                self._tasks.popitem(last=False)
        return found
