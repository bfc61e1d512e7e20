"""Allocations in the records: functions of a connection."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from sqlalchemy import Connection, Row, delete, insert, select, update

from muster.accounts.callers import UserId
from muster.api import errors
from muster.api.meta import Instant
from muster.engines.protocol import AllocationId, Request
from muster.records.tables_tasks import ACCELERATORS, ALLOCATIONS, HEARTBEATS, TASKS
from muster.tasks.allocation_states import State
from muster.tasks.contract import ProxyPort


class Kept(msgspec.Struct, frozen=True):
    """What is kept of a launch: all but its secrets."""

    request: Request
    user: UserId
    proxies: tuple[ProxyPort, ...] = ()
    ports: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class Opened:
    """An allocation whose owner does not know yet how it ended. `is_readable`: else what was kept of it is lost, and
    what stands here is blank."""

    id: AllocationId
    task: str
    task_type: str
    kept: Kept
    state: State
    is_readable: bool = True


@dataclass(frozen=True, slots=True)
class Accelerators:
    """The devices that one container has found."""

    container: str
    node: str
    type: str
    uuids: Sequence[str]


@dataclass(frozen=True, slots=True)
class AllocationRow:
    """How an allocation fares, or fared."""

    id: AllocationId
    task: str
    pool: str
    slots: int
    phase: str
    is_ready: bool
    requested: Instant
    started: Instant | None
    ended: Instant | None
    exit_reason: str
    exit_error: str
    exit_code: int | None
    is_open: bool
    """Its owner does not know yet how it ended."""


def add(connection: Connection, kept: Kept, state: State, launched: str) -> None:
    """`launched`: `kept`, encoded. Raises AlreadyExists, and NotFound where it has no task."""
    request = kept.request
    if connection.scalar(select(ALLOCATIONS.c.id).where(ALLOCATIONS.c.id == state.id)) is not None:
        raise errors.AlreadyExists(f"allocation {state.id} exists already")
    if connection.scalar(select(TASKS.c.id).where(TASKS.c.id == request.task)) is None:
        raise errors.NotFound(f"task {request.task} not found")
    connection.execute(
        insert(ALLOCATIONS).values(
            id=state.id,
            task_id=request.task,
            user_id=kept.user,
            pool=request.pool,
            slots=request.slots,
            requested=state.requested_at,
            ports=dict(kept.ports),
            launch=launched,
            **_columns(state),
        )
    )


def save(connection: Connection, state: State) -> None:
    connection.execute(update(ALLOCATIONS).where(ALLOCATIONS.c.id == state.id).values(**_columns(state)))


def _columns(state: State) -> dict[str, object]:
    ended = state.ended
    return {
        "phase": state.phase.value,
        "is_ready": state.is_ready,
        "started": state.started_at,
        "ended": state.ended_at,
        "exit_reason": ended.reason if ended is not None else "",
        "exit_error": (ended.message or ended.failure) if ended is not None and ended.failure is not None else "",
        "exit_code": ended.exit_code if ended is not None else None,
        "proxy_address": state.proxy_address,
        "is_open": not state.is_reported,
        "state": msgspec.json.encode(state).decode(),
    }


def opened(connection: Connection) -> list[Opened]:
    query = (
        select(
            ALLOCATIONS.c.id,
            ALLOCATIONS.c.task_id,
            ALLOCATIONS.c.launch,
            ALLOCATIONS.c.state,
            ALLOCATIONS.c.user_id,
            TASKS.c.type,
        )
        .join(TASKS, TASKS.c.id == ALLOCATIONS.c.task_id)
        .where(ALLOCATIONS.c.is_open.is_(True))
        .order_by(ALLOCATIONS.c.requested, ALLOCATIONS.c.id)
    )
    return [_opened(row) for row in connection.execute(query)]


def _opened(row: Row[str, str, str, str, int, str]) -> Opened:
    """One that cannot be read must not keep the others from being restored."""
    try:
        kept = msgspec.json.decode(row.launch, type=Kept)
        state = msgspec.json.decode(row.state, type=State)
    except (msgspec.MsgspecError, ValueError):
        id = AllocationId(row.id)
        blank = Kept(Request(allocation=id, task=row.task_id, task_type=row.type, template={}), UserId(row.user_id))
        return Opened(id, row.task_id, row.type, blank, State(id=id), is_readable=False)
    return Opened(AllocationId(row.id), row.task_id, row.type, kept, state)


def was_closed(connection: Connection, id: AllocationId) -> bool | None:
    """Whether its owner knows how it ended; None where there is none of this name."""
    is_open = connection.scalar(select(ALLOCATIONS.c.is_open).where(ALLOCATIONS.c.id == id))
    return None if is_open is None else not is_open


# What others ask


def get(connection: Connection, id: str) -> AllocationRow:
    """Raises NotFound."""
    row = connection.execute(select(ALLOCATIONS).where(ALLOCATIONS.c.id == id)).one_or_none()
    if row is None:
        raise errors.NotFound(f"allocation {id} not found")
    return _row(row)


def of_tasks(connection: Connection, tasks: Iterable[str]) -> dict[str, list[AllocationRow]]:
    """By task, the oldest first."""
    wanted = list(tasks)
    found: dict[str, list[AllocationRow]] = {task: [] for task in wanted}
    query = select(ALLOCATIONS).where(ALLOCATIONS.c.task_id.in_(wanted))
    for row in connection.execute(query.order_by(ALLOCATIONS.c.requested, ALLOCATIONS.c.id)):
        found[row.task_id].append(_row(row))
    return found


def _row(row: Row[tuple[object, ...]]) -> AllocationRow:
    return AllocationRow(
        AllocationId(row.id),
        row.task_id,
        row.pool,
        row.slots,
        row.phase,
        row.is_ready,
        row.requested,
        row.started,
        row.ended,
        row.exit_reason,
        row.exit_error,
        row.exit_code,
        row.is_open,
    )


def workspace_of(connection: Connection, id: str) -> int | None:
    """Of the task that the allocation runs. Raises NotFound."""
    query = (
        select(TASKS.c.workspace_id)
        .join(ALLOCATIONS, ALLOCATIONS.c.task_id == TASKS.c.id)
        .where(ALLOCATIONS.c.id == id)
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        raise errors.NotFound(f"allocation {id} not found")
    found: int | None = row.workspace_id
    return found


# Devices


def set_accelerators(connection: Connection, id: AllocationId, found: Accelerators) -> None:
    """Instead of what this container has said before. Raises NotFound."""
    get(connection, id)
    connection.execute(
        delete(ACCELERATORS).where(
            ACCELERATORS.c.allocation_id == id, ACCELERATORS.c.container_id == found.container
        )
    )  # fmt: skip
    connection.execute(
        insert(ACCELERATORS).values(
            allocation_id=id,
            container_id=found.container,
            node_name=found.node,
            type=found.type,
            uuids=list(found.uuids),
        )
    )


def accelerators(connection: Connection, id: str) -> list[Accelerators]:
    query = select(ACCELERATORS).where(ACCELERATORS.c.allocation_id == id).order_by(ACCELERATORS.c.container_id)
    return [Accelerators(row.container_id, row.node_name, row.type, row.uuids) for row in connection.execute(query)]


# When the server was last alive


def beat(connection: Connection, name: str, at: Instant) -> None:
    changed = connection.execute(update(HEARTBEATS).where(HEARTBEATS.c.name == name).values(at=at))
    if not changed.rowcount:
        connection.execute(insert(HEARTBEATS).values(name=name, at=at))


def last_beat(connection: Connection, name: str) -> Instant | None:
    found = connection.scalar(select(HEARTBEATS.c.at).where(HEARTBEATS.c.name == name))
    return None if found is None else Instant(found)
