"""What a workspace gives its tasks: how many slots they may hold together, and the namespace of their pods."""

import contextlib
from typing import Final

from sqlalchemy import Connection, func, select

from muster.accounts.bindings import Bindings
from muster.accounts.callers import WorkspaceId
from muster.api import core, errors
from muster.api.muster.names import WORKSPACE_LABEL
from muster.api.objects import Key
from muster.api.raw import Document
from muster.records.tables_accounts import WORKSPACE_QUOTAS
from muster.records.tables_tasks import ALLOCATIONS, TASKS
from muster.store.protocol import Create, Options, Store, write_one

_USUAL: Final = "default"
_OPTIONS: Final = Options(manager="muster-tasks")
_PAUSED: Final = "PAUSED"
_TRIAL: Final = "TRIAL"
_OVER: Final = "TERMINATED"


def check(connection: Connection, workspace: WorkspaceId, slots: int) -> None:
    """In the transaction that adds the task, so that two at once cannot both find the last room. Tasks that wait count
    as well. Raises TooManyRequests."""
    allowed = most(connection, workspace) if slots else None
    if allowed is None:
        return
    taken = held(connection, workspace)
    if taken + slots > allowed:
        raise errors.TooManyRequests(
            f"resources.slots: the workspace may hold {allowed} slots, its tasks hold or wait for {taken}, and this "
            f"one needs {slots}; end some of them or ask for fewer"
        )


def most(connection: Connection, workspace: WorkspaceId) -> int | None:
    """How many slots its tasks may hold together; None for any number."""
    quota = WORKSPACE_QUOTAS
    query = select(quota.c.slots).where(quota.c.workspace_id == workspace, quota.c.cluster == "")
    found: int | None = connection.scalar(query)
    return found


def held(connection: Connection, workspace: WorkspaceId) -> int:
    """How many they hold or wait for. Trials count while they have a run: a search makes many, and starts them when
    there is room."""
    is_live = (TASKS.c.workspace_id == workspace) & TASKS.c.ended.is_(None)
    tasks = select(TASKS.c.config).where(is_live, TASKS.c.state != _PAUSED, TASKS.c.type != _TRIAL)
    is_run = ALLOCATIONS.c.is_open.is_(True) & (ALLOCATIONS.c.phase != _OVER)
    runs = (
        select(func.sum(ALLOCATIONS.c.slots))
        .join(TASKS, TASKS.c.id == ALLOCATIONS.c.task_id)
        .where(is_live, TASKS.c.type == _TRIAL, is_run)
    )
    return sum(_slots(config or {}) for config in connection.scalars(tasks)) + (connection.scalar(runs) or 0)


def _slots(config: Document) -> int:
    found = (config.get("resources") or {}).get("slots")
    return found if isinstance(found, int) else 0


async def namespace(bindings: Bindings, store: Store, workspace: WorkspaceId) -> str:
    """There when it is returned: an administrator has named it, whether it is there or not."""
    bound = await bindings.namespaces(workspace)
    name = next((each.namespace for each in bound if not each.cluster), _USUAL)
    if name != _USUAL:
        try:
            await store.get(core.NAMESPACE, Key("", name))
        except errors.NotFound:
            with contextlib.suppress(errors.AlreadyExists):
                metadata = {"name": name, "labels": {WORKSPACE_LABEL: str(workspace)}}
                await write_one(store, Create(core.NAMESPACE, {"metadata": metadata}, _OPTIONS))
    return name
