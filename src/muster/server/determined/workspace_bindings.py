"""What workspaces may use: pools, namespaces, quotas."""

from collections.abc import Mapping, Sequence

from muster.accounts.authorizing import Authorizer
from muster.accounts.bindings import Bindings, Namespace
from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.server.determined import acting, paging, workspaces
from muster.server.determined.paging import Id, Paged, Pagination
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, known, route
from muster.server.determined.workspaces import NamespaceBinding, NamespaceMeta, WorkspaceAsked


class OfWorkspace(Paged, frozen=True):
    workspace_id: Id = 0


class PoolsReply(Message, frozen=True):
    resource_pools: Sequence[str]
    pagination: Pagination


class OfPool(Paged, frozen=True):
    resource_pool_name: str = ""


class WorkspacesReply(Message, frozen=True):
    workspace_ids: Sequence[int]
    pagination: Pagination


class ChangePool(Message, frozen=True):
    resource_pool_name: str = ""
    workspace_ids: Sequence[Id] = ()
    workspace_names: Sequence[str] = ()


class NamespacesReply(Message, frozen=True):
    namespace_bindings: Mapping[str, NamespaceBinding]


class SetNamespaces(Message, frozen=True):
    workspace_id: Id = 0
    cluster_namespace_meta: Mapping[str, NamespaceMeta] = {}


class DeleteNamespaces(Message, frozen=True):
    workspace_id: Id = 0
    cluster_names: Sequence[str] = ()


class WithoutNamespace(Message, frozen=True):
    workspace_ids: Sequence[int]


class SetQuotas(Message, frozen=True):
    id: Id = 0
    cluster_quota_pairs: Mapping[str, Id] = {}


class Quotas(Message, frozen=True):
    resource_quotas: Mapping[str, float]


class _Bindings:
    def __init__(self, bindings: Bindings, authorizer: Authorizer) -> None:
        self._bindings = bindings
        self._authorizer = authorizer

    async def pools(self, call: Call, asked: OfWorkspace) -> PoolsReply:
        page = paging.cut(await self._bindings.available(WorkspaceId(asked.workspace_id)), asked)
        return PoolsReply(resource_pools=page.items, pagination=paging.told(page, asked))

    async def bound(self, call: Call, asked: OfPool) -> WorkspacesReply:
        visible = await self._authorizer.workspaces(call.caller, Permission.VIEW_WORKSPACE)
        found = await self._bindings.bound_to(asked.resource_pool_name)
        page = paging.cut([each for each in found if visible is None or each in visible], asked)
        return WorkspacesReply(workspace_ids=page.items, pagination=paging.told(page, asked))

    async def bind(self, call: Call, asked: ChangePool) -> Nothing:
        pool = asked.resource_pool_name
        await self._bindings.bind(acting.by(call), pool, asked.workspace_ids, asked.workspace_names)
        return Nothing()

    async def rebind(self, call: Call, asked: ChangePool) -> Nothing:
        pool = asked.resource_pool_name
        await self._bindings.bind(acting.by(call), pool, asked.workspace_ids, asked.workspace_names, instead=True)
        return Nothing()

    async def unbind(self, call: Call, asked: ChangePool) -> Nothing:
        pool = asked.resource_pool_name
        await self._bindings.unbind(acting.by(call), pool, asked.workspace_ids, asked.workspace_names)
        return Nothing()

    async def namespaces(self, call: Call, asked: WorkspaceAsked) -> NamespacesReply:
        return _told(await self._bindings.namespaces(WorkspaceId(asked.id)))

    async def set_namespaces(self, call: Call, asked: SetNamespaces) -> NamespacesReply:
        wanted = {cluster: meta.wanted() for cluster, meta in asked.cluster_namespace_meta.items()}
        return _told(await self._bindings.set_namespaces(acting.by(call), WorkspaceId(asked.workspace_id), wanted))

    async def delete_namespaces(self, call: Call, asked: DeleteNamespaces) -> Nothing:
        workspace = WorkspaceId(asked.workspace_id)
        await self._bindings.unset_namespaces(acting.by(call), workspace, asked.cluster_names)
        return Nothing()

    async def without_namespace(self, call: Call, asked: Nothing) -> WithoutNamespace:
        visible = await self._authorizer.workspaces(call.caller, Permission.VIEW_WORKSPACE)
        found = await self._bindings.without_namespace()
        return WithoutNamespace(workspace_ids=[each for each in found if visible is None or each in visible])

    async def quotas(self, call: Call, asked: WorkspaceAsked) -> Quotas:
        return Quotas(resource_quotas=await self._bindings.quotas(WorkspaceId(asked.id)))

    async def set_quotas(self, call: Call, asked: SetQuotas) -> Nothing:
        await self._bindings.set_quotas(acting.by(call), WorkspaceId(asked.id), asked.cluster_quota_pairs)
        return Nothing()


def _told(found: Sequence[Namespace]) -> NamespacesReply:
    return NamespacesReply(namespace_bindings={each.cluster: workspaces.told_namespace(each) for each in found})


async def _of(call: Call, asked: OfWorkspace) -> WorkspaceId:
    return WorkspaceId(asked.workspace_id)


def routes(bindings: Bindings, authorizer: Authorizer) -> Sequence[Route]:
    handlers = _Bindings(bindings, authorizer)
    pool, here = "/api/v1/resource-pools/{resourcePoolName}/workspace-bindings", "/api/v1/workspaces"
    view: Rule[WorkspaceAsked] = Rule(Permission.VIEW_WORKSPACE, workspaces.of)
    available = Rule(Permission.VIEW_WORKSPACE, _of)
    admin = Permission.ADMINISTRATE_CLUSTER
    names = f"{here}/{{workspaceId}}/namespace-bindings"
    unbound = "/api/v1/namespace-bindings/workspace-ids-with-default-bindings"
    pools = f"{here}/{{workspaceId}}/available-resource-pools"
    return (
        route("GET", pool, OfPool, WorkspacesReply, known(), handlers.bound),
        route("POST", pool, ChangePool, Nothing, Rule(admin), handlers.bind),
        route("PUT", pool, ChangePool, Nothing, Rule(admin), handlers.rebind),
        route("DELETE", pool, ChangePool, Nothing, Rule(admin), handlers.unbind),
        route("GET", pools, OfWorkspace, PoolsReply, available, handlers.pools),
        route(
            "GET", f"{here}/{{id}}/list-namespace-bindings", WorkspaceAsked, NamespacesReply, view, handlers.namespaces
        ),
        route("POST", names, SetNamespaces, NamespacesReply, Rule(admin), handlers.set_namespaces),
        route("DELETE", names, DeleteNamespaces, Nothing, Rule(admin), handlers.delete_namespaces),
        route("GET", unbound, Nothing, WithoutNamespace, known(), handlers.without_namespace),
        route("POST", f"{here}/{{id}}/set-resource-quota", SetQuotas, Nothing, Rule(admin), handlers.set_quotas),
        route("GET", f"{here}/{{id}}/get-k8s-resource-quotas", WorkspaceAsked, Quotas, view, handlers.quotas),
    )
