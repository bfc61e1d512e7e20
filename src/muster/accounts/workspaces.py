"""Workspaces: where projects, tasks, templates and rights are. The first one is there for all that name none."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, func, insert, select, update

from muster.accounts import names, roles, users
from muster.accounts.audit import By, Deed, note
from muster.accounts.authorizing import Authorizer, not_found
from muster.accounts.callers import UserId, WorkspaceId
from muster.accounts.permissions import BY_NAME
from muster.accounts.roles import Assignment
from muster.accounts.users import AgentUserGroup
from muster.api import errors, raw
from muster.api.meta import Instant
from muster.api.raw import JSON, Document
from muster.records import Database
from muster.records.paging import WHOLE, Page, Window, select_page
from muster.records.tables_accounts import PROJECTS, USERS, WORKSPACE_NAMESPACES, WORKSPACE_PINS, WORKSPACES
from muster.records.tables_experiments import EXPERIMENTS
from muster.runtime.clock import Clock

HIDDEN: Final = "********"
_SECRETS: Final = frozenset({"access_key", "secret_key", "connection_string", "credential"})
_STORAGES: Final = ("shared_fs", "directory", "s3", "gcs", "azure")


class State(StrEnum):
    """Of workspaces and projects."""

    PRESENT = ""
    DELETING = "DELETING"
    DELETE_FAILED = "DELETE_FAILED"


@dataclass(frozen=True, slots=True)
class Workspace:
    id: WorkspaceId
    name: str
    user: UserId
    username: str
    is_archived: bool
    is_immutable: bool
    state: State
    error_message: str
    agent: AgentUserGroup | None
    checkpoint_storage: Document | None
    """With its secrets: see `without_secrets`."""
    default_compute_pool: str
    default_aux_pool: str
    projects: int
    experiments: int
    pinned: Instant | None
    """By whoever asks."""
    made_namespace: str
    """The namespace that was made for it, if one was."""


@dataclass(frozen=True, slots=True)
class WorkspacePatch:
    """None leaves it as it is."""

    name: str | None = None
    agent: AgentUserGroup | None = None
    checkpoint_storage: Mapping[str, JSON] | None = None
    default_compute_pool: str | None = None
    default_aux_pool: str | None = None


@dataclass(frozen=True, slots=True)
class WorkspaceFilter:
    """`name`: the whole name, in any case; `exact_name`: as it is written. `visible`: None for all."""

    name: str = ""
    exact_name: str = ""
    usernames: Sequence[str] = ()
    users: Sequence[int] = ()
    is_archived: bool | None = None
    is_pinned: bool | None = None
    visible: Collection[WorkspaceId] | None = None


class Workspaces:
    def __init__(self, database: Database, clock: Clock, authorizer: Authorizer) -> None:
        self._database = database
        self._clock = clock
        self._authorizer = authorizer

    async def get(self, workspace: int, viewer: int = 0) -> Workspace:
        """Raises NotFound."""
        return await self._database.read(lambda connection: get(connection, workspace, viewer))

    async def list(
        self,
        viewer: UserId,
        chosen: WorkspaceFilter,
        *,
        by_name: bool = False,
        descending: bool = False,
        window: Window = WHOLE,
    ) -> Page[Workspace]:
        def read(connection: Connection) -> Page[Workspace]:
            first = func.lower(WORKSPACES.c.name) if by_name else WORKSPACES.c.id
            ordered = (first.desc(), WORKSPACES.c.id.desc()) if descending else (first, WORKSPACES.c.id)
            page = select_page(connection, _chosen(viewer, chosen).order_by(*ordered), window)
            return Page(tuple(map(_workspace, page.items)), page.start, page.total)

        return await self._database.read(read)

    async def create(self, by: By, wanted: WorkspacePatch) -> Workspace:
        """Whoever makes it is its administrator. Raises AlreadyExists, BadRequest."""

        def change(connection: Connection) -> Workspace:
            now = self._clock.now()
            made = insert_workspace(connection, wanted, by.caller.user, now)
            admin = Assignment(BY_NAME["WorkspaceAdmin"].id, by.caller.user, workspace=made)
            roles.assign(connection, admin)
            note(connection, now, by, Deed("workspace.create", wanted.name or ""))
            return get(connection, made, by.caller.user)

        made = await self._database.write(change)
        self._authorizer.forget()
        return made

    async def patch(self, by: By, workspace: int, wanted: WorkspacePatch) -> Workspace:
        """Raises NotFound, AlreadyExists, BadRequest."""

        def change(connection: Connection) -> Workspace:
            found = get(connection, workspace)
            must_be_mutable(found)
            if found.is_archived:
                raise errors.BadRequest(f"workspace {found.name!r} is archived: unarchive it to change it")
            values = _columns(connection, wanted, found)
            if values:
                connection.execute(update(WORKSPACES).where(WORKSPACES.c.id == workspace).values(values))
            deed = Deed("workspace.change", found.name, f"fields {', '.join(sorted(values))}")
            note(connection, self._clock.now(), by, deed)
            return get(connection, workspace, by.caller.user)

        return await self._database.write(change)

    async def archive(self, by: By, workspace: int, *, archived: bool) -> None:
        """With its projects. Raises NotFound, BadRequest."""

        def change(connection: Connection) -> None:
            found = get(connection, workspace)
            must_be_mutable(found)
            connection.execute(update(WORKSPACES).where(WORKSPACES.c.id == workspace).values(archived=archived))
            connection.execute(update(PROJECTS).where(PROJECTS.c.workspace_id == workspace).values(archived=archived))
            action = "workspace.archive" if archived else "workspace.unarchive"
            note(connection, self._clock.now(), by, Deed(action, found.name))

        await self._database.write(change)

    async def pin(self, workspace: int, user: UserId, *, pinned: bool) -> None:
        """For this user alone. Raises NotFound."""

        def change(connection: Connection) -> None:
            get(connection, workspace)
            is_it = (WORKSPACE_PINS.c.user_id == user) & (WORKSPACE_PINS.c.workspace_id == workspace)
            connection.execute(delete(WORKSPACE_PINS).where(is_it))
            if pinned:
                values = {"user_id": user, "workspace_id": workspace, "pinned": self._clock.now()}
                connection.execute(insert(WORKSPACE_PINS).values(values))

        await self._database.write(change)


def get(connection: Connection, workspace: int, viewer: int = 0) -> Workspace:
    """Raises NotFound."""
    row = connection.execute(_query(viewer).where(WORKSPACES.c.id == workspace)).one_or_none()
    if row is None:
        raise not_found(workspace)
    return _workspace(row)


def insert_workspace(
    connection: Connection, wanted: WorkspacePatch, user: UserId, at: Instant, **fixed: object
) -> WorkspaceId:
    values: dict[str, object] = {
        "user_id": user,
        "created": at,
        **_columns(connection, replace(wanted, name=wanted.name or ""), None),
        **fixed,
    }
    made = connection.scalar(insert(WORKSPACES).values(values).returning(WORKSPACES.c.id))
    assert made is not None
    return WorkspaceId(made)


def must_be_mutable(workspace: Workspace) -> None:
    if workspace.is_immutable:
        raise errors.BadRequest(f"workspace {workspace.name!r} is immutable: it is there for all that name none")
    if workspace.state is State.DELETING:
        raise errors.BadRequest(f"workspace {workspace.name!r} is being deleted")


def without_secrets(storage: JSON) -> JSON:
    """As it may be shown to whoever may see the workspace."""
    if isinstance(storage, dict):
        return {
            name: HIDDEN if name in _SECRETS and value is not None else without_secrets(value)
            for name, value in storage.items()
        }
    return [without_secrets(each) for each in storage] if isinstance(storage, list) else storage


def _chosen(viewer: UserId, chosen: WorkspaceFilter) -> Select[tuple[object, ...]]:
    query = _query(viewer)
    if chosen.name:
        query = query.where(func.lower(WORKSPACES.c.name) == func.lower(chosen.name))
    if chosen.exact_name:
        query = query.where(WORKSPACES.c.name == chosen.exact_name)
    if chosen.usernames:
        query = query.where(USERS.c.username.in_([name.lower() for name in chosen.usernames]))
    if chosen.users:
        query = query.where(WORKSPACES.c.user_id.in_(chosen.users))
    if chosen.is_archived is not None:
        query = query.where(WORKSPACES.c.archived.is_(chosen.is_archived))
    if chosen.is_pinned is not None:
        pinned: ColumnElement[bool] = WORKSPACE_PINS.c.pinned.is_not(None)
        query = query.where(pinned if chosen.is_pinned else ~pinned)
    if chosen.visible is not None:
        query = query.where(WORKSPACES.c.id.in_(chosen.visible))
    return query


def _query(viewer: int) -> Select[tuple[object, ...]]:
    projects = select(func.count()).where(PROJECTS.c.workspace_id == WORKSPACES.c.id).scalar_subquery()
    experiments = (
        select(func.count())
        .select_from(EXPERIMENTS)
        .join(PROJECTS, PROJECTS.c.id == EXPERIMENTS.c.project_id)
        .where(PROJECTS.c.workspace_id == WORKSPACES.c.id)
        .scalar_subquery()
    )
    made = (
        select(func.min(WORKSPACE_NAMESPACES.c.namespace))
        .where(WORKSPACE_NAMESPACES.c.workspace_id == WORKSPACES.c.id, WORKSPACE_NAMESPACES.c.is_made_by_us.is_(True))
        .scalar_subquery()
    )
    pins = (WORKSPACE_PINS.c.workspace_id == WORKSPACES.c.id) & (WORKSPACE_PINS.c.user_id == viewer)
    return (
        select(
            WORKSPACES, USERS.c.username, WORKSPACE_PINS.c.pinned, projects.label("projects"),
            experiments.label("experiments"), made.label("made"),
        )
        .join(USERS, USERS.c.id == WORKSPACES.c.user_id)
        .outerjoin(WORKSPACE_PINS, pins)
    )  # fmt: skip


def _workspace(row: Row[tuple[object, ...]]) -> Workspace:
    return Workspace(
        id=WorkspaceId(row.id),
        name=row.name,
        user=UserId(row.user_id),
        username=row.username,
        is_archived=row.archived,
        is_immutable=row.immutable,
        state=State(row.state),
        error_message=row.error_message,
        agent=users.agent_of(row),
        checkpoint_storage=row.checkpoint_storage,
        default_compute_pool=row.default_compute_pool,
        default_aux_pool=row.default_aux_pool,
        projects=row.projects,
        experiments=row.experiments,
        pinned=row.pinned,
        made_namespace=row.made or "",
    )


def _columns(connection: Connection, wanted: WorkspacePatch, before: Workspace | None) -> dict[str, object]:
    """Raises BadRequest, AlreadyExists."""
    values: dict[str, object] = {}
    if wanted.name is not None:
        values["name"] = _free_name(connection, wanted.name, before)
    if wanted.agent is not None:
        values |= users.agent_columns(wanted.agent)
    if wanted.checkpoint_storage is not None:
        values["checkpoint_storage"] = _storage(wanted.checkpoint_storage, before)
    if wanted.default_compute_pool is not None:
        values["default_compute_pool"] = names.checked_text(
            "defaultComputePool", wanted.default_compute_pool, longest=254
        )
    if wanted.default_aux_pool is not None:
        values["default_aux_pool"] = names.checked_text("defaultAuxPool", wanted.default_aux_pool, longest=254)
    return values


def _free_name(connection: Connection, wanted: str, before: Workspace | None) -> str:
    """Also in another case it must be free: clients look workspaces up in any case and expect one."""
    name = names.checked("name", wanted, longest=80)
    taken = connection.scalar(select(WORKSPACES.c.id).where(func.lower(WORKSPACES.c.name) == func.lower(name)))
    if taken is not None and (before is None or taken != before.id):
        raise errors.AlreadyExists(f"name: there is a workspace {name!r} already")
    return name


def _storage(wanted: Mapping[str, JSON], before: Workspace | None) -> Document | None:
    if not wanted:
        return None
    if wanted.get("type") not in _STORAGES:
        raise errors.BadRequest(f"checkpointStorageConfig.type: must be one of {', '.join(_STORAGES)}")
    known = before.checkpoint_storage if before is not None else None
    return {name: unhidden(value, raw.dig(known, name)) for name, value in wanted.items()}


def unhidden(value: JSON, known: JSON) -> JSON:
    """What was shown without its secrets may come back so: then they stay as they are."""
    if value == HIDDEN and known is not None:
        return known
    if isinstance(value, dict):
        return {name: unhidden(inner, raw.dig(known, name)) for name, inner in value.items()}
    return value
