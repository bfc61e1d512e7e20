"""What a workspace may use: the pools that are for some workspaces only, the namespace of its pods, and its slots."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from sqlalchemy import ColumnElement, Connection, delete, insert, select

from muster.accounts import names, workspaces
from muster.accounts.audit import By, Deed, note
from muster.accounts.callers import WorkspaceId
from muster.api import errors
from muster.records import Database
from muster.records.tables_accounts import POOL_BINDINGS, WORKSPACE_NAMESPACES, WORKSPACE_QUOTAS, WORKSPACES
from muster.runtime.clock import Clock

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_MOST_SLOTS: Final = 2**31 - 1


class Pools(Protocol):
    async def names(self) -> Sequence[str]:
        """Of all resource pools."""
        ...


@dataclass(frozen=True, slots=True)
class WantedNamespace:
    """`is_made`: a namespace of its own, with a name that we give it."""

    namespace: str = ""
    is_made: bool = False


@dataclass(frozen=True, slots=True)
class Namespace:
    workspace: WorkspaceId
    cluster: str
    namespace: str
    is_made_by_us: bool


class Bindings:
    def __init__(self, database: Database, clock: Clock, pools: Pools) -> None:
        self._database = database
        self._clock = clock
        self._pools = pools

    # Pools: one that is bound to nobody is for everybody.

    async def bound_to(self, pool: str) -> list[WorkspaceId]:
        """Raises NotFound."""
        await self._must_exist(pool)
        return await self._database.read(lambda connection: _bound(connection, pool))

    async def bind(
        self, by: By, pool: str, ids: Sequence[int], by_name: Sequence[str], *, instead: bool = False
    ) -> None:
        """`instead`: of all workspaces that the pool was bound to. Raises NotFound."""
        await self._must_exist(pool)

        def change(connection: Connection) -> None:
            wanted = _workspaces(connection, ids, by_name)
            if instead:
                connection.execute(delete(POOL_BINDINGS).where(POOL_BINDINGS.c.pool == pool))
            for workspace in sorted(wanted - set(_bound(connection, pool))):
                connection.execute(insert(POOL_BINDINGS).values(pool=pool, workspace_id=workspace))
            note(connection, self._clock.now(), by, Deed("pool.bind", pool, f"workspaces {sorted(wanted)}"))

        await self._database.write(change)

    async def unbind(self, by: By, pool: str, ids: Sequence[int], by_name: Sequence[str]) -> None:
        """Raises NotFound."""
        await self._must_exist(pool)

        def change(connection: Connection) -> None:
            unwanted = _workspaces(connection, ids, by_name)
            query = delete(POOL_BINDINGS).where(POOL_BINDINGS.c.pool == pool)
            connection.execute(query.where(POOL_BINDINGS.c.workspace_id.in_(unwanted)))
            note(connection, self._clock.now(), by, Deed("pool.unbind", pool, f"workspaces {sorted(unwanted)}"))

        await self._database.write(change)

    async def available(self, workspace: WorkspaceId) -> list[str]:
        """The pools that tasks of the workspace may use. Raises NotFound."""
        existing = await self._pools.names()

        def read(connection: Connection) -> list[str]:
            workspaces.get(connection, workspace)
            bound: dict[str, set[int]] = {}
            for pool, holder in connection.execute(select(POOL_BINDINGS)):
                bound.setdefault(pool, set()).add(holder)
            return [pool for pool in sorted(existing) if pool not in bound or workspace in bound[pool]]

        return await self._database.read(read)

    async def _must_exist(self, pool: str) -> None:
        if pool not in await self._pools.names():
            raise errors.NotFound(f"resource pool {pool!r} not found")

    # Namespaces and quotas, one for each cluster that we serve; the name of our own is empty.

    async def namespaces(self, workspace: WorkspaceId) -> list[Namespace]:
        """Raises NotFound."""

        def read(connection: Connection) -> list[Namespace]:
            workspaces.get(connection, workspace)
            return _namespaces(connection, workspace)

        return await self._database.read(read)

    async def set_namespaces(
        self, by: By, workspace: WorkspaceId, wanted: Mapping[str, WantedNamespace]
    ) -> list[Namespace]:
        """Raises NotFound, BadRequest. Returns those that were set."""

        def change(connection: Connection) -> list[Namespace]:
            found = workspaces.get(connection, workspace)
            set_ = [_namespace(workspace, cluster, each) for cluster, each in wanted.items()]
            for each in set_:
                connection.execute(delete(WORKSPACE_NAMESPACES).where(_is(workspace, each.cluster)))
                connection.execute(
                    insert(WORKSPACE_NAMESPACES).values(
                        workspace_id=workspace,
                        cluster=each.cluster,
                        namespace=each.namespace,
                        is_made_by_us=each.is_made_by_us,
                    )
                )
            detail = f"namespaces {', '.join(each.namespace for each in set_)}"
            note(connection, self._clock.now(), by, Deed("workspace.bind", found.name, detail))
            return set_

        return await self._database.write(change)

    async def unset_namespaces(self, by: By, workspace: WorkspaceId, clusters: Sequence[str]) -> None:
        """Raises NotFound."""

        def change(connection: Connection) -> None:
            found = workspaces.get(connection, workspace)
            for cluster in clusters or ("",):
                if not connection.execute(delete(WORKSPACE_NAMESPACES).where(_is(workspace, cluster))).rowcount:
                    raise errors.NotFound(f"workspace {found.name!r} has no namespace in cluster {cluster!r}")
            note(connection, self._clock.now(), by, Deed("workspace.unbind", found.name))

        await self._database.write(change)

    async def without_namespace(self) -> list[WorkspaceId]:
        """Their pods run in the default namespace."""
        bound = select(WORKSPACE_NAMESPACES.c.workspace_id)
        query = select(WORKSPACES.c.id).where(WORKSPACES.c.id.not_in(bound)).order_by(WORKSPACES.c.id)
        return await self._database.read(lambda connection: [WorkspaceId(id) for id in connection.scalars(query)])

    async def quotas(self, workspace: WorkspaceId) -> dict[str, int]:
        """Slots, by cluster. Raises NotFound."""

        def read(connection: Connection) -> dict[str, int]:
            workspaces.get(connection, workspace)
            query = select(WORKSPACE_QUOTAS).where(WORKSPACE_QUOTAS.c.workspace_id == workspace)
            return {row.cluster: row.slots for row in connection.execute(query.order_by(WORKSPACE_QUOTAS.c.cluster))}

        return await self._database.read(read)

    async def set_quotas(self, by: By, workspace: WorkspaceId, wanted: Mapping[str, int]) -> None:
        """Raises NotFound, BadRequest."""

        def change(connection: Connection) -> None:
            found = workspaces.get(connection, workspace)
            for cluster, slots in wanted.items():
                if not 0 <= slots <= _MOST_SLOTS:
                    raise errors.BadRequest(f"clusterQuotaPairs[{cluster!r}]: must not be negative, found {slots}")
                is_it = (WORKSPACE_QUOTAS.c.workspace_id == workspace) & (WORKSPACE_QUOTAS.c.cluster == cluster)
                connection.execute(delete(WORKSPACE_QUOTAS).where(is_it))
                values = {"workspace_id": workspace, "cluster": _cluster(cluster), "slots": slots}
                connection.execute(insert(WORKSPACE_QUOTAS).values(values))
            note(connection, self._clock.now(), by, Deed("workspace.quota", found.name, str(dict(wanted))))

        await self._database.write(change)


def _bound(connection: Connection, pool: str) -> list[WorkspaceId]:
    query = select(POOL_BINDINGS.c.workspace_id).where(POOL_BINDINGS.c.pool == pool)
    return [WorkspaceId(id) for id in connection.scalars(query.order_by(POOL_BINDINGS.c.workspace_id))]


def _workspaces(connection: Connection, ids: Iterable[int], by_name: Iterable[str]) -> set[int]:
    """Raises NotFound with those that are not there."""
    wanted_ids, wanted_names = set(ids), set(by_name)
    query = select(WORKSPACES.c.id, WORKSPACES.c.name)
    rows = connection.execute(query.where(WORKSPACES.c.id.in_(wanted_ids) | WORKSPACES.c.name.in_(wanted_names))).all()
    missing = [
        *(str(id) for id in sorted(wanted_ids - {row.id for row in rows})),
        *(repr(name) for name in sorted(wanted_names - {row.name for row in rows})),
    ]
    if missing:
        raise errors.NotFound(f"workspaces {', '.join(missing)} not found")
    return {row.id for row in rows}


def _namespaces(connection: Connection, workspace: WorkspaceId) -> list[Namespace]:
    query = select(WORKSPACE_NAMESPACES).where(WORKSPACE_NAMESPACES.c.workspace_id == workspace)
    rows = connection.execute(query.order_by(WORKSPACE_NAMESPACES.c.cluster))
    return [Namespace(workspace, row.cluster, row.namespace, row.is_made_by_us) for row in rows]


def _namespace(workspace: WorkspaceId, cluster: str, wanted: WantedNamespace) -> Namespace:
    if wanted.is_made and wanted.namespace:
        raise errors.BadRequest("clusterNamespaceMeta: either names a namespace or has one made, not both")
    if wanted.is_made:
        return Namespace(workspace, _cluster(cluster), f"workspace-{workspace}", True)
    if not _LABEL.fullmatch(wanted.namespace):
        raise errors.BadRequest(
            f"clusterNamespaceMeta[{cluster!r}].namespace: must be a name in lower-case letters, digits and '-', "
            f"found {wanted.namespace[:80]!r}"
        )
    return Namespace(workspace, _cluster(cluster), wanted.namespace, False)


def _cluster(name: str) -> str:
    return names.checked("clusterName", name) if name else ""


def _is(workspace: WorkspaceId, cluster: str) -> ColumnElement[bool]:
    return (WORKSPACE_NAMESPACES.c.workspace_id == workspace) & (WORKSPACE_NAMESPACES.c.cluster == cluster)
