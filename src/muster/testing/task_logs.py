"""Task logs over fresh records, with tasks to write them, for tests."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import insert, update

from muster.accounts.service import UNCATEGORIZED
from muster.records import Database
from muster.records.tables_tasks import TASKS
from muster.runtime.clock import SystemClock
from muster.tasks.log_lines import Level, Line, Origin, Piece, Stored
from muster.tasks.logs import Query, TaskLogs
from muster.testing import accounts
from muster.testing.accounts import ADMIN, Ground

START = 1_700_000_000_000_000
"""The time of the first line, in microseconds."""
ORIGIN = Origin("task.1", "container-1", "node-1", "task")


@dataclass(frozen=True)
class Logged:
    """A ground with the logs of its tasks. Time is real, since followers wait in it."""

    ground: Ground
    logs: TaskLogs

    @property
    def database(self) -> Database:
        return self.ground.database

    async def task(self, task: str = "task", workspace: int = UNCATEGORIZED) -> str:
        row = {
            "id": task, "type": "COMMAND", "user_id": ADMIN.caller.user, "workspace_id": workspace, "created": 0.0,
        }  # fmt: skip
        await self.database.write(lambda connection: connection.execute(insert(TASKS).values(row)))
        return task

    async def end(self, task: str, at: float = 1.0) -> None:
        change = update(TASKS).where(TASKS.c.id == task).values(ended=at)
        await self.database.write(lambda connection: connection.execute(change))
        await self.logs.ended(task)

    async def write(self, task: str, *texts: str, origin: Origin = ORIGIN, start: int = START) -> None:
        await self.logs.append(task, [Piece(origin, lines(*texts, start=start))])

    async def texts(self, query: Query) -> list[str]:
        found: list[str] = []
        async for sent in self.logs.read(query, text_of):
            found += sent.decode().split("\x1f")[:-1]
        return found


def lines(*texts: str, start: int = START, level: Level = Level.INFO, rank: int | None = None) -> Sequence[Line]:
    """A second between one and the next."""
    return [Line(start + place * 1_000_000, text, level, rank, "stdout") for place, text in enumerate(texts)]


def text_of(stored: Stored) -> bytes:
    return f"{stored.line.text}\x1f".encode()


@asynccontextmanager
async def logged(folder: Path) -> AsyncIterator[Logged]:
    async with accounts.ground(folder) as ground, TaskLogs(ground.database, SystemClock()) as logs:
        yield Logged(ground, logs)
