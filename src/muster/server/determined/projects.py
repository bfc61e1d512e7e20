"""Projects: listing and changing them."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from muster.accounts import projects as books
from muster.accounts.authorizing import Authorizer, Hidden
from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.accounts.projects import ProjectFilter, ProjectId, ProjectOrder, ProjectPatch, Projects
from muster.accounts.removing import Remover
from muster.server.determined import acting, paging, workspaces
from muster.server.determined.ordering import OrderBy
from muster.server.determined.paging import Count, Id, Paged, Pagination
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, known, route
from muster.server.determined.workspaces import Deleted, State


class Note(Message, frozen=True):
    name: str = ""
    contents: str = ""


class Project(Message, frozen=True):
    id: int
    name: str
    key: str
    workspace_id: int
    workspace_name: str
    description: str
    last_experiment_started_at: str | None
    notes: Sequence[Note]
    num_experiments: int
    num_active_experiments: int
    num_runs: int
    archived: bool
    username: str
    user_id: int
    immutable: bool
    state: State
    error_message: str


class ProjectReply(Message, frozen=True):
    project: Project


class SortBy(StrEnum):
    UNSPECIFIED = "SORT_BY_UNSPECIFIED"
    CREATION_TIME = "SORT_BY_CREATION_TIME"
    LAST_EXPERIMENT_START_TIME = "SORT_BY_LAST_EXPERIMENT_START_TIME"
    NAME = "SORT_BY_NAME"
    DESCRIPTION = "SORT_BY_DESCRIPTION"
    ID = "SORT_BY_ID"


_ORDERS: Final[Mapping[SortBy, ProjectOrder]] = {
    SortBy.UNSPECIFIED: ProjectOrder.ID,
    SortBy.CREATION_TIME: ProjectOrder.CREATED,
    SortBy.LAST_EXPERIMENT_START_TIME: ProjectOrder.LAST_STARTED,
    SortBy.NAME: ProjectOrder.NAME,
    SortBy.DESCRIPTION: ProjectOrder.DESCRIPTION,
    SortBy.ID: ProjectOrder.ID,
}


class GetProjects(Paged, frozen=True):
    """`id`: of the workspace; none for all of them."""

    id: Id = 0
    sort_by: SortBy = SortBy.UNSPECIFIED
    order_by: OrderBy = OrderBy.UNSPECIFIED
    name: str = ""
    archived: bool | None = None
    users: Sequence[str] = ()
    user_ids: Sequence[Id] = ()


class GetProjectsReply(Message, frozen=True):
    projects: Sequence[Project]
    pagination: Pagination


class ProjectAsked(Message, frozen=True):
    id: Id = 0


class ByKey(Message, frozen=True):
    key: str = ""


class PostProject(Message, frozen=True):
    workspace_id: Id = 0
    name: str = ""
    description: str | None = None
    key: str | None = None


class PatchProject(Message, frozen=True):
    id: Id = 0
    name: str | None = None
    description: str | None = None
    key: str | None = None


class MoveProject(Message, frozen=True):
    project_id: Id = 0
    destination_workspace_id: Id = 0


class AddNote(Message, frozen=True):
    project_id: Id = 0
    name: str = ""
    contents: str = ""


class PutNotes(Message, frozen=True):
    project_id: Id = 0
    notes: Sequence[Note] = ()


class Notes(Message, frozen=True):
    notes: Sequence[Note]


class Visited(Message, frozen=True):
    limit: Count = 0


class VisitedReply(Message, frozen=True):
    projects: Sequence[Project]


def told(project: books.Project) -> Project:
    return Project(
        id=project.id,
        name=project.name,
        key=project.key,
        workspace_id=project.workspace,
        workspace_name=project.workspace_name,
        description=project.description,
        last_experiment_started_at=acting.time(project.last_started),
        notes=_notes(project.notes),
        num_experiments=project.experiments,
        num_active_experiments=project.active_experiments,
        num_runs=project.runs,
        archived=project.is_archived,
        username=project.username,
        user_id=project.user,
        immutable=project.is_immutable,
        state=workspaces.told_state(project.state),
        error_message=project.error_message,
    )


def _notes(notes: Sequence[books.Note]) -> Sequence[Note]:
    return [Note(name=note.name, contents=note.contents) for note in notes]


class _Projects:
    def __init__(self, projects: Projects, remover: Remover, authorizer: Authorizer) -> None:
        self._projects = projects
        self._remover = remover
        self._authorizer = authorizer

    async def workspace(self, call: Call, asked: ProjectAsked | PatchProject) -> WorkspaceId:
        """Of a project that exists and may be seen; else the answer is the same as if it did not."""
        return await self._place(call, asked.id)

    async def workspace_of(self, call: Call, asked: MoveProject | AddNote | PutNotes) -> WorkspaceId:
        return await self._place(call, asked.project_id)

    async def _place(self, call: Call, project: int) -> WorkspaceId:
        found = await self._projects.get(project)
        if not await self._authorizer.allows(call.caller, Permission.VIEW_WORKSPACE, found.workspace):
            raise Hidden(books.not_found(project).message)
        return found.workspace

    async def list(self, call: Call, asked: GetProjects) -> GetProjectsReply:
        visible = await self._authorizer.workspaces(call.caller, Permission.VIEW_WORKSPACE)
        if asked.id:
            await self._authorizer.check(call.caller, Permission.VIEW_WORKSPACE, WorkspaceId(asked.id))
        chosen = ProjectFilter(
            WorkspaceId(asked.id) if asked.id else None,
            asked.name,
            asked.users,
            asked.user_ids,
            asked.archived,
            visible,
        )
        descending = asked.order_by is OrderBy.DESC
        page = await self._projects.list(chosen, _ORDERS[asked.sort_by], descending=descending, window=asked.window)
        return GetProjectsReply(projects=[told(project) for project in page.items], pagination=paging.told(page, asked))

    async def get(self, call: Call, asked: ProjectAsked) -> ProjectReply:
        return ProjectReply(project=told(await self._projects.get(asked.id)))

    async def by_key(self, call: Call, asked: ByKey) -> ProjectReply:
        found = await self._projects.by_key(asked.key)
        if not await self._authorizer.allows(call.caller, Permission.VIEW_WORKSPACE, found.workspace):
            raise Hidden(books.no_such_key(asked.key).message)
        return ProjectReply(project=told(found))

    async def create(self, call: Call, asked: PostProject) -> ProjectReply:
        wanted = ProjectPatch(asked.name, asked.description, asked.key)
        made = await self._projects.create(acting.by(call), WorkspaceId(asked.workspace_id), wanted)
        return ProjectReply(project=told(made))

    async def patch(self, call: Call, asked: PatchProject) -> ProjectReply:
        wanted = ProjectPatch(asked.name, asked.description, asked.key)
        return ProjectReply(project=told(await self._projects.patch(acting.by(call), asked.id, wanted)))

    async def delete(self, call: Call, asked: ProjectAsked) -> Deleted:
        return Deleted(completed=await self._remover.delete_project(acting.by(call), ProjectId(asked.id)))

    async def archive(self, call: Call, asked: ProjectAsked) -> Nothing:
        await self._projects.archive(acting.by(call), asked.id, archived=True)
        return Nothing()

    async def unarchive(self, call: Call, asked: ProjectAsked) -> Nothing:
        await self._projects.archive(acting.by(call), asked.id, archived=False)
        return Nothing()

    async def move(self, call: Call, asked: MoveProject) -> Nothing:
        to = WorkspaceId(asked.destination_workspace_id)
        await self._authorizer.check(call.caller, Permission.EDIT_PROJECTS, to)
        await self._projects.move(acting.by(call), asked.project_id, to)
        return Nothing()

    async def add_note(self, call: Call, asked: AddNote) -> Notes:
        added = [books.Note(asked.name, asked.contents)]
        return Notes(notes=_notes(await self._projects.set_notes(asked.project_id, added, added=True)))

    async def put_notes(self, call: Call, asked: PutNotes) -> Notes:
        wanted = [books.Note(note.name, note.contents) for note in asked.notes]
        return Notes(notes=_notes(await self._projects.set_notes(asked.project_id, wanted)))

    async def visited(self, call: Call, asked: Visited) -> VisitedReply:
        visible = await self._authorizer.workspaces(call.caller, Permission.VIEW_WORKSPACE)
        found = await self._projects.visited(call.caller.user, asked.limit, visible)
        return VisitedReply(projects=[told(project) for project in found])


async def _of(call: Call, asked: PostProject) -> WorkspaceId:
    return WorkspaceId(asked.workspace_id)


def routes(projects: Projects, remover: Remover, authorizer: Authorizer) -> Sequence[Route]:
    handlers = _Projects(projects, remover, authorizer)
    each, one = "/api/v1/projects/{id}", "/api/v1/projects/{projectId}"
    view: Rule[ProjectAsked] = Rule(Permission.VIEW_WORKSPACE, handlers.workspace)
    edit: Rule[ProjectAsked] = Rule(Permission.EDIT_PROJECTS, handlers.workspace)
    patch: Rule[PatchProject] = Rule(Permission.EDIT_PROJECTS, handlers.workspace)
    move: Rule[MoveProject] = Rule(Permission.EDIT_PROJECTS, handlers.workspace_of)
    add: Rule[AddNote] = Rule(Permission.EDIT_PROJECTS, handlers.workspace_of)
    put: Rule[PutNotes] = Rule(Permission.EDIT_PROJECTS, handlers.workspace_of)
    create = Rule(Permission.EDIT_PROJECTS, _of)
    new, listed = "/api/v1/workspaces/{workspaceId}/projects", "/api/v1/workspaces/{id}/projects"
    return (
        route("GET", listed, GetProjects, GetProjectsReply, known(), handlers.list),
        route("POST", new, PostProject, ProjectReply, create, handlers.create),
        route("GET", each, ProjectAsked, ProjectReply, view, handlers.get),
        route("GET", "/api/v1/projects/key/{key}", ByKey, ProjectReply, known(), handlers.by_key),
        route("PATCH", each, PatchProject, ProjectReply, patch, handlers.patch),
        route("DELETE", each, ProjectAsked, Deleted, edit, handlers.delete),
        route("POST", f"{each}/archive", ProjectAsked, Nothing, edit, handlers.archive),
        route("POST", f"{each}/unarchive", ProjectAsked, Nothing, edit, handlers.unarchive),
        route("POST", f"{one}/move", MoveProject, Nothing, move, handlers.move),
        route("POST", f"{one}/notes", AddNote, Notes, add, handlers.add_note),
        route("PUT", f"{one}/notes", PutNotes, Notes, put, handlers.put_notes),
        route("GET", "/api/v1/user/projects/activity", Visited, VisitedReply, known(), handlers.visited),
    )
