"""Logs of trials: those of all tasks that a trial has had, one after the other, as one."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import reduce

from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import errors
from muster.experiments import trial_records
from muster.experiments.places import Places
from muster.experiments.states import TrialId
from muster.records import Database
from muster.server.determined import logs, wire
from muster.server.determined.logs import GetTaskLogs, LogLevel
from muster.server.determined.ordering import OrderBy
from muster.server.determined.paging import Id
from muster.server.determined.routing import Call, Message, Route, Rule, stream
from muster.server.exchange import closing
from muster.tasks import log_lines
from muster.tasks.log_lines import Stored
from muster.tasks.log_records import Fields
from muster.tasks.logs import Query, TaskLogs

_LEVELS = tuple(LogLevel)


class GetTrialLogs(GetTaskLogs, frozen=True):
    trial_id: Id = 0


class TrialAsked(Message, frozen=True):
    trial_id: Id = 0
    follow: bool = False


class TrialLogsReply(Message, frozen=True):
    """`message` is the line as the client prints it."""

    id: str
    trial_id: int
    timestamp: str
    message: str
    level: LogLevel
    agent_id: str | None
    container_id: str | None
    rank_id: int | None
    log: str
    source: str | None
    stdtype: str | None


class TrialFieldsReply(Message, frozen=True):
    agent_ids: Sequence[str]
    container_ids: Sequence[str]
    rank_ids: Sequence[int]
    stdtypes: Sequence[str]
    sources: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Encoder:
    """Those of the same trial are equal: so readers share what they read."""

    trial: TrialId

    def __call__(self, stored: Stored) -> bytes:
        line, origin = stored.line, stored.origin
        return wire.encode_result(
            TrialLogsReply(
                id=str(stored.id),
                trial_id=self.trial,
                timestamp=log_lines.time_text(line.at),
                message=log_lines.shown(origin, line),
                level=_LEVELS[line.level],
                agent_id=origin.agent or None,
                container_id=origin.container or None,
                rank_id=line.rank,
                log=line.text,
                source=origin.source or None,
                stdtype=line.stdtype or None,
            )
        )


class _TrialLogs:
    def __init__(self, task_logs: TaskLogs, database: Database, places: Places) -> None:
        self._logs = task_logs
        self._database = database
        self._places = places

    async def place(self, call: Call, asked: GetTrialLogs | TrialAsked) -> WorkspaceId:
        return await self._places.of_trial(call.caller, asked.trial_id)

    async def is_own(self, call: Call, asked: GetTrialLogs | TrialAsked) -> bool:
        return await self._places.trial_of(call.caller.task) == asked.trial_id

    async def follow(self, call: Call, asked: GetTrialLogs) -> AsyncIterator[bytes]:
        if asked.limit < 0:
            raise errors.BadRequest(f"limit: must not be negative, found {asked.limit}")
        trial, is_newest_first = TrialId(asked.trial_id), asked.order_by is OrderBy.DESC
        tasks, chosen, left = await self._tasks(trial), logs.chosen(asked), asked.limit
        for task in reversed(tasks) if is_newest_first else tasks:
            # Those before the last have ended, and are read like the last of one that has.
            is_followed = asked.follow and (task == tasks[-1] or is_newest_first)
            query = Query(task, chosen, left, is_newest_first, is_followed)
            lines = self._logs.read(query, _Encoder(trial))
            async with closing(lines):
                async for sent in lines:
                    yield sent
                    if asked.limit:
                        left -= sent.count(b"\n")
            if asked.limit and left <= 0:
                return

    async def fields(self, call: Call, asked: TrialAsked) -> AsyncIterator[TrialFieldsReply]:
        *before, last = await self._tasks(TrialId(asked.trial_id))
        known = [await self._logs.fields(task) for task in before]
        if not asked.follow:
            yield _told(reduce(Fields.joined, known, await self._logs.fields(last)))
            return
        found = self._logs.follow_fields(last)
        async with closing(found):
            async for fields in found:
                yield _told(reduce(Fields.joined, known, fields))

    async def _tasks(self, trial: TrialId) -> Sequence[str]:
        """The oldest first."""
        return await self._database.read(lambda connection: trial_records.tasks(connection, trial))


def _told(fields: Fields) -> TrialFieldsReply:
    return TrialFieldsReply(
        agent_ids=fields.agents,
        container_ids=fields.containers,
        rank_ids=fields.ranks,
        stdtypes=fields.stdtypes,
        sources=fields.sources,
    )


def routes(task_logs: TaskLogs, database: Database, places: Places) -> Sequence[Route]:
    on, here = _TrialLogs(task_logs, database, places), "/api/v1/trials/{trialId}/logs"
    lines: Rule[GetTrialLogs] = Rule(Permission.VIEW_EXPERIMENTS, on.place, own=on.is_own)
    fields: Rule[TrialAsked] = Rule(Permission.VIEW_EXPERIMENTS, on.place, own=on.is_own)
    return (
        stream(here, GetTrialLogs, TrialLogsReply, lines, on.follow),
        stream(f"{here}/fields", TrialAsked, TrialFieldsReply, fields, on.fields),
    )
