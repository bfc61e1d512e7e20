"""Models and their versions in the records: functions of a connection."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from sqlalchemy import ColumnElement, Connection, Row, Select, Text, cast, func, or_, select, update

from muster.accounts import names, workspaces
from muster.accounts.callers import UserId, WorkspaceId
from muster.api import errors, raw
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.experiments import checkpoint_records
from muster.experiments.checkpoint_records import Checkpoint
from muster.records.paging import WHOLE, Page, Window, select_page
from muster.records.tables_accounts import USERS, WORKSPACES
from muster.records.tables_experiments import MODEL_VERSIONS, MODELS

_LONGEST: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Model:
    id: int
    name: str
    workspace: WorkspaceId
    user: UserId
    username: str
    description: str
    notes: str
    labels: Sequence[str]
    metadata: Document
    is_archived: bool
    version_count: int
    created: Instant
    modified: Instant


@dataclass(frozen=True, slots=True)
class Version:
    id: int
    number: int
    model: Model
    checkpoint: Checkpoint
    user: UserId
    username: str
    name: str
    comment: str
    notes: str
    labels: Sequence[str]
    metadata: Document
    created: Instant
    modified: Instant


@dataclass(frozen=True, slots=True)
class Patch:
    """Of a model or a version: None leaves it as it is. `comment`: of a version; `description`, `workspace`: of a
    model."""

    name: str | None = None
    description: str | None = None
    comment: str | None = None
    notes: str | None = None
    labels: Sequence[str] | None = None
    metadata: Document | None = None
    workspace: WorkspaceId | None = None

    def values(self) -> dict[str, object]:
        """By column. Raises BadRequest."""
        found: dict[str, object] = {}
        texts = {"name": self.name, "description": self.description, "comment": self.comment, "notes": self.notes}
        for column, text in texts.items():
            if text is not None:
                found[column] = names.checked_text(column, text, longest=_LONGEST)
        if self.labels is not None:
            found["labels"] = [names.checked("labels", label) for label in dict.fromkeys(self.labels)]
        if self.metadata is not None:
            names.checked_text("metadata", raw.encode(self.metadata).decode(), longest=_LONGEST)
            found["metadata"] = self.metadata
        if self.workspace is not None:
            found["workspace_id"] = self.workspace
        return found


class ModelOrder(StrEnum):
    NAME = "name"
    DESCRIPTION = "description"
    CREATED = "created"
    MODIFIED = "modified"
    VERSIONS = "version_count"
    WORKSPACE = "workspace_name"


@dataclass(frozen=True, slots=True)
class ModelFilter:
    """`name`, `description`: parts of them, in any case. `visible`: the workspaces that may be seen; None for all."""

    id: int = 0
    name: str = ""
    description: str = ""
    labels: Sequence[str] = ()
    usernames: Sequence[str] = ()
    users: Sequence[int] = ()
    workspaces: Sequence[int] = ()
    workspace_names: Sequence[str] = ()
    is_archived: bool | None = None
    visible: Collection[WorkspaceId] | None = None
    order: ModelOrder = ModelOrder.CREATED
    is_descending: bool = False
    window: Window = field(default=WHOLE)


def not_found(name: str) -> errors.NotFound:
    return errors.NotFound(f"model {name[:80]!r} not found")


def must_be_free(connection: Connection, name: str) -> None:
    """Raises BadRequest, AlreadyExists."""
    if name.isdigit():
        raise errors.BadRequest(f"name: {name[:80]!r} must not be a number: models can be named by theirs")
    if connection.scalar(select(MODELS.c.id).where(MODELS.c.name == name)) is not None:
        raise errors.AlreadyExists(f"a model named {name!r} exists already")


def must_take(connection: Connection, workspace: WorkspaceId) -> None:
    """Raises BadRequest, NotFound."""
    found = workspaces.get(connection, workspace)
    if found.is_archived or found.state:
        raise errors.BadRequest(f"workspaceId: workspace {found.name!r} is archived or being deleted")


def changeable(connection: Connection, name: str) -> Model:
    """Raises NotFound, Conflict."""
    found = get(connection, name)
    if found.is_archived:
        raise errors.Conflict(f"model {found.name!r} is archived: unarchive it first")
    return found


def change(connection: Connection, model: Model, values: Mapping[str, object]) -> None:
    connection.execute(update(MODELS).where(MODELS.c.id == model.id).values(dict(values)))


def get(connection: Connection, name: str) -> Model:
    """By its name, or by its number. Raises NotFound."""
    by = MODELS.c.id == int(name) if name.isdigit() else MODELS.c.name == name
    row = connection.execute(_query().where(by)).one_or_none()
    if row is None:
        raise not_found(name)
    return told(row)


def _query() -> Select[tuple[object, ...]]:
    count = select(func.count()).where(MODEL_VERSIONS.c.model_id == MODELS.c.id).correlate(MODELS).scalar_subquery()
    return (
        select(MODELS, USERS.c.username, WORKSPACES.c.name.label("workspace_name"), count.label("version_count"))
        .join(USERS, USERS.c.id == MODELS.c.user_id)
        .join(WORKSPACES, WORKSPACES.c.id == MODELS.c.workspace_id)
    )


def listed(connection: Connection, chosen: ModelFilter) -> Page[Model]:
    query = _query()
    if chosen.id:
        query = query.where(MODELS.c.id == chosen.id)
    if chosen.name:
        query = query.where(MODELS.c.name.icontains(chosen.name, autoescape=True))
    if chosen.description:
        query = query.where(MODELS.c.description.icontains(chosen.description, autoescape=True))
    if chosen.usernames or chosen.users:
        query = query.where(or_(USERS.c.username.in_(chosen.usernames), MODELS.c.user_id.in_(chosen.users)))
    if chosen.workspaces:
        query = query.where(MODELS.c.workspace_id.in_(chosen.workspaces))
    if chosen.workspace_names:
        query = query.where(WORKSPACES.c.name.in_(chosen.workspace_names))
    if chosen.is_archived is not None:
        query = query.where(MODELS.c.is_archived == chosen.is_archived)
    if chosen.visible is not None:
        query = query.where(MODELS.c.workspace_id.in_(chosen.visible))
    for label in chosen.labels:
        query = query.where(_has_label(label))
    column = query.selected_columns[chosen.order.value]
    first = func.lower(column) if chosen.order in (ModelOrder.NAME, ModelOrder.DESCRIPTION) else column
    ordered = (first.desc(), MODELS.c.id.desc()) if chosen.is_descending else (first, MODELS.c.id)
    page = select_page(connection, query.order_by(*ordered), chosen.window)
    return Page(tuple(map(told, page.items)), page.start, page.total)


def _has_label(label: str) -> ColumnElement[bool]:
    """As the records have it, in quotes."""
    return cast(MODELS.c.labels, Text).contains(json.dumps(label), autoescape=True)


def told(row: Row[tuple[object, ...]]) -> Model:
    return Model(
        id=row.id,
        name=row.name,
        workspace=WorkspaceId(row.workspace_id),
        user=UserId(row.user_id),
        username=row.username,
        description=row.description,
        notes=row.notes,
        labels=tuple(row.labels),
        metadata=row.metadata,
        is_archived=row.is_archived,
        version_count=row.version_count,
        created=Instant(row.created),
        modified=Instant(row.modified),
    )


# Versions


def versions() -> Select[tuple[object, ...]]:
    return select(MODEL_VERSIONS, USERS.c.username).join(USERS, USERS.c.id == MODEL_VERSIONS.c.user_id)


def version(connection: Connection, model: Model, number: int) -> Version:
    """Raises NotFound."""
    chosen = versions().where(MODEL_VERSIONS.c.model_id == model.id, MODEL_VERSIONS.c.version == number)
    row = connection.execute(chosen).one_or_none()
    if row is None:
        raise errors.NotFound(f"model {model.name!r} has no version {number}")
    return told_version(connection, model, row)


def told_version(connection: Connection, model: Model, row: Row[tuple[object, ...]]) -> Version:
    return Version(
        id=row.id,
        number=row.version,
        model=model,
        checkpoint=checkpoint_records.get(connection, row.checkpoint_uuid),
        user=UserId(row.user_id),
        username=row.username,
        name=row.name,
        comment=row.comment,
        notes=row.notes,
        labels=tuple(row.labels),
        metadata=row.metadata,
        created=Instant(row.created),
        modified=Instant(row.modified),
    )
