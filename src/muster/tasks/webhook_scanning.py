"""Looks for the patterns of webhooks in what tasks write.

Lines are handed over as they come, and must not be held up by it: they are looked through in a thread, and where more
comes than can be looked through, the oldest are left out and that is said. A pattern is told once for each task.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from muster.records import Database
from muster.tasks import patterns, webhook_records, webhook_rules
from muster.tasks.logs import Appended
from muster.tasks.webhook_payloads import LogMatched
from muster.tasks.webhook_records import TaskFacts
from muster.tasks.webhook_rules import Subject, Trigger, TriggerId, TriggerType, concerns
from muster.tasks.webhooks import Webhooks

_MOST_WAITING: Final = 200_000
"""Lines."""
_REMEMBERED: Final = 4096
_INLINE: Final = 200
"""So few searches are done at once instead of in a thread, which costs more than they do."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Task:
    """`told`: triggers whose pattern was found in its log, and that need not be looked for any more."""

    facts: TaskFacts
    about: Subject
    told: set[TriggerId]


class LogScanner:
    """`observe` is for `TaskLogs.observe`."""

    def __init__(self, database: Database, webhooks: Webhooks) -> None:
        self._database = database
        self._webhooks = webhooks
        self._waiting: deque[Appended] = deque()
        self._lines = 0
        self._arrived = asyncio.Event()
        self._tasks: OrderedDict[str, _Task] = OrderedDict()

    def observe(self, appended: Appended) -> None:
        if not self._is_wanted():
            return
        self._waiting.append(appended)
        self._lines += len(appended.lines)
        while self._lines > _MOST_WAITING and len(self._waiting) > 1:
            dropped = self._waiting.popleft()
            self._lines -= len(dropped.lines)
            _log.warning("%d lines of task %s are not looked through for webhooks", len(dropped.lines), dropped.task)
        self._arrived.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._arrived.wait()
            while self._waiting:
                appended = self._waiting.popleft()
                self._lines -= len(appended.lines)
                await self._scan(appended)
            self._arrived.clear()

    def _is_wanted(self) -> bool:
        return any(
            trigger.type is TriggerType.TASK_LOG for webhook in self._webhooks.known() for trigger in webhook.triggers
        )

    async def _scan(self, appended: Appended) -> None:
        task = await self._task(appended.task)
        if task is None or task.about.is_excluded:
            return
        wanted = [
            trigger
            for webhook in self._webhooks.known()
            if concerns(webhook, task.about)
            for trigger in webhook.triggers
            if trigger.type is TriggerType.TASK_LOG and trigger.id not in task.told
        ]
        if not wanted:
            return
        texts = [line.text for line in appended.lines]
        is_little = len(texts) * len(wanted) <= _INLINE
        found = _found(wanted, texts) if is_little else await asyncio.to_thread(_found, wanted, texts)
        for trigger, line in found:
            task.told.add(trigger.id)
            await self._tell(appended, task, trigger, line)

    async def _tell(self, appended: Appended, task: _Task, trigger: Trigger, line: str) -> None:
        id, name = trigger.id, appended.task
        what = LogMatched(name, task.facts.type, appended.origin.agent, trigger.pattern, line)

        def is_first(connection: Connection, meant: Trigger) -> bool:
            return webhook_records.is_first_match(connection, name, meant.id)

        await self._webhooks.tell(what, task.about, lambda meant: meant.id == id, is_first)

    async def _task(self, id: str) -> _Task | None:
        found = self._tasks.get(id)
        if found is None:
            facts = await self._database.read(lambda connection: webhook_records.task(connection, id))
            if facts is None:
                return None
            found = _Task(facts, webhook_rules.subject(facts.workspace, facts.config), set())
            self._tasks[id] = found
            if len(self._tasks) > _REMEMBERED:
                self._tasks.popitem(last=False)
        return found


def _found(triggers: Sequence[Trigger], texts: Sequence[str]) -> list[tuple[Trigger, str]]:
    """For each trigger whose pattern is in any of the texts: the first of those."""
    found: list[tuple[Trigger, str]] = []
    for trigger in triggers:
        search = patterns.search(trigger.pattern)
        line = next((text for text in texts if search(text)), None)
        if line is not None:
            found.append((trigger, line))
    return found
