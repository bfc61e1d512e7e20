"""Projects: what a workspace is divided into. The first one is there for all that name none."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NewType

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Function,
    Row,
    ScalarSelect,
    Select,
    case,
    delete,
    func,
    insert,
    select,
    update,
)

from muster.accounts import names, workspaces
from muster.accounts.audit import By, Deed, note
from muster.accounts.callers import UserId, WorkspaceId
from muster.accounts.workspaces import State, Workspace
from muster.api import errors
from muster.api.meta import Instant
from muster.records import Database
from muster.records.paging import WHOLE, Page, Window, select_page
from muster.records.tables_accounts import PROJECT_VISITS, PROJECTS, USERS, WORKSPACES
from muster.records.tables_experiments import EXPERIMENTS
from muster.runtime.clock import Clock

ProjectId = NewType("ProjectId", int)
_KEY: Final = re.compile(r"[A-Z0-9]{1,5}")
_KEY_PREFIX: Final = 3
_MOST_NOTES: Final = 1000


class Note(msgspec.Struct, frozen=True):
    name: str = ""
    contents: str = ""


@dataclass(frozen=True, slots=True)
class Project:
    id: ProjectId
    name: str
    key: str
    description: str
    workspace: WorkspaceId
    workspace_name: str
    user: UserId
    username: str
    is_archived: bool
    is_immutable: bool
    state: State
    error_message: str
    notes: Sequence[Note]
    experiments: int
    active_experiments: int
    runs: int
    last_started: Instant | None
    """When the newest of its experiments was made."""


@dataclass(frozen=True, slots=True)
class ProjectPatch:
    """None leaves it as it is; a new project without a key gets one from its name."""

    name: str | None = None
    description: str | None = None
    key: str | None = None


class ProjectOrder(StrEnum):
    ID = "id"
    NAME = "name"
    DESCRIPTION = "description"
    CREATED = "created"
    LAST_STARTED = "last started"


@dataclass(frozen=True, slots=True)
class ProjectFilter:
    """`name`: the whole name, in any case. `visible`: the workspaces that may be seen; None for all."""

    workspace: WorkspaceId | None = None
    name: str = ""
    usernames: Sequence[str] = ()
    users: Sequence[int] = ()
    is_archived: bool | None = None
    visible: Collection[WorkspaceId] | None = None


class Projects:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def get(self, project: int) -> Project:
        """Raises NotFound."""
        return await self._database.read(lambda connection: get(connection, project))

    async def by_key(self, key: str) -> Project:
        """Raises NotFound."""

        def read(connection: Connection) -> Project:
            row = connection.execute(_query().where(PROJECTS.c.key == key.upper())).one_or_none()
            if row is None:
                raise no_such_key(key)
            return _project(row)

        return await self._database.read(read)

    async def list(
        self,
        chosen: ProjectFilter,
        order: ProjectOrder = ProjectOrder.ID,
        *,
        descending: bool = False,
        window: Window = WHOLE,
    ) -> Page[Project]:
        def read(connection: Connection) -> Page[Project]:
            first = _order(order)
            ordered = (first.desc(), PROJECTS.c.id.desc()) if descending else (first.asc(), PROJECTS.c.id.asc())
            page = select_page(connection, _chosen(chosen).order_by(*ordered), window)
            return Page(tuple(map(_project, page.items)), page.start, page.total)

        return await self._database.read(read)

    async def create(self, by: By, workspace: WorkspaceId, wanted: ProjectPatch) -> Project:
        """Raises NotFound, AlreadyExists, BadRequest."""

        def change(connection: Connection) -> Project:
            _must_take(workspaces.get(connection, workspace))
            made = insert_project(connection, workspace, wanted, by.caller.user, self._clock.now())
            note(connection, self._clock.now(), by, Deed("project.create", wanted.name or ""))
            return get(connection, made)

        return await self._database.write(change)

    async def patch(self, by: By, project: int, wanted: ProjectPatch) -> Project:
        """Raises NotFound, AlreadyExists, BadRequest."""

        def change(connection: Connection) -> Project:
            found = get(connection, project)
            must_be_mutable(found)
            if found.is_archived:
                raise errors.BadRequest(f"project {found.name!r} is archived: unarchive it to change it")
            values = _columns(connection, found.workspace, wanted, found)
            if values:
                connection.execute(update(PROJECTS).where(PROJECTS.c.id == project).values(values))
            note(connection, self._clock.now(), by, Deed("project.change", found.name, ", ".join(sorted(values))))
            return get(connection, project)

        return await self._database.write(change)

    async def archive(self, by: By, project: int, *, archived: bool) -> None:
        """Raises NotFound, BadRequest."""

        def change(connection: Connection) -> None:
            found = get(connection, project)
            must_be_mutable(found)
            if workspaces.get(connection, found.workspace).is_archived:
                raise errors.BadRequest(f"workspace {found.workspace_name!r} is archived, with all of its projects")
            connection.execute(update(PROJECTS).where(PROJECTS.c.id == project).values(archived=archived))
            action = "project.archive" if archived else "project.unarchive"
            note(connection, self._clock.now(), by, Deed(action, found.name))

        await self._database.write(change)

    async def move(self, by: By, project: int, to: WorkspaceId) -> None:
        """Raises NotFound, AlreadyExists, BadRequest."""

        def change(connection: Connection) -> None:
            found = get(connection, project)
            must_be_mutable(found)
            destination = workspaces.get(connection, to)
            _must_take(destination)
            _free_name(connection, to, found.name, found)
            connection.execute(update(PROJECTS).where(PROJECTS.c.id == project).values(workspace_id=to))
            note(connection, self._clock.now(), by, Deed("project.move", found.name, f"to {destination.name}"))

        await self._database.write(change)

    async def set_notes(self, project: int, wanted: Sequence[Note], *, added: bool = False) -> Sequence[Note]:
        """`added`: to those that are there. Raises NotFound, BadRequest."""

        def change(connection: Connection) -> Sequence[Note]:
            found = get(connection, project)
            notes = [*found.notes, *wanted] if added else list(wanted)
            if len(notes) > _MOST_NOTES:
                raise errors.BadRequest(f"notes: a project may have {_MOST_NOTES}")
            for number, each in enumerate(notes):
                names.checked_text(f"notes[{number}].name", each.name, longest=1000)
                names.checked_text(f"notes[{number}].contents", each.contents)
            stored = msgspec.to_builtins(notes)
            connection.execute(update(PROJECTS).where(PROJECTS.c.id == project).values(notes=stored))
            return notes

        return await self._database.write(change)

    async def visit(self, user: UserId, project: int) -> None:
        """Remembers that the user has looked at it. Raises NotFound."""

        def change(connection: Connection) -> None:
            get(connection, project)
            is_it = (PROJECT_VISITS.c.user_id == user) & (PROJECT_VISITS.c.project_id == project)
            connection.execute(delete(PROJECT_VISITS).where(is_it))
            values = {"user_id": user, "project_id": project, "visited": self._clock.now()}
            connection.execute(insert(PROJECT_VISITS).values(values))

        await self._database.write(change)

    async def visited(self, user: UserId, limit: int, visible: Collection[WorkspaceId] | None) -> Sequence[Project]:
        """Latest first."""

        def read(connection: Connection) -> Sequence[Project]:
            visits = (PROJECT_VISITS.c.project_id == PROJECTS.c.id) & (PROJECT_VISITS.c.user_id == user)
            query = _chosen(ProjectFilter(visible=visible)).join(PROJECT_VISITS, visits)
            query = query.order_by(PROJECT_VISITS.c.visited.desc(), PROJECTS.c.id)
            return [_project(row) for row in connection.execute(query.limit(limit) if limit > 0 else query)]

        return await self._database.read(read)


def get(connection: Connection, project: int) -> Project:
    """Raises NotFound."""
    row = connection.execute(_query().where(PROJECTS.c.id == project)).one_or_none()
    if row is None:
        raise not_found(project)
    return _project(row)


def not_found(project: int) -> errors.NotFound:
    return errors.NotFound(f"project {project} not found")


def no_such_key(key: str) -> errors.NotFound:
    return errors.NotFound(f"project with key {key[:80]!r} not found")


def insert_project(
    connection: Connection, workspace: WorkspaceId, wanted: ProjectPatch, user: UserId, at: Instant, **fixed: object
) -> ProjectId:
    whole = ProjectPatch(
        wanted.name or "", wanted.description or "", wanted.key or _free_key(connection, wanted.name or "")
    )
    values = _columns(connection, workspace, whole, None)
    values |= {"workspace_id": workspace, "user_id": user, "created": at, "notes": [], **fixed}
    made = connection.scalar(insert(PROJECTS).values(values).returning(PROJECTS.c.id))
    assert made is not None
    return ProjectId(made)


def key_prefix(name: str) -> str:
    """The first letters and digits of a name; `PRJ` where it has none that a key may have."""
    return "".join(each for each in name.upper() if _KEY.fullmatch(each))[:_KEY_PREFIX] or "PRJ"


def _chosen(chosen: ProjectFilter) -> Select[tuple[object, ...]]:
    query = _query()
    if chosen.workspace is not None:
        query = query.where(PROJECTS.c.workspace_id == chosen.workspace)
    if chosen.name:
        query = query.where(func.lower(PROJECTS.c.name) == func.lower(chosen.name))
    if chosen.usernames:
        query = query.where(USERS.c.username.in_([name.lower() for name in chosen.usernames]))
    if chosen.users:
        query = query.where(PROJECTS.c.user_id.in_(chosen.users))
    if chosen.is_archived is not None:
        query = query.where(PROJECTS.c.archived.is_(chosen.is_archived))
    if chosen.visible is not None:
        query = query.where(PROJECTS.c.workspace_id.in_(chosen.visible))
    return query


def _order(order: ProjectOrder) -> ColumnElement[object]:
    if order is ProjectOrder.LAST_STARTED:
        return func.coalesce(_of_experiments(func.max(EXPERIMENTS.c.created)), 0)
    column = PROJECTS.c[order.value]
    return func.lower(column) if order in (ProjectOrder.NAME, ProjectOrder.DESCRIPTION) else column


def _of_experiments(figure: "Function[int] | Function[float]") -> ScalarSelect[object]:
    """About all that a project has. An index has everything that is asked here."""
    return select(figure).where(EXPERIMENTS.c.project_id == PROJECTS.c.id).scalar_subquery()


def _query() -> Select[tuple[object, ...]]:
    is_active = case((EXPERIMENTS.c.state == "ACTIVE", 1), else_=0)
    return (
        select(
            PROJECTS,
            USERS.c.username,
            WORKSPACES.c.name.label("workspace_name"),
            _of_experiments(func.count()).label("experiments"),
            _of_experiments(func.coalesce(func.sum(is_active), 0)).label("active_experiments"),
            _of_experiments(func.coalesce(func.sum(EXPERIMENTS.c.trial_count), 0)).label("runs"),
            _of_experiments(func.max(EXPERIMENTS.c.created)).label("last_started"),
        )
        .join(USERS, USERS.c.id == PROJECTS.c.user_id)
        .join(WORKSPACES, WORKSPACES.c.id == PROJECTS.c.workspace_id)
    )


def _project(row: Row[tuple[object, ...]]) -> Project:
    return Project(
        id=ProjectId(row.id),
        name=row.name,
        key=row.key,
        description=row.description,
        workspace=WorkspaceId(row.workspace_id),
        workspace_name=row.workspace_name,
        user=UserId(row.user_id),
        username=row.username,
        is_archived=row.archived,
        is_immutable=row.immutable,
        state=State(row.state),
        error_message=row.error_message,
        notes=msgspec.convert(row.notes, list[Note]),
        experiments=row.experiments,
        active_experiments=row.active_experiments,
        runs=row.runs,
        last_started=row.last_started,
    )


def must_be_mutable(project: Project) -> None:
    if project.is_immutable:
        raise errors.BadRequest(f"project {project.name!r} is immutable: it is there for all that name none")
    if project.state is State.DELETING:
        raise errors.BadRequest(f"project {project.name!r} is being deleted")


def _must_take(workspace: Workspace) -> None:
    if workspace.is_archived:
        raise errors.BadRequest(f"workspace {workspace.name!r} is archived: unarchive it to put projects there")
    if workspace.state is State.DELETING:
        raise errors.BadRequest(f"workspace {workspace.name!r} is being deleted")


def _columns(
    connection: Connection, workspace: WorkspaceId, wanted: ProjectPatch, before: Project | None
) -> dict[str, object]:
    values: dict[str, object] = {}
    if wanted.name is not None:
        values["name"] = _free_name(connection, workspace, wanted.name, before)
    if wanted.description is not None:
        values["description"] = names.checked_text("description", wanted.description)
    if wanted.key is not None:
        key = wanted.key.upper()
        if not _KEY.fullmatch(key):
            raise errors.BadRequest(f"key: must be 1 to 5 letters and digits, found {wanted.key[:80]!r}")
        if _is_taken(connection, PROJECTS.c.key == key, before):
            raise errors.AlreadyExists(f"key: there is a project with key {key!r} already")
        values["key"] = key
    return values


def _free_name(connection: Connection, workspace: WorkspaceId, wanted: str, before: Project | None) -> str:
    """Also in another case it must be free: clients look projects up in any case and take the first."""
    name = names.checked("name", wanted, longest=80)
    is_it = (PROJECTS.c.workspace_id == workspace) & (func.lower(PROJECTS.c.name) == func.lower(name))
    if _is_taken(connection, is_it, before):
        raise errors.AlreadyExists(f"name: the workspace has a project {name!r} already")
    return name


def _is_taken(connection: Connection, which: ColumnElement[bool], before: Project | None) -> bool:
    found = connection.scalar(select(PROJECTS.c.id).where(which))
    return found is not None and (before is None or found != before.id)


def _free_key(connection: Connection, name: str) -> str:
    prefix = key_prefix(name)
    for width, alphabet in ((2, 36), (4, 36)):
        start = prefix[: 5 - width]
        taken = set(connection.scalars(select(PROJECTS.c.key).where(PROJECTS.c.key.startswith(start))))
        for number in range(alphabet**width):
            key = f"{start}{_base36(number)}" if number else start
            if key not in taken:
                return key
    raise errors.BadRequest("key: no free key is left that begins like the name; name one")


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[digit] + digits
    return digits
