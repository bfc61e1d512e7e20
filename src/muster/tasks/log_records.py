"""Task logs in the records: functions of a connection."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Select, bindparam, func, insert, select, text, update

from muster.accounts.callers import WorkspaceId
from muster.api import errors
from muster.records.tables_logs import TASK_LOG_CHUNKS as CHUNKS
from muster.records.tables_logs import TASK_LOGS as LOGS
from muster.records.tables_tasks import TASKS
from muster.tasks.log_filters import Filter
from muster.tasks.log_lines import Chunk, Line, Origin, Stored, unpacked

Encode: TypeAlias = Callable[[Stored], bytes]
"""How a line is told to whoever reads."""
_LINES_OF_ID: Final = 4096
"""More than a chunk has: the id of a line is that of its chunk, times this, and its place in it."""
_PAGE_LINES: Final = 1000
_PAGE_BYTES: Final = 512 * 1024
_PAGE_CHUNKS: Final = 200
_FETCHED_CHUNKS: Final = 8
"""At a time: a page may be full with the first of them, and a chunk may be large."""
_SENT_BYTES: Final = 64 * 1024
_LOCK: Final = 0x6D757374_6C6F6773


@dataclass(frozen=True, slots=True)
class Page:
    """Lines, encoded, a few together; where to read on; and whether there was nothing after it."""

    sent: tuple[bytes, ...]
    next: int
    lines: int
    is_last: bool

    @property
    def bytes(self) -> int:
        return sum(map(len, self.sent))


@dataclass(frozen=True, slots=True)
class Fields:
    """What there is to filter by."""

    allocations: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    stdtypes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    def joined(self, other: "Fields") -> "Fields":
        return Fields(
            _union(self.allocations, other.allocations),
            _union(self.agents, other.agents),
            _union(self.containers, other.containers),
            _union(self.ranks, other.ranks),
            _union(self.stdtypes, other.stdtypes),
            _union(self.sources, other.sources),
        )


_Value = TypeVar("_Value", str, int)
_ChunkRow: TypeAlias = "Row[int, str, str, str, str, int, bytes]"


def _union(some: tuple[_Value, ...], others: tuple[_Value, ...]) -> tuple[_Value, ...]:
    return tuple(sorted(set(some) | set(others)))


@dataclass(frozen=True, slots=True)
class Progress:
    """`newest`: the last chunk's id. `is_over`: the task has ended, or is gone."""

    newest: int
    is_over: bool


@dataclass(frozen=True, slots=True)
class Written:
    """A chunk as it is kept, of whichever task."""

    id: int
    task: str
    agent: str
    body: bytes

    def lines(self) -> list[Line]:
        return unpacked(self.body)


# Writing


def add(connection: Connection, chunks: Sequence[Chunk], now: int) -> frozenset[int]:
    """Which of the chunks were new, by their place."""
    if connection.dialect.name == "postgresql":
        # Ids are given before a commit and seen after it. Followers go by them, so who writes must be alone.
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    seen = _known(connection, [chunk.digest for chunk in chunks if chunk.digest is not None])
    new: dict[int, Chunk] = {}
    for place, chunk in enumerate(chunks):
        if chunk.digest is None or chunk.digest not in seen:
            new[place] = chunk
            seen.add(chunk.digest or b"")
    if new:
        connection.execute(insert(CHUNKS), [_row(chunk) for chunk in new.values()])
        _count(connection, new.values(), now)
    return frozenset(new)


def _known(connection: Connection, digests: Sequence[bytes]) -> set[bytes]:
    if not digests:
        return set()
    return set(connection.scalars(select(CHUNKS.c.digest).where(CHUNKS.c.digest.in_(digests))))


def _count(connection: Connection, chunks: Iterable[Chunk], now: int) -> None:
    lines: dict[str, int] = {}
    for chunk in chunks:
        lines[chunk.task] = lines.get(chunk.task, 0) + chunk.lines
    there = set(connection.scalars(select(LOGS.c.task_id).where(LOGS.c.task_id.in_(list(lines)))))
    if there:
        connection.execute(_COUNT, [{"task": task, "more": lines[task], "now": now} for task in there])
    fresh = [{"task_id": task, "newest": now, "lines": lines[task]} for task in lines if task not in there]
    if fresh:
        connection.execute(insert(LOGS), fresh)


_COUNT: Final = (
    update(LOGS)
    .where(LOGS.c.task_id == bindparam("task"))
    .values(lines=LOGS.c.lines + bindparam("more"), newest=bindparam("now"))
)


def _row(chunk: Chunk) -> dict[str, object]:
    return {
        "task_id": chunk.task,
        "digest": chunk.digest,
        "allocation_id": chunk.origin.allocation,
        "container_id": chunk.origin.container,
        "agent_id": chunk.origin.agent,
        "source": chunk.origin.source,
        "ranks": chunk.ranks,
        "stdtypes": chunk.stdtypes,
        "levels": chunk.levels,
        "oldest": chunk.oldest,
        "newest": chunk.newest,
        "lines": chunk.lines,
        "body": chunk.body,
    }


# Reading


def page_after(connection: Connection, task: str, after: int, chosen: Filter, encode: Encode, most: int) -> Page:
    """From chunk `after` on. `most`: no more lines than that; 0 for no limit."""
    # Asked first: what comes in between is on the next page, instead of being skipped as if it had not matched.
    newest = _newest(connection, task)
    if newest <= after:
        return Page((), after, 0, is_last=True)
    query = _select(task, chosen).where(CHUNKS.c.id > after, CHUNKS.c.id <= newest).order_by(CHUNKS.c.id)
    with connection.execute(query.limit(_PAGE_CHUNKS).execution_options(yield_per=_FETCHED_CHUNKS)) as rows:
        return _page(rows, task, chosen, encode, most, newest)


def page_before(connection: Connection, task: str, before: int, chosen: Filter, encode: Encode, most: int) -> Page:
    """Backwards, from the chunk before `before`; 0: from the newest."""
    query = _select(task, chosen).order_by(CHUNKS.c.id.desc())
    if before:
        query = query.where(CHUNKS.c.id < before)
    with connection.execute(query.limit(_PAGE_CHUNKS).execution_options(yield_per=_FETCHED_CHUNKS)) as rows:
        return _page(rows, task, chosen, encode, most, None)


def _page(
    rows: Iterable[_ChunkRow],
    task: str,
    chosen: Filter,
    encode: Encode,
    most: int,
    newest: int | None,
) -> Page:
    """`newest`: of the task, where chunks come in order; None where they come backwards."""
    matches = chosen.matches()
    told: list[bytes] = []
    size = last = seen = chunks = 0
    is_last = True
    for row in rows:
        if seen >= _PAGE_LINES or size >= _PAGE_BYTES or (most and len(told) >= most):
            is_last = False
            break
        chunks, last, seen = chunks + 1, row.id, seen + row.lines
        for line in _lines(row, task, backwards=newest is None):
            if matches is None or matches(line.line):
                told.append(encode(line))
                size += len(told[-1])
    else:
        is_last = chunks < _PAGE_CHUNKS
    if most:
        del told[most:]
    at_end = newest if newest is not None else last
    return Page(_joined(told), at_end if is_last else last, len(told), is_last)


def _lines(row: _ChunkRow, task: str, *, backwards: bool) -> Iterable[Stored]:
    origin = Origin(row.allocation_id, row.container_id, row.agent_id, row.source)
    first = row.id * _LINES_OF_ID
    stored = [Stored(first + place, task, origin, line) for place, line in enumerate(unpacked(row.body))]
    return reversed(stored) if backwards else stored


def _joined(told: Sequence[bytes]) -> tuple[bytes, ...]:
    """A few together: to send them one by one would cost more than to make them."""
    joined: list[bytes] = []
    start = size = 0
    for place, each in enumerate(told):
        size += len(each)
        if size >= _SENT_BYTES:
            joined.append(b"".join(told[start : place + 1]))
            start, size = place + 1, 0
    if start < len(told):
        joined.append(b"".join(told[start:]))
    return tuple(joined)


_COLUMNS: Final = (
    CHUNKS.c.id, CHUNKS.c.allocation_id, CHUNKS.c.container_id, CHUNKS.c.agent_id, CHUNKS.c.source, CHUNKS.c.lines,
    CHUNKS.c.body,
)  # fmt: skip


def _select(task: str, chosen: Filter) -> "Select[int, str, str, str, str, int, bytes]":
    return select(*_COLUMNS).where(CHUNKS.c.task_id == task, *_conditions(chosen))


def _conditions(chosen: Filter) -> Iterable[ColumnElement[bool]]:
    for column, names in (
        (CHUNKS.c.allocation_id, chosen.allocations),
        (CHUNKS.c.container_id, chosen.containers),
        (CHUNKS.c.agent_id, chosen.agents),
        (CHUNKS.c.source, chosen.sources),
    ):
        if names:
            yield column.in_(sorted(names))
    if chosen.levels:
        yield CHUNKS.c.levels.bitwise_and(sum(1 << level for level in chosen.levels)) != 0
    if chosen.after is not None:
        yield CHUNKS.c.newest > chosen.after
    if chosen.before is not None:
        yield CHUNKS.c.oldest <= chosen.before


def _newest(connection: Connection, task: str) -> int:
    return connection.scalar(select(func.max(CHUNKS.c.id)).where(CHUNKS.c.task_id == task)) or 0


def newest(connection: Connection) -> int:
    """The last chunk of all."""
    return connection.scalar(select(func.max(CHUNKS.c.id))) or 0


def written_after(connection: Connection, chunk: int, most: int) -> list[Written]:
    """The chunks of all tasks that came after that one, in their order. None comes in between later on."""
    query = select(CHUNKS.c.id, CHUNKS.c.task_id, CHUNKS.c.agent_id, CHUNKS.c.body).where(CHUNKS.c.id > chunk)
    return [Written(*row) for row in connection.execute(query.order_by(CHUNKS.c.id).limit(most))]


def fields(connection: Connection, task: str, after: int = 0) -> tuple[Fields, int]:
    """Of the chunks that came after that one; and the last of them."""
    newest = _newest(connection, task)
    columns = (
        CHUNKS.c.allocation_id, CHUNKS.c.agent_id, CHUNKS.c.container_id, CHUNKS.c.ranks, CHUNKS.c.stdtypes,
        CHUNKS.c.source,
    )  # fmt: skip
    found: tuple[set[str], ...] = tuple(set() for _ in columns)
    here = (CHUNKS.c.task_id == task, CHUNKS.c.id > after, CHUNKS.c.id <= newest)
    for row in connection.execute(select(*columns).where(*here).distinct()):
        for column, values, value in zip(columns, found, row, strict=True):
            values.update(value.split(",") if column.name in ("ranks", "stdtypes") else (value,))
    allocations, agents, containers, ranks, stdtypes, sources = (tuple(sorted(each - {""})) for each in found)
    return Fields(allocations, agents, containers, tuple(sorted(map(int, ranks))), stdtypes, sources), newest


def progress(connection: Connection, tasks: Collection[str]) -> Mapping[str, Progress]:
    listed = list(tasks)
    running = set(connection.scalars(select(TASKS.c.id).where(TASKS.c.id.in_(listed), TASKS.c.ended.is_(None))))
    # After who runs: a task that has ended in between has written nothing since.
    newest = {task: _newest(connection, task) for task in listed}
    return {task: Progress(newest[task], task not in running) for task in listed}


def workspace(connection: Connection, task: str) -> WorkspaceId | None:
    """The task's; None where it is in none. Raises NotFound."""
    row = connection.execute(select(TASKS.c.workspace_id).where(TASKS.c.id == task)).one_or_none()
    if row is None:
        raise errors.NotFound(f"task {task} not found")
    return None if row.workspace_id is None else WorkspaceId(row.workspace_id)


def newest_of(connection: Connection, task: str, container: str) -> int | None:
    """The time of the last line that came from there; None where none did."""
    query = select(func.max(CHUNKS.c.newest)).where(CHUNKS.c.task_id == task, CHUNKS.c.container_id == container)
    found: int | None = connection.scalar(query)
    return found
