"""Webhooks and their deliveries in the records: functions of a connection."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Row, Select, delete, func, insert, select, update

from muster.accounts import workspaces
from muster.accounts.callers import WorkspaceId
from muster.api import errors
from muster.api.meta import Instant
from muster.api.raw import JSON
from muster.records.tables_tasks import TASKS
from muster.records.tables_webhooks import (
    WEBHOOK_DELIVERIES,
    WEBHOOK_LOG_MATCHES,
    WEBHOOK_LOG_SCANS,
    WEBHOOK_TRIGGERS,
    WEBHOOKS,
)
from muster.tasks import log_records
from muster.tasks.webhook_rules import (
    Format,
    Mode,
    NewWebhook,
    Trigger,
    TriggerId,
    TriggerType,
    Webhook,
    WebhookId,
)

MOST_WAITING: Final = 10_000
"""For one webhook. Whoever receives nothing for so long gets no more."""


@dataclass(frozen=True, slots=True)
class NewDelivery:
    webhook: WebhookId
    event: str
    event_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Delivery:
    id: int
    webhook: WebhookId
    url: str
    event: str
    event_type: str
    body: bytes
    created: Instant
    attempts: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Besides:
    """What need not be looked at: deliveries on their way, and webhooks that have enough to do."""

    deliveries: Collection[int] = ()
    webhooks: Collection[WebhookId] = ()

    def left_out(self, query: Select[tuple[object, ...]]) -> Select[tuple[object, ...]]:
        table = WEBHOOK_DELIVERIES
        query = query.where(table.c.is_dead.is_(False))
        if self.deliveries:
            query = query.where(table.c.id.not_in(self.deliveries))
        return query.where(table.c.webhook_id.not_in(self.webhooks)) if self.webhooks else query


# Webhooks


def get(connection: Connection, id: int) -> Webhook:
    """Raises NotFound."""
    row = connection.execute(select(WEBHOOKS).where(WEBHOOKS.c.id == id)).one_or_none()
    if row is None:
        raise not_found(id)
    return _webhooks(connection, [row])[0]


def listed(connection: Connection, visible: Collection[WorkspaceId] | None = None) -> list[Webhook]:
    """`visible`: only of these workspaces; None for all."""
    query = select(WEBHOOKS).order_by(WEBHOOKS.c.id)
    if visible is not None:
        query = query.where(WEBHOOKS.c.workspace_id.in_(visible))
    return _webhooks(connection, connection.execute(query).all())


def add(connection: Connection, wanted: NewWebhook, now: Instant) -> Webhook:
    """Raises AlreadyExists, NotFound."""
    if wanted.workspace is not None:
        workspaces.get(connection, wanted.workspace)
    taken = select(WEBHOOKS.c.id).where(
        WEBHOOKS.c.name == wanted.name, WEBHOOKS.c.workspace_id.is_not_distinct_from(wanted.workspace)
    )
    if connection.scalar(taken) is not None:
        raise errors.AlreadyExists(f"name: there is a webhook {wanted.name!r} already")
    values = {
        "name": wanted.name,
        "workspace_id": wanted.workspace,
        "url": wanted.url,
        "type": wanted.format.value,
        "mode": wanted.mode.value,
        "created": now,
    }
    id = connection.scalar(insert(WEBHOOKS).values(values).returning(WEBHOOKS.c.id))
    assert id is not None
    for trigger in wanted.triggers:
        row = {"webhook_id": id, "type": trigger.type.value, "condition": trigger.condition}
        connection.execute(insert(WEBHOOK_TRIGGERS).values(row))
    _begin_or_end_scans(connection)
    return get(connection, id)


def set_url(connection: Connection, id: WebhookId, url: str) -> None:
    connection.execute(update(WEBHOOKS).where(WEBHOOKS.c.id == id).values(url=url))


def remove(connection: Connection, id: WebhookId) -> None:
    """With all that it has still to deliver."""
    connection.execute(delete(WEBHOOKS).where(WEBHOOKS.c.id == id))
    _begin_or_end_scans(connection)


def not_found(id: int) -> errors.NotFound:
    return errors.NotFound(f"webhook {id} not found")


def _webhooks(connection: Connection, rows: Sequence[Row[tuple[object, ...]]]) -> list[Webhook]:
    query = select(WEBHOOK_TRIGGERS).where(WEBHOOK_TRIGGERS.c.webhook_id.in_([row.id for row in rows]))
    triggers: dict[int, list[Trigger]] = {}
    for row in connection.execute(query.order_by(WEBHOOK_TRIGGERS.c.id)):
        triggers.setdefault(row.webhook_id, []).append(_trigger(row))
    return [
        Webhook(
            WebhookId(row.id),
            row.name,
            row.url,
            Format(row.type),
            Mode(row.mode),
            triggers.get(row.id, []),
            None if row.workspace_id is None else WorkspaceId(row.workspace_id),
        )
        for row in rows
    ]


def _trigger(row: Row[tuple[object, ...]]) -> Trigger:
    condition = row.condition
    return Trigger(TriggerType(row.type), condition.get("state", ""), condition.get("regex", ""), id=TriggerId(row.id))


# Deliveries


def enqueue(connection: Connection, wanted: Iterable[NewDelivery], now: Instant) -> list[WebhookId]:
    """Returns those whose queue is full, and which therefore will not hear of it."""
    full: list[WebhookId] = []
    table = WEBHOOK_DELIVERIES
    for each in wanted:
        waiting = select(func.count()).where(table.c.webhook_id == each.webhook, table.c.is_dead.is_(False))
        if (connection.scalar(waiting) or 0) >= MOST_WAITING:
            full.append(each.webhook)
            continue
        values = {
            "webhook_id": each.webhook,
            "event_id": each.event,
            "event_type": each.event_type,
            "body": each.body,
            "created": now,
            "due": now,
        }
        connection.execute(insert(table).values(values))
    return full


def is_first_match(connection: Connection, task: str, trigger: TriggerId) -> bool:
    """Notes that the pattern was found in the task's log. False where that was known."""
    table = WEBHOOK_LOG_MATCHES
    known = select(table.c.task_id).where(table.c.task_id == task, table.c.trigger_id == trigger)
    if connection.scalar(known) is not None:
        return False
    connection.execute(insert(table).values(task_id=task, trigger_id=trigger))
    return True


# How far logs were looked through

_SCAN: Final = 1


def _begin_or_end_scans(connection: Connection) -> None:
    """With the first pattern it begins at what is written from now on; with the last one it ends."""
    patterns = select(func.count()).where(WEBHOOK_TRIGGERS.c.type == TriggerType.TASK_LOG.value)
    is_wanted = bool(connection.scalar(patterns))
    if not is_wanted:
        connection.execute(delete(WEBHOOK_LOG_SCANS))
    elif scanned_until(connection) is None:
        connection.execute(insert(WEBHOOK_LOG_SCANS).values(id=_SCAN, chunk=log_records.newest(connection)))


def scanned_until(connection: Connection) -> int | None:
    """The last chunk that was looked through; None where there is no pattern to look for."""
    found: int | None = connection.scalar(select(WEBHOOK_LOG_SCANS.c.chunk))
    return found


def scanned(connection: Connection, start: int, end: int) -> None:
    """Raises Conflict where somebody else has looked on from there."""
    table = WEBHOOK_LOG_SCANS
    if not connection.execute(update(table).where(table.c.chunk == start).values(chunk=end)).rowcount:
        raise errors.Conflict(f"the chunks of logs after {start} were looked through by another server")


# What is to be sent


def due(connection: Connection, now: Instant, most: int, besides: Besides) -> list[Delivery]:
    """What should be sent by now, the longest overdue first."""
    table = WEBHOOK_DELIVERIES
    query = besides.left_out(_deliveries()).where(table.c.due <= now)
    return [_delivery(row) for row in connection.execute(query.order_by(table.c.due, table.c.id).limit(most))]


def next_due(connection: Connection, besides: Besides) -> Instant | None:
    """When there is something to send next."""
    query: Select[tuple[object, ...]] = select(func.min(WEBHOOK_DELIVERIES.c.due))
    found: Instant | None = connection.execute(besides.left_out(query)).scalar_one()  # type: ignore[assignment]
    return found


def delivered(connection: Connection, id: int) -> None:
    connection.execute(delete(WEBHOOK_DELIVERIES).where(WEBHOOK_DELIVERIES.c.id == id))


def failed(connection: Connection, id: int, error: str, again_at: Instant | None) -> None:
    """`again_at`: None where it is given up."""
    table = WEBHOOK_DELIVERIES
    values: dict[str, object] = {"attempts": table.c.attempts + 1, "error": error}
    values |= {"is_dead": True} if again_at is None else {"due": again_at}
    connection.execute(update(table).where(table.c.id == id).values(values))


def dead_letters(connection: Connection, webhook: WebhookId, most: int) -> list[Delivery]:
    """The latest first."""
    table = WEBHOOK_DELIVERIES
    query = _deliveries().where(table.c.webhook_id == webhook, table.c.is_dead.is_(True))
    return [_delivery(row) for row in connection.execute(query.order_by(table.c.id.desc()).limit(most))]


def revive(connection: Connection, webhook: WebhookId, now: Instant) -> int:
    """All its dead letters wait again, as if they were new. How many."""
    table = WEBHOOK_DELIVERIES
    query = update(table).where(table.c.webhook_id == webhook, table.c.is_dead.is_(True))
    return connection.execute(query.values(is_dead=False, attempts=0, due=now)).rowcount


def bury(connection: Connection, before: Instant) -> int:
    """Forgets dead letters of events that old; and what was found in logs of tasks that are gone."""
    table, matches = WEBHOOK_DELIVERIES, WEBHOOK_LOG_MATCHES
    connection.execute(delete(matches).where(matches.c.task_id.not_in(select(TASKS.c.id))))
    return connection.execute(delete(table).where(table.c.is_dead.is_(True), table.c.created < before)).rowcount


def _deliveries() -> Select[tuple[object, ...]]:
    table = WEBHOOK_DELIVERIES
    query: Select[tuple[object, ...]] = select(table, WEBHOOKS.c.url)
    return query.join(WEBHOOKS, WEBHOOKS.c.id == table.c.webhook_id)


def _delivery(row: Row[tuple[object, ...]]) -> Delivery:
    return Delivery(
        row.id,
        WebhookId(row.webhook_id),
        row.url,
        row.event_id,
        row.event_type,
        row.body,
        row.created,
        row.attempts,
        row.error,
    )


# Whom events are about


@dataclass(frozen=True, slots=True)
class TaskFacts:
    type: str
    workspace: WorkspaceId | None
    workspace_name: str
    name: str
    config: Mapping[str, JSON] | None


def task(connection: Connection, id: str) -> TaskFacts | None:
    table = TASKS
    query = select(table.c.type, table.c.workspace_id, table.c.description, table.c.config).where(table.c.id == id)
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    config = row.config if isinstance(row.config, dict) else None
    if row.workspace_id is None:
        return TaskFacts(row.type, None, "", row.description, config)
    workspace = workspaces.get(connection, WorkspaceId(row.workspace_id))
    return TaskFacts(row.type, workspace.id, workspace.name, row.description, config)
