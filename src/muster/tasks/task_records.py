"""Tasks in the records: functions of a connection."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, func, insert, or_, select, update

from muster.accounts.callers import UserId, WorkspaceId
from muster.api import errors
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.records.paging import WHOLE, Page, Window, select_page
from muster.records.tables_accounts import USERS
from muster.records.tables_tasks import ALLOCATIONS, JOBS, TASKS
from muster.tasks import allocation_records
from muster.tasks.allocation_records import AllocationRow


class Order(StrEnum):
    STARTED = "created"
    ID = "id"
    DESCRIPTION = "description"
    WORKSPACE = "workspace_id"


@dataclass(frozen=True, slots=True)
class NewTask:
    """`snapshot`: what its kind must know of it later."""

    id: str
    type: str
    job: str
    user: UserId
    workspace: WorkspaceId
    description: str
    config: Document
    snapshot: Document
    parent: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """`allocations`: its runs, the oldest first."""

    id: str
    type: str
    job: str
    user: UserId
    username: str
    display_name: str
    workspace: WorkspaceId
    description: str
    config: Document
    snapshot: Document
    parent: str
    state: str
    created: Instant
    ended: Instant | None
    allocations: Sequence[AllocationRow] = ()

    @property
    def allocation(self) -> AllocationRow | None:
        """The latest."""
        return self.allocations[-1] if self.allocations else None


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """`visible`: the workspaces that may be seen; None for all. `ended_after`: those that ended before are left
    out. `is_unfinished`: and so are all that have ended."""

    types: Sequence[str] = ()
    usernames: Sequence[str] = ()
    users: Sequence[int] = ()
    workspace: int = 0
    visible: Collection[WorkspaceId] | None = None
    ended_after: Instant | None = None
    is_unfinished: bool = False
    order: Order = Order.STARTED
    is_descending: bool = False
    window: Window = field(default=WHOLE)


def add(connection: Connection, new: NewTask, at: Instant) -> None:
    connection.execute(insert(JOBS).values(id=new.job, type=new.type, user_id=new.user, created=at))
    connection.execute(
        insert(TASKS).values(
            id=new.id,
            type=new.type,
            job_id=new.job,
            user_id=new.user,
            workspace_id=new.workspace,
            parent_id=new.parent,
            description=new.description,
            state=new.state,
            config=new.config,
            snapshot=new.snapshot,
            created=at,
        )
    )


def get(connection: Connection, task: str, types: Sequence[str] = ()) -> Task:
    """Raises NotFound, also where it is of another type."""
    row = connection.execute(_query().where(TASKS.c.id == task)).one_or_none()
    if row is None or (types and row.type not in types):
        raise not_found(task)
    return _task(row, allocation_records.of_tasks(connection, [task]).get(task, ()))


def not_found(task: str) -> errors.NotFound:
    return errors.NotFound(f"task {task[:80]!r} not found")


def listed(connection: Connection, chosen: TaskFilter) -> Page[Task]:
    query = _query()
    if chosen.types:
        query = query.where(TASKS.c.type.in_(chosen.types))
    if chosen.usernames or chosen.users:
        named = USERS.c.username.in_([name.lower() for name in chosen.usernames])
        query = query.where(or_(named, TASKS.c.user_id.in_(chosen.users)))
    if chosen.workspace:
        query = query.where(TASKS.c.workspace_id == chosen.workspace)
    if chosen.visible is not None:
        query = query.where(TASKS.c.workspace_id.in_(chosen.visible))
    if chosen.ended_after is not None:
        query = query.where(or_(TASKS.c.ended.is_(None), TASKS.c.ended > chosen.ended_after))
    if chosen.is_unfinished:
        query = query.where(TASKS.c.ended.is_(None))
    columns: tuple[ColumnElement[object], ...] = (TASKS.c[chosen.order.value], TASKS.c.id)
    ordered = [column.desc() for column in columns] if chosen.is_descending else columns
    page = select_page(connection, query.order_by(*ordered), chosen.window)
    runs = allocation_records.of_tasks(connection, [row.id for row in page.items])
    return Page(tuple(_task(row, runs.get(row.id, ())) for row in page.items), page.start, page.total)


def unfinished(connection: Connection, types: Iterable[str]) -> list[Task]:
    """All that have not ended, the oldest first."""
    query = _query().where(TASKS.c.ended.is_(None), TASKS.c.type.in_(list(types))).order_by(TASKS.c.created)
    rows = connection.execute(query).all()
    runs = allocation_records.of_tasks(connection, [row.id for row in rows])
    return [_task(row, runs.get(row.id, ())) for row in rows]


def ids(connection: Connection, type: str) -> list[str]:
    return list(connection.scalars(select(TASKS.c.id).where(TASKS.c.type == type)))


def children(connection: Connection, task: str) -> list[str]:
    return list(connection.scalars(select(TASKS.c.id).where(TASKS.c.parent_id == task)))


def change(connection: Connection, task: str, values: Mapping[str, object]) -> None:
    connection.execute(update(TASKS).where(TASKS.c.id == task).values(dict(values)))


def move(connection: Connection, task: str, before: Collection[str], after: str) -> bool:
    """From one of these states to another. False where it is in none of them, or has ended otherwise."""
    query = update(TASKS).where(TASKS.c.id == task, TASKS.c.state.in_(list(before)))
    return bool(connection.execute(query.values(state=after)).rowcount)


def remove(connection: Connection, task: str) -> None:
    """One that never came to be, with all that was recorded of it."""
    job = connection.scalar(select(TASKS.c.job_id).where(TASKS.c.id == task))
    connection.execute(delete(ALLOCATIONS).where(ALLOCATIONS.c.task_id == task))
    connection.execute(delete(TASKS).where(TASKS.c.id == task))
    connection.execute(delete(JOBS).where(JOBS.c.id == job))


def count(connection: Connection, workspace: WorkspaceId) -> int:
    """Of those that have not ended."""
    query = select(func.count()).where(TASKS.c.workspace_id == workspace, TASKS.c.ended.is_(None))
    return connection.scalar(query) or 0


def _query() -> Select[tuple[object, ...]]:
    return select(TASKS, USERS.c.username, USERS.c.display_name).join(USERS, USERS.c.id == TASKS.c.user_id)


def _task(row: Row[tuple[object, ...]], runs: Sequence[AllocationRow]) -> Task:
    return Task(
        id=row.id,
        type=row.type,
        job=row.job_id or "",
        user=UserId(row.user_id),
        username=row.username,
        display_name=row.display_name,
        workspace=WorkspaceId(row.workspace_id or 0),
        description=row.description,
        config=row.config or {},
        snapshot=row.snapshot or {},
        parent=row.parent_id,
        state=row.state,
        created=Instant(row.created),
        ended=None if row.ended is None else Instant(row.ended),
        allocations=runs,
    )
