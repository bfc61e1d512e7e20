"""Policies in the records."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, delete, insert, select

from muster.accounts import policies, workspaces
from muster.accounts.audit import By, Deed, note
from muster.accounts.callers import WorkspaceId
from muster.accounts.policies import Policy, Workload
from muster.api import errors
from muster.records import Database
from muster.records.tables_accounts import CONFIG_POLICIES
from muster.runtime.clock import Clock


class Policies:
    """`workspace`: None for the whole cluster."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def get(self, kind: Workload, workspace: WorkspaceId | None) -> Policy | None:
        """Raises NotFound where there is no such workspace."""

        def read(connection: Connection) -> Policy | None:
            if workspace is not None:
                workspaces.get(connection, workspace)
            return _get(connection, kind, workspace)

        return await self._database.read(read)

    async def applying(self, kind: Workload, workspace: WorkspaceId) -> Sequence[Policy]:
        """What `policies.merge` and `policies.constraints` want for work in this workspace: the weakest first."""

        def read(connection: Connection) -> Sequence[Policy]:
            found = (_get(connection, kind, workspace), _get(connection, kind, None))
            return [policy for policy in found if policy is not None]

        return await self._database.read(read)

    async def put(self, by: By, kind: Workload, workspace: WorkspaceId | None, policy: Policy) -> None:
        """Raises NotFound."""

        def change(connection: Connection) -> None:
            where = _where(connection, workspace)
            connection.execute(delete(CONFIG_POLICIES).where(_is(kind, workspace)))
            connection.execute(
                insert(CONFIG_POLICIES).values(
                    workspace_id=workspace,
                    workload=kind.value,
                    policies=policy.document(),
                    modified=self._clock.now(),
                    user_id=by.caller.user,
                )
            )
            note(connection, self._clock.now(), by, Deed("policy.set", f"{kind} {where}"))

        await self._database.write(change)

    async def delete(self, by: By, kind: Workload, workspace: WorkspaceId | None) -> None:
        """Raises NotFound, also where there is no policy."""

        def change(connection: Connection) -> None:
            where = _where(connection, workspace)
            if not connection.execute(delete(CONFIG_POLICIES).where(_is(kind, workspace))).rowcount:
                raise errors.NotFound(f"there are no {kind} policies {where}")
            note(connection, self._clock.now(), by, Deed("policy.delete", f"{kind} {where}"))

        await self._database.write(change)


def _get(connection: Connection, kind: Workload, workspace: WorkspaceId | None) -> Policy | None:
    found = connection.scalar(select(CONFIG_POLICIES.c.policies).where(_is(kind, workspace)))
    return None if found is None else policies.of(found, kind)


def _is(kind: Workload, workspace: WorkspaceId | None) -> ColumnElement[bool]:
    return (CONFIG_POLICIES.c.workload == kind.value) & CONFIG_POLICIES.c.workspace_id.is_not_distinct_from(workspace)


def _where(connection: Connection, workspace: WorkspaceId | None) -> str:
    return "for all" if workspace is None else f"in {workspaces.get(connection, workspace).name}"
