"""Where reports of trials come in: kept durably, many to a commit, and their searches woken.

What comes while one change is written gathers for the next, so that at any rate there are few commits, and a report is
acknowledged when it is on disk. Nobody is refused because others are quick: who reports waits for the answer.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from muster.api import errors
from muster.api.errors import ApiError
from muster.experiments import metric_blocks, metric_records, metric_reports
from muster.experiments.inbox import Waker
from muster.experiments.metric_memory import Memory
from muster.experiments.metric_reports import Report
from muster.experiments.metric_taking import Taking
from muster.experiments.states import ExperimentId, TrialId
from muster.records import Database
from muster.runtime.clock import Clock

_MOST_TOGETHER: Final = 1000
"""Others write their records in between."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    report: Report
    text: str
    taken: "asyncio.Future[None]"


@dataclass(frozen=True, slots=True)
class _Taken:
    """`refused`: by their place."""

    refused: dict[int, ApiError]
    told: frozenset[ExperimentId]


class MetricIntake:
    """`run` must be kept running; what is reported before waits. The one writer of metrics: see `metric_memory`."""

    def __init__(self, database: Database, clock: Clock, waker: Waker) -> None:
        self._database = database
        self._clock = clock
        self._waker = waker
        self._memory = Memory()
        self._waiting: list[_Waiting] = []
        self._arrived = asyncio.Event()
        self._is_closed = False

    async def report(self, report: Report) -> None:
        """Returns when it is durable. Raises BadRequest, NotFound, Forbidden where another trial speaks, Conflict
        where a run does that is over, or that contradicts itself."""
        await self._put(report)

    async def report_all(self, reports: Sequence[Report]) -> None:
        """Many at once. Each is taken in as if it were alone; raises what the first that was refused was told."""
        waiting = [self._put(report) for report in reports]
        found = await asyncio.gather(*waiting, return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException):
                raise each

    def _put(self, report: Report) -> "asyncio.Future[None]":
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            if self._is_closed:
                raise errors.Unavailable("the server is shutting down; report it again")
            metric_reports.check(report)
            self._waiting.append(_Waiting(report, metric_reports.encoded(report), taken))
        except ApiError as error:
            taken.set_exception(error)
        self._arrived.set()
        return taken

    async def run(self) -> None:
        """For ever; who reports after that is refused."""
        try:
            await self._take_all()
        except asyncio.CancelledError:
            self._is_closed = True
            _refuse(self._waiting, errors.Unavailable("the server is shutting down; report it again"))
            raise

    async def _take_all(self) -> None:
        while True:
            await self._arrived.wait()
            together, self._waiting = self._waiting[:_MOST_TOGETHER], self._waiting[_MOST_TOGETHER:]
            if not self._waiting:
                self._arrived.clear()
            await self._take(together)
            await self._make_blocks({waiting.report.trial for waiting in together})
            self._memory.shrink()

    async def _take(self, together: Sequence[_Waiting]) -> None:
        try:
            taken = await self._database.write(lambda connection: self._change(connection, together))
        except BaseException as error:  # each sender hears of it
            _log.warning("reports of trials could not be written: %r", error)
            self._memory.forget({waiting.report.trial for waiting in together})
            _refuse(together, errors.Unavailable("the report could not be written; send it again"))
            if not isinstance(error, Exception):
                raise
            return
        for experiment in taken.told:
            self._waker.wake(experiment)
        for place, waiting in enumerate(together):
            if waiting.taken.done():
                continue  # who reported has gone
            refused = taken.refused.get(place)
            if refused is None:
                waiting.taken.set_result(None)
            else:
                waiting.taken.set_exception(refused)

    def _change(self, connection: Connection, together: Sequence[_Waiting]) -> _Taken:
        heads = metric_records.heads(connection, {waiting.report.trial for waiting in together})
        taking = Taking(connection, self._memory, heads, self._clock.now())
        refused: dict[int, ApiError] = {}
        for place, waiting in enumerate(together):
            try:
                taking.take(waiting.report, waiting.text)
            except ApiError as error:
                refused[place] = error
        return _Taken(refused, taking.finish())

    async def _make_blocks(self, trials: Collection[TrialId]) -> None:
        """Of what has gathered in rows. Only here are blocks made, between changes: nobody archives rows meanwhile."""
        for trial, group in self._memory.grown(trials, metric_blocks.SPARE):
            try:
                await self._make_block(trial, group)
            except Exception:
                _log.exception("%s metrics of trial %s were not made into a block", group, trial)

    async def _make_block(self, trial: TrialId, group: str) -> None:
        block = await self._database.read(lambda connection: metric_blocks.next_block(connection, trial, group))
        if block is not None:
            await self._database.write(lambda connection: metric_blocks.add(connection, block))


def _refuse(together: Sequence[_Waiting], error: ApiError) -> None:
    for waiting in together:
        if not waiting.taken.done():
            waiting.taken.set_exception(error)
