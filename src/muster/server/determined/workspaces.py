"""Workspaces: listing and changing them."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from muster.accounts import workspaces as books
from muster.accounts.authorizing import Authorizer
from muster.accounts.bindings import Bindings, Namespace, WantedNamespace
from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.accounts.removing import Remover
from muster.accounts.workspaces import WorkspaceFilter, WorkspacePatch, Workspaces
from muster.api.raw import JSON
from muster.server.determined import acting, paging, users
from muster.server.determined.ordering import OrderBy
from muster.server.determined.paging import Id, Paged, Pagination
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, known, route
from muster.server.determined.users import AgentUserGroup


class State(StrEnum):
    UNSPECIFIED = "WORKSPACE_STATE_UNSPECIFIED"
    DELETING = "WORKSPACE_STATE_DELETING"
    DELETE_FAILED = "WORKSPACE_STATE_DELETE_FAILED"
    DELETED = "WORKSPACE_STATE_DELETED"


class Workspace(Message, frozen=True):
    id: int
    name: str
    archived: bool
    username: str
    immutable: bool
    num_projects: int
    pinned: bool
    user_id: int
    num_experiments: int
    state: State
    error_message: str
    agent_user_group: AgentUserGroup | None
    checkpoint_storage_config: Mapping[str, JSON] | None
    default_compute_pool: str
    default_aux_pool: str
    auto_created_namespace: str
    pinned_at: str | None


class WorkspaceReply(Message, frozen=True):
    workspace: Workspace


class NamespaceMeta(Message, frozen=True):
    namespace: str = ""
    auto_create_namespace: bool = False
    auto_create_namespace_all_clusters: bool = False
    cluster_name: str = ""
    resource_quota: int | None = None

    def wanted(self) -> WantedNamespace:
        return WantedNamespace(self.namespace, self.auto_create_namespace or self.auto_create_namespace_all_clusters)


class NamespaceBinding(Message, frozen=True):
    workspace_id: int
    cluster_name: str
    namespace: str
    auto_create_namespace: bool


class PostWorkspaceReply(Message, frozen=True):
    workspace: Workspace
    namespace_bindings: Mapping[str, NamespaceBinding]


class SortBy(StrEnum):
    UNSPECIFIED = "SORT_BY_UNSPECIFIED"
    ID = "SORT_BY_ID"
    NAME = "SORT_BY_NAME"


class GetWorkspaces(Paged, frozen=True):
    sort_by: SortBy = SortBy.UNSPECIFIED
    order_by: OrderBy = OrderBy.UNSPECIFIED
    name: str = ""
    name_case_sensitive: str = ""
    archived: bool | None = None
    users: Sequence[str] = ()
    user_ids: Sequence[Id] = ()
    pinned: bool | None = None


class GetWorkspacesReply(Message, frozen=True):
    workspaces: Sequence[Workspace]
    pagination: Pagination


class WorkspaceAsked(Message, frozen=True):
    id: Id = 0


class PostWorkspace(Message, frozen=True):
    name: str = ""
    agent_user_group: AgentUserGroup | None = None
    checkpoint_storage_config: Mapping[str, JSON] | None = None
    default_compute_pool: str | None = None
    default_aux_pool: str | None = None
    cluster_namespace_meta: Mapping[str, NamespaceMeta] = {}
    cluster_quota_pairs: Mapping[str, Id] = {}


class PatchWorkspace(Message, frozen=True):
    """Pools have two names each: the client has used both."""

    id: Id = 0
    name: str | None = None
    agent_user_group: AgentUserGroup | None = None
    checkpoint_storage_config: Mapping[str, JSON] | None = None
    default_compute_pool: str | None = None
    default_aux_pool: str | None = None
    default_compute_resource_pool: str | None = None
    default_aux_resource_pool: str | None = None
    cluster_namespace_meta: Mapping[str, NamespaceMeta] = {}


class Deleted(Message, frozen=True):
    completed: bool


def told_state(state: books.State) -> State:
    return {
        books.State.PRESENT: State.UNSPECIFIED,
        books.State.DELETING: State.DELETING,
        books.State.DELETE_FAILED: State.DELETE_FAILED,
    }[state]


def told(workspace: books.Workspace) -> Workspace:
    return Workspace(
        id=workspace.id,
        name=workspace.name,
        archived=workspace.is_archived,
        username=workspace.username,
        immutable=workspace.is_immutable,
        num_projects=workspace.projects,
        pinned=workspace.pinned is not None,
        user_id=workspace.user,
        num_experiments=workspace.experiments,
        state=told_state(workspace.state),
        error_message=workspace.error_message,
        agent_user_group=users.told_agent(workspace.agent),
        checkpoint_storage_config=books.without_secrets(workspace.checkpoint_storage),
        default_compute_pool=workspace.default_compute_pool,
        default_aux_pool=workspace.default_aux_pool,
        auto_created_namespace=workspace.made_namespace,
        pinned_at=acting.time(workspace.pinned),
    )


def told_namespace(found: Namespace) -> NamespaceBinding:
    return NamespaceBinding(
        workspace_id=found.workspace,
        cluster_name=found.cluster,
        namespace=found.namespace,
        auto_create_namespace=found.is_made_by_us,
    )


async def of(call: Call, asked: WorkspaceAsked | PatchWorkspace) -> WorkspaceId:
    """Which workspace a call is about."""
    return WorkspaceId(asked.id)


class _Workspaces:
    def __init__(self, workspaces: Workspaces, bindings: Bindings, remover: Remover, authorizer: Authorizer) -> None:
        self._workspaces = workspaces
        self._bindings = bindings
        self._remover = remover
        self._authorizer = authorizer

    async def list(self, call: Call, asked: GetWorkspaces) -> GetWorkspacesReply:
        chosen = WorkspaceFilter(
            asked.name,
            asked.name_case_sensitive,
            asked.users,
            asked.user_ids,
            asked.archived,
            asked.pinned,
            await self._authorizer.workspaces(call.caller, Permission.VIEW_WORKSPACE),
        )
        page = await self._workspaces.list(
            call.caller.user,
            chosen,
            by_name=asked.sort_by is SortBy.NAME,
            descending=asked.order_by is OrderBy.DESC,
            window=asked.window,
        )
        return GetWorkspacesReply(
            workspaces=[told(workspace) for workspace in page.items], pagination=paging.told(page, asked)
        )

    async def get(self, call: Call, asked: WorkspaceAsked) -> WorkspaceReply:
        return WorkspaceReply(workspace=told(await self._workspaces.get(asked.id, call.caller.user)))

    async def create(self, call: Call, asked: PostWorkspace) -> PostWorkspaceReply:
        wanted = WorkspacePatch(
            asked.name,
            asked.agent_user_group.wanted() if asked.agent_user_group else None,
            asked.checkpoint_storage_config,
            asked.default_compute_pool,
            asked.default_aux_pool,
        )
        quotas = _quotas(asked.cluster_namespace_meta, asked.cluster_quota_pairs)
        if asked.cluster_namespace_meta or quotas or asked.agent_user_group:
            await self._authorizer.check(call.caller, Permission.ADMINISTRATE_CLUSTER)
        by = acting.by(call)
        made = await self._workspaces.create(by, wanted)
        namespaces = {cluster: meta.wanted() for cluster, meta in asked.cluster_namespace_meta.items()}
        try:
            bound = await self._bindings.set_namespaces(by, made.id, namespaces) if namespaces else []
            if quotas:
                await self._bindings.set_quotas(by, made.id, quotas)
        except Exception:
            await self._remover.delete_workspace(by, made.id)
            raise
        return PostWorkspaceReply(
            workspace=told(await self._workspaces.get(made.id, call.caller.user)),
            namespace_bindings={each.cluster: told_namespace(each) for each in bound},
        )

    async def patch(self, call: Call, asked: PatchWorkspace) -> WorkspaceReply:
        quotas = _quotas(asked.cluster_namespace_meta, {})
        if asked.cluster_namespace_meta or asked.agent_user_group:  # whose rights its tasks have on the nodes
            await self._authorizer.check(call.caller, Permission.ADMINISTRATE_CLUSTER)
        wanted = WorkspacePatch(
            asked.name,
            asked.agent_user_group.wanted() if asked.agent_user_group else None,
            asked.checkpoint_storage_config,
            asked.default_compute_pool
            if asked.default_compute_pool is not None
            else asked.default_compute_resource_pool,
            asked.default_aux_pool if asked.default_aux_pool is not None else asked.default_aux_resource_pool,
        )
        changed = await self._workspaces.patch(acting.by(call), asked.id, wanted)
        namespaces = {cluster: meta.wanted() for cluster, meta in asked.cluster_namespace_meta.items()}
        if namespaces:
            await self._bindings.set_namespaces(acting.by(call), changed.id, namespaces)
        if quotas:
            await self._bindings.set_quotas(acting.by(call), changed.id, quotas)
        return WorkspaceReply(workspace=told(await self._workspaces.get(asked.id, call.caller.user)))

    async def delete(self, call: Call, asked: WorkspaceAsked) -> Deleted:
        return Deleted(completed=await self._remover.delete_workspace(acting.by(call), WorkspaceId(asked.id)))

    async def archive(self, call: Call, asked: WorkspaceAsked) -> Nothing:
        await self._workspaces.archive(acting.by(call), asked.id, archived=True)
        return Nothing()

    async def unarchive(self, call: Call, asked: WorkspaceAsked) -> Nothing:
        await self._workspaces.archive(acting.by(call), asked.id, archived=False)
        return Nothing()

    async def pin(self, call: Call, asked: WorkspaceAsked) -> Nothing:
        await self._workspaces.pin(asked.id, acting.person(call).user, pinned=True)
        return Nothing()

    async def unpin(self, call: Call, asked: WorkspaceAsked) -> Nothing:
        await self._workspaces.pin(asked.id, acting.person(call).user, pinned=False)
        return Nothing()


def _quotas(namespaces: Mapping[str, NamespaceMeta], pairs: Mapping[str, int]) -> Mapping[str, int]:
    told = {cluster: meta.resource_quota for cluster, meta in namespaces.items() if meta.resource_quota is not None}
    return {**told, **pairs}


def routes(workspaces: Workspaces, bindings: Bindings, remover: Remover, authorizer: Authorizer) -> Sequence[Route]:
    handlers = _Workspaces(workspaces, bindings, remover, authorizer)
    here, each = "/api/v1/workspaces", "/api/v1/workspaces/{id}"
    view: Rule[WorkspaceAsked] = Rule(Permission.VIEW_WORKSPACE, of)
    edit: Rule[WorkspaceAsked] = Rule(Permission.EDIT_WORKSPACE, of)
    change: Rule[PatchWorkspace] = Rule(Permission.EDIT_WORKSPACE, of)
    return (
        route("GET", here, GetWorkspaces, GetWorkspacesReply, known(), handlers.list),
        route("POST", here, PostWorkspace, PostWorkspaceReply, Rule(Permission.CREATE_WORKSPACES), handlers.create),
        route("GET", each, WorkspaceAsked, WorkspaceReply, view, handlers.get),
        route("PATCH", each, PatchWorkspace, WorkspaceReply, change, handlers.patch),
        route("DELETE", each, WorkspaceAsked, Deleted, edit, handlers.delete),
        route("POST", f"{each}/archive", WorkspaceAsked, Nothing, edit, handlers.archive),
        route("POST", f"{each}/unarchive", WorkspaceAsked, Nothing, edit, handlers.unarchive),
        route("POST", f"{each}/pin", WorkspaceAsked, Nothing, view, handlers.pin),
        route("POST", f"{each}/unpin", WorkspaceAsked, Nothing, view, handlers.unpin),
    )
