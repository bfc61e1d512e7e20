"""How many slots were held for how long, by whom and where: from the records of allocations, exact, in UTC.

An allocation counts from when it was started until it ended, or until now; with each second of each of its slots. One
that never started does not count.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from enum import StrEnum
from typing import Final

from sqlalchemy import Connection, Row, Select, or_, select

from muster.accounts.callers import WorkspaceId
from muster.api import errors
from muster.api.meta import Instant
from muster.records import Database
from muster.records.tables_accounts import USERS, WORKSPACES
from muster.records.tables_tasks import ALLOCATIONS, TASKS
from muster.runtime.clock import Clock

_MOST_PERIODS: Final = 4000
_QUEUE_DAYS: Final = 30


class Period(StrEnum):
    DAILY = "DAILY"
    MONTHLY = "MONTHLY"


@dataclass(frozen=True, slots=True)
class Use:
    """One allocation. `ended`: None where it still runs."""

    allocation: str
    task_type: str
    user: int
    username: str
    workspace: WorkspaceId | None
    workspace_name: str
    pool: str
    slots: int
    labels: Sequence[str]
    started: Instant
    ended: Instant | None


@dataclass(frozen=True, slots=True)
class Held:
    """A use, as far as it lies in what was asked for."""

    use: Use
    seconds: float


@dataclass(slots=True)
class Total:
    """Slot seconds of one period, which begins on `start`."""

    start: date
    seconds: float = 0.0
    by_user: dict[str, float] = field(default_factory=dict)
    by_pool: dict[str, float] = field(default_factory=dict)
    by_label: dict[str, float] = field(default_factory=dict)

    def add(self, use: Use, seconds: float) -> None:
        self.seconds += seconds
        for books, names in ((self.by_user, [use.username]), (self.by_pool, [use.pool]), (self.by_label, use.labels)):
            for name in names:
                books[name] = books.get(name, 0.0) + seconds


@dataclass(frozen=True, slots=True)
class Waited:
    """How long allocations that started on a day had waited on average."""

    day: date
    seconds: float


class Usage:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def between(self, after: Instant, before: Instant) -> list[Held]:
        """All allocations that ran then, by their start. Raises BadRequest."""
        if after > before:
            raise errors.BadRequest("timestampAfter: must not be after timestampBefore")
        now = self._clock.now()

        def read(connection: Connection) -> list[Held]:
            return [Held(use, overlap(use, after, before, now)) for use in _uses(connection, after, before)]

        return await self._database.read(read, is_long=True)

    async def totals(self, period: Period, first: date, last: date) -> list[Total]:
        """One for each day or month from the first to the last, up to today. Raises BadRequest."""
        now = self._clock.now()
        starts = list(_starts(period, first, min(last, _at(now).date())))

        def read(connection: Connection) -> list[Total]:
            if not starts:
                return []
            after, before = _instant(starts[0]), _instant(_next(period, starts[-1]))
            return totals(_uses(connection, after, before), period, starts, now)

        return await self._database.read(read, is_long=True)

    async def waits(self, pools: Sequence[str]) -> Mapping[str, Sequence[Waited]]:
        """Of each pool, for the days of the past month on which anything started there."""
        since = Instant(self._clock.now() - _QUEUE_DAYS * 86_400)
        columns = (ALLOCATIONS.c.pool, ALLOCATIONS.c.requested, ALLOCATIONS.c.started)
        query = select(*columns).where(ALLOCATIONS.c.started >= since, ALLOCATIONS.c.pool.in_(pools))

        def read(connection: Connection) -> Mapping[str, Sequence[Waited]]:
            found: dict[str, dict[date, list[float]]] = {pool: {} for pool in pools}
            for pool, requested, started in connection.execute(query):
                found[pool].setdefault(_at(started).date(), []).append(max(0.0, started - requested))
            return {
                pool: [Waited(day, sum(waits) / len(waits)) for day, waits in sorted(days.items())]
                for pool, days in found.items()
            }

        return await self._database.read(read, is_long=True)


def overlap(use: Use, after: float, before: float, now: float) -> float:
    """Seconds of the use that lie in between; none of them in the future."""
    end = min(before, now if use.ended is None else use.ended)
    return max(0.0, end - max(after, use.started))


def totals(uses: Iterable[Use], period: Period, starts: Sequence[date], now: float) -> list[Total]:
    found = {start: Total(start) for start in starts}
    for use in uses:
        if not use.slots:
            continue
        first = max(_start(period, _at(use.started).date()), starts[0])
        day = first
        while day in found:
            following = _next(period, day)
            seconds = overlap(use, _instant(day), _instant(following), now)
            if not seconds and day > first:
                break
            if seconds:
                found[day].add(use, seconds * use.slots)
            day = following
    return list(found.values())


# Days and months


def parse_day(period: Period, field: str, text: str) -> date:
    """As in 2026-01-31, or 2026-01 where months are asked for. Raises BadRequest."""
    form = "%Y-%m-%d" if period is Period.DAILY else "%Y-%m"
    try:
        return datetime.strptime(text, form).replace(tzinfo=UTC).date()
    except ValueError as error:
        example = "2026-01-31" if period is Period.DAILY else "2026-01"
        raise errors.BadRequest(f"{field}: must be as in {example}, found {text[:40]!r}") from error


def checked(period: Period, first: date, last: date) -> None:
    """Raises BadRequest."""
    if first > last:
        raise errors.BadRequest("startDate: must not be after endDate")
    days = (last - first).days + 1
    if (days if period is Period.DAILY else days / 28) > _MOST_PERIODS:
        raise errors.BadRequest(f"endDate: at most {_MOST_PERIODS} periods can be asked for at once")


def text(period: Period, start: date) -> str:
    return start.isoformat() if period is Period.DAILY else start.strftime("%Y-%m")


def _starts(period: Period, first: date, last: date) -> Iterator[date]:
    day = _start(period, first)
    while day <= last:
        yield day
        day = _next(period, day)


def _start(period: Period, day: date) -> date:
    return day if period is Period.DAILY else day.replace(day=1)


def _next(period: Period, day: date) -> date:
    if period is Period.DAILY:
        return date.fromordinal(day.toordinal() + 1)
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)


def _instant(day: date) -> Instant:
    return Instant(datetime.combine(day, time(), UTC).timestamp())


def _at(instant: float) -> datetime:
    return datetime.fromtimestamp(instant, UTC)


# Records


def _uses(connection: Connection, after: float, before: float) -> Iterator[Use]:
    table = ALLOCATIONS
    query = _query().where(
        table.c.started.is_not(None),
        table.c.started < before,
        or_(table.c.ended.is_(None), table.c.ended > after),
    )
    return map(_use, connection.execute(query.order_by(table.c.started, table.c.id)))


def _query() -> Select[tuple[object, ...]]:
    # Of each the few bytes that count: what a run was asked to be is a hundred times as long.
    held = [ALLOCATIONS.c[name] for name in ("id", "user_id", "pool", "slots", "started", "ended")]
    by = (TASKS.c.type, TASKS.c.config["labels"].label("labels"), TASKS.c.workspace_id)
    query: Select[tuple[object, ...]] = select(*held, *by, USERS.c.username, WORKSPACES.c.name.label("workspace"))
    return (
        query.join(TASKS, TASKS.c.id == ALLOCATIONS.c.task_id)
        .join(USERS, USERS.c.id == ALLOCATIONS.c.user_id)
        .outerjoin(WORKSPACES, WORKSPACES.c.id == TASKS.c.workspace_id)
    )


def _use(row: Row[tuple[object, ...]]) -> Use:
    labels = row.labels
    return Use(
        row.id,
        row.type,
        row.user_id,
        row.username,
        row.workspace_id,
        row.workspace or "",
        row.pool,
        row.slots,
        sorted({label for label in labels if isinstance(label, str)}) if isinstance(labels, list) else (),
        row.started,
        row.ended,
    )


def kind(task_type: str) -> str:
    """What reports call it."""
    return "training" if task_type == "TRIAL" else task_type.lower()
