"""Task logs: taken in from tasks, told with filters, followed, cleaned up."""

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from itertools import groupby
from typing import Annotated, Final

import msgspec

from muster.accounts.authorizing import Authorizer
from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.api import errors
from muster.runtime.clock import Clock
from muster.server.determined import wire
from muster.server.determined.ordering import OrderBy
from muster.server.determined.paging import Count
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, known, route, stream
from muster.server.exchange import closing
from muster.tasks import log_lines
from muster.tasks.log_filters import Filter
from muster.tasks.log_lines import Level, Line, Origin, Piece, Stored
from muster.tasks.log_records import Fields
from muster.tasks.log_retention import Retention
from muster.tasks.logs import Query, TaskLogs

_MOST_LINES: Final = 10_000
"""In one request. Senders of our acquaintance have 1,000."""
_HIGHEST_RANK: Final = 2**31 - 1


class LogLevel(StrEnum):
    UNSPECIFIED = "LOG_LEVEL_UNSPECIFIED"
    TRACE = "LOG_LEVEL_TRACE"
    DEBUG = "LOG_LEVEL_DEBUG"
    INFO = "LOG_LEVEL_INFO"
    WARNING = "LOG_LEVEL_WARNING"
    ERROR = "LOG_LEVEL_ERROR"
    CRITICAL = "LOG_LEVEL_CRITICAL"


_LEVELS: Final = tuple(LogLevel)


class TaskLog(Message, frozen=True):
    """A line as it comes in. `level`: with or without its prefix, since `ship_logs` sends both."""

    id: int | str | None = None
    task_id: str = ""
    allocation_id: str = ""
    agent_id: str = ""
    container_id: str = ""
    rank_id: Annotated[int, msgspec.Meta(ge=-1, le=_HIGHEST_RANK)] | None = None
    rank: Annotated[int, msgspec.Meta(ge=-1, le=_HIGHEST_RANK)] | None = None
    timestamp: str = ""
    level: str = ""
    log: str = ""
    source: str = ""
    stdtype: str = ""


class PostTaskLogs(Message, frozen=True):
    logs: Sequence[TaskLog] = ()


class TaskAsked(Message, frozen=True):
    task_id: str = ""
    follow: bool = False


class GetTaskLogs(TaskAsked, frozen=True):
    limit: Count = 0
    allocation_ids: Sequence[str] = ()
    agent_ids: Sequence[str] = ()
    container_ids: Sequence[str] = ()
    rank_ids: Sequence[Annotated[int, msgspec.Meta(ge=-1, le=_HIGHEST_RANK)]] = ()
    levels: Sequence[LogLevel] = ()
    stdtypes: Sequence[str] = ()
    sources: Sequence[str] = ()
    timestamp_before: str = ""
    timestamp_after: str = ""
    order_by: OrderBy = OrderBy.UNSPECIFIED
    search_text: str = ""
    enable_regex: bool = False


class TaskLogsReply(Message, frozen=True):
    """`message` is the line as the client prints it."""

    id: str
    timestamp: str
    message: str
    level: LogLevel
    task_id: str
    allocation_id: str | None
    agent_id: str | None
    container_id: str | None
    rank_id: int | None
    log: str
    source: str | None
    stdtype: str | None


class FieldsReply(Message, frozen=True):
    allocation_ids: Sequence[str]
    agent_ids: Sequence[str]
    container_ids: Sequence[str]
    rank_ids: Sequence[int]
    stdtypes: Sequence[str]
    sources: Sequence[str]


class CleanupReply(Message, frozen=True):
    removed_count: str


def encode(stored: Stored) -> bytes:
    line, origin = stored.line, stored.origin
    return wire.encode_result(
        TaskLogsReply(
            id=str(stored.id),
            timestamp=log_lines.time_text(line.at),
            message=log_lines.shown(origin, line),
            level=_LEVELS[line.level],
            task_id=stored.task,
            allocation_id=origin.allocation or None,
            agent_id=origin.agent or None,
            container_id=origin.container or None,
            rank_id=line.rank,
            log=line.text,
            source=origin.source or None,
            stdtype=line.stdtype or None,
        )
    )


def chosen(asked: GetTaskLogs) -> Filter:
    """Raises BadRequest."""
    return Filter(
        allocations=frozenset(asked.allocation_ids),
        containers=frozenset(asked.container_ids),
        agents=frozenset(asked.agent_ids),
        sources=frozenset(asked.sources),
        stdtypes=frozenset(asked.stdtypes),
        ranks=frozenset(asked.rank_ids),
        levels=frozenset(Level(_LEVELS.index(level)) for level in asked.levels),
        after=_micros("timestampAfter", asked.timestamp_after),
        before=_micros("timestampBefore", asked.timestamp_before),
        text=asked.search_text,
        is_regex=asked.enable_regex,
    )


class _Logs:
    def __init__(self, logs: TaskLogs, retention: Retention, authorizer: Authorizer, clock: Clock) -> None:
        self._logs = logs
        self._retention = retention
        self._authorizer = authorizer
        self._clock = clock

    async def workspace(self, call: Call, asked: TaskAsked) -> WorkspaceId | None:
        return await self._logs.workspace(asked.task_id)

    async def post(self, call: Call, asked: PostTaskLogs) -> Nothing:
        return await self._post(call, asked.logs)

    async def post_unmanaged(self, call: Call, asked: PostTaskLogs) -> Nothing:
        """Its sender stamps all lines with the time at which it was started: that says nothing about any of them, and
        lines that are the same need not be the same line."""
        return await self._post(call, [msgspec.structs.replace(log, timestamp="") for log in asked.logs])

    async def _post(self, call: Call, logs: Sequence[TaskLog]) -> Nothing:
        if logs:
            task = logs[0].task_id
            await self._check(call, task, logs)
            await self._logs.append(task, _pieces(logs, round(self._clock.now() * 1_000_000)))
        return Nothing()

    async def _check(self, call: Call, task: str, logs: Sequence[TaskLog]) -> None:
        if len(logs) > _MOST_LINES:
            raise errors.BadRequest(f"logs: at most {_MOST_LINES} lines in one request, found {len(logs)}")
        for place, log in enumerate(logs):
            if not log.task_id or log.task_id != task:
                raise errors.BadRequest(f"logs[{place}].task_id: lines of one request belong to one task; {task!r}")
            if log.id is not None:
                raise errors.BadRequest(f"logs[{place}].id: the server numbers lines; leave it out")
            if call.caller.allocation and log.allocation_id not in ("", call.caller.allocation):
                raise errors.Forbidden(
                    f"logs[{place}].allocation_id: {log.allocation_id} is not the one that this token belongs to"
                )
        if call.caller.allocation:
            if task != call.caller.task:
                raise errors.Forbidden(f"{task} is not the task that this token belongs to")
            return
        await self._authorizer.check(call.caller, Permission.EDIT_TASKS, await self._logs.workspace(task))

    async def follow(self, call: Call, asked: GetTaskLogs) -> AsyncIterator[bytes]:
        if asked.limit < 0:
            raise errors.BadRequest(f"limit: must not be negative, found {asked.limit}")
        is_newest_first = asked.order_by is OrderBy.DESC
        query = Query(asked.task_id, chosen(asked), asked.limit, is_newest_first, asked.follow)
        lines = self._logs.read(query, encode)
        async with closing(lines):
            async for sent in lines:
                yield sent

    async def fields(self, call: Call, asked: TaskAsked) -> AsyncIterator[FieldsReply]:
        if not asked.follow:
            yield _told_fields(await self._logs.fields(asked.task_id))
            return
        found = self._logs.follow_fields(asked.task_id)
        async with closing(found):
            async for fields in found:
                yield _told_fields(fields)

    async def clean(self, call: Call, asked: Nothing) -> CleanupReply:
        return CleanupReply(removed_count=str(await self._retention.clean()))


def _told_fields(fields: Fields) -> FieldsReply:
    return FieldsReply(
        allocation_ids=fields.allocations,
        agent_ids=fields.agents,
        container_ids=fields.containers,
        rank_ids=fields.ranks,
        stdtypes=fields.stdtypes,
        sources=fields.sources,
    )


def _pieces(logs: Sequence[TaskLog], now: int) -> "list[Piece]":
    """Lines of one origin that follow each other are one piece: their order stays."""
    pieces: list[Piece] = []
    place = 0
    for origin, group in groupby(logs, _origin):
        lines: list[Line] = []
        is_timed = True
        for log in group:
            is_timed &= bool(log.timestamp)
            lines.append(_line(place, log, now))
            place += 1
        for name in (origin.allocation, origin.container, origin.agent, origin.source):
            log_lines.checked_name(f"logs[{place - 1}]", name)
        pieces.append(Piece(origin, lines, is_timed))
    return pieces


def _origin(log: TaskLog) -> Origin:
    return Origin(log.allocation_id, log.container_id, log.agent_id, log.source)


def _line(place: int, log: TaskLog, now: int) -> Line:
    level = Level.UNSPECIFIED
    if log.level:
        try:
            level = log_lines.level_of(log.level)
        except ValueError as error:
            raise errors.BadRequest(f"logs[{place}].level: {error}") from error
    at = _micros(f"logs[{place}].timestamp", log.timestamp)
    rank = log.rank_id if log.rank_id is not None else log.rank
    if "," in log.stdtype or len(log.stdtype) > 32:
        raise errors.BadRequest(f"logs[{place}].stdtype: expected stdout or stderr, found {log.stdtype[:40]!r}")
    return Line(
        now if at is None else at, log_lines.cut(log.log), level, None if rank == -1 else rank, log.stdtype
    )  # fmt: skip


def _micros(field: str, text: str) -> int | None:
    if not text:
        return None
    try:
        return log_lines.micros(text)
    except ValueError as error:
        raise errors.BadRequest(
            f"{field}: expected RFC 3339 such as 2026-01-02T03:04:05Z, found {text[:60]!r}"
        ) from error


def routes(logs: TaskLogs, retention: Retention, authorizer: Authorizer, clock: Clock) -> Sequence[Route]:
    handlers = _Logs(logs, retention, authorizer, clock)
    of_task = "/api/v1/tasks/{taskId}/logs"
    lines: Rule[GetTaskLogs] = Rule(Permission.VIEW_TASKS, handlers.workspace, own="task_id")
    fields: Rule[TaskAsked] = Rule(Permission.VIEW_TASKS, handlers.workspace, own="task_id")
    # Who may append is for the handler to say: the task stands in the lines.
    return (
        route("POST", "/api/v1/task/logs", PostTaskLogs, Nothing, known(), handlers.post),
        route("POST", "/task-logs", PostTaskLogs, Nothing, known(), handlers.post_unmanaged, body="logs"),
        stream(of_task, GetTaskLogs, TaskLogsReply, lines, handlers.follow),
        stream(f"{of_task}/fields", TaskAsked, FieldsReply, fields, handlers.fields),
        route(
            "POST", "/api/v1/cleanup_logs", Nothing, CleanupReply, Rule(Permission.ADMINISTRATE_CLUSTER), handlers.clean
        ),
    )
