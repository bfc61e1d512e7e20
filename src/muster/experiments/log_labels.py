"""Labels trials by what their logs say, while they run: with the name of the policy whose pattern is there.

Lines are handed over as they come, and must not be held up by it. Where more comes than can be looked through, some are
left out: a label is for people, and decides nothing.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import Connection

from muster.experiments import log_policies, task_names, trial_records
from muster.experiments.log_policies import Policy
from muster.experiments.registry import Conductors
from muster.experiments.states import TrialId
from muster.records import Database
from muster.tasks import patterns
from muster.tasks.logs import Appended

_log = logging.getLogger(__name__)
_MOST_WAITING: Final = 100_000
"""Lines."""
_REMEMBERED: Final = 4096
"""Trials."""
_INLINE: Final = 200
"""So few searches are done at once instead of in a thread, which costs more than they do."""


class Labels:
    """`observe` is for `TaskLogs.observe`; `run` must be kept running."""

    def __init__(self, database: Database, conductors: Conductors) -> None:
        self._database = database
        self._conductors = conductors
        self._waiting: deque[tuple[TrialId, Sequence[Policy], Appended]] = deque()
        self._lines = 0
        self._arrived = asyncio.Event()
        self._labelled: OrderedDict[TrialId, set[str]] = OrderedDict()
        """Which policies were found. Of those that were forgotten the label is written again, and is the same."""

    def observe(self, appended: Appended) -> None:
        try:
            experiment, request_id = task_names.owner(appended.task)
        except ValueError:
            return  # of no trial
        course = self._conductors.course(experiment)
        found = None if course is None else course.trials.get(request_id)
        if course is None or found is None:
            return
        wanted = [
            each for each in log_policies.of(course) if each.name and each.name not in self._labelled.get(found.id, ())
        ]
        if wanted and self._lines + len(appended.lines) <= _MOST_WAITING:
            self._waiting.append((found.id, wanted, appended))
            self._lines += len(appended.lines)
            self._arrived.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting:
                trial_id, wanted, appended = self._waiting.popleft()
                self._lines -= len(appended.lines)
                await self._look(trial_id, wanted, [line.bare for line in appended.lines])

    async def _look(self, trial_id: TrialId, wanted: Sequence[Policy], texts: Sequence[str]) -> None:
        is_little = len(wanted) * len(texts) <= _INLINE
        names = _matching(wanted, texts) if is_little else await asyncio.to_thread(_matching, wanted, texts)
        if not names:
            return
        known = self._labelled.setdefault(trial_id, set())
        if len(self._labelled) > _REMEMBERED:
            self._labelled.popitem(last=False)
        for name in names:
            if name in known:
                continue
            known.add(name)

            def change(connection: Connection, name: str = name) -> None:
                trial_records.change(connection, trial_id, {"log_signal": name})

            try:
                await self._database.write(change)
            except Exception as error:  # a label is not worth more trouble
                _log.warning("trial %d could not be labelled with %r: %s", trial_id, name, error)


def _matching(wanted: Iterable[Policy], texts: Sequence[str]) -> list[str]:
    return [policy.name for policy in wanted if any(map(patterns.search(policy.pattern), texts))]
