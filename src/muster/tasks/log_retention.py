"""How long task logs are kept: so many days after the task's end, for all tasks or as one of them was told."""

from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import Connection, delete, func, insert, or_, select, update

from muster.api import errors
from muster.records import Database
from muster.records.tables_logs import TASK_LOG_CHUNKS as CHUNKS
from muster.records.tables_logs import TASK_LOGS as LOGS
from muster.records.tables_tasks import TASKS
from muster.runtime.clock import Clock

FOREVER: Final = -1
MOST_DAYS: Final = 32_767
_EVERY_SECONDS: Final = 3600.0
_DAY_SECONDS: Final = 86_400.0
_TASKS_AT_ONCE: Final = 500
_CHUNKS_AT_ONCE: Final = 200
"""One change deletes no more: others who write do not wait long."""


class Retention:
    """`days`: for tasks that were not told otherwise; -1 for ever. `on_removed` hears whose log is gone."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        days: int = FOREVER,
        on_removed: Callable[[str], None] | None = None,
    ) -> None:
        self._database = database
        self._clock = clock
        self.days = checked("days", days)
        self._on_removed = on_removed

    async def keep(self, tasks: Sequence[str], days: int | None) -> None:
        """None: as for all. Raises BadRequest."""
        if days is not None:
            checked("numDays", days)
        now = round(self._clock.now() * 1_000_000)
        await self._database.write(lambda connection: keep(connection, tasks, days, now))

    async def run(self) -> None:
        """For ever."""
        while True:
            await self.clean()
            await self._clock.sleep(_EVERY_SECONDS)

    async def clean(self) -> int:
        """How many lines are gone."""
        now, removed = self._clock.now(), 0
        while expired := await self._database.read(
            lambda connection: _expired(connection, self.days, now), is_long=True
        ):
            for task in expired:
                removed += await self.remove(task)
        return removed

    async def remove(self, task: str) -> int:
        """All that a task has written. How many lines that was."""
        removed = 0
        while lines := await self._database.write(lambda connection: _remove_some(connection, task)):
            removed += lines
        if self._on_removed is not None:
            self._on_removed(task)
        return removed


def checked(field: str, days: int) -> int:
    if not FOREVER <= days <= MOST_DAYS:
        raise errors.BadRequest(f"{field}: expected -1 (for ever) or up to {MOST_DAYS} days, found {days}")
    return days


def keep(connection: Connection, tasks: Sequence[str], days: int | None, now: int) -> None:
    """`now`: in microseconds."""
    for task in tasks:
        changed = connection.execute(update(LOGS).where(LOGS.c.task_id == task).values(retention_days=days))
        if not changed.rowcount:
            row = {"task_id": task, "newest": now, "lines": 0, "retention_days": days}
            connection.execute(insert(LOGS).values(row))


def _expired(connection: Connection, default: int, now: float) -> list[str]:
    """Logs of tasks that ended, and wrote, longer ago than they are kept; and of tasks that are gone."""
    days = func.coalesce(LOGS.c.retention_days, default)
    since = now - days * _DAY_SECONDS
    is_old = (days >= 0) & (TASKS.c.ended <= since) & (LOGS.c.newest <= since * 1_000_000)
    query = (
        select(LOGS.c.task_id)
        .outerjoin(TASKS, TASKS.c.id == LOGS.c.task_id)
        .where(or_(TASKS.c.id.is_(None), is_old))
        .limit(_TASKS_AT_ONCE)
    )
    return list(connection.scalars(query))


def _remove_some(connection: Connection, task: str) -> int:
    """How many lines; 0 when nothing is left."""
    some = select(CHUNKS.c.id).where(CHUNKS.c.task_id == task).order_by(CHUNKS.c.id).limit(_CHUNKS_AT_ONCE)
    gone = connection.scalars(
        delete(CHUNKS).where(CHUNKS.c.id.in_(some.scalar_subquery())).returning(CHUNKS.c.lines)
    ).all()
    if not gone:
        connection.execute(delete(LOGS).where(LOGS.c.task_id == task))
    return sum(gone)
