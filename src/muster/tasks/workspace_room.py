"""What a workspace gives its tasks: how many slots they may hold together, and the namespace of their pods."""

import contextlib
from typing import Final

from sqlalchemy import Connection, select

from muster.accounts.bindings import Bindings
from muster.accounts.callers import WorkspaceId
from muster.api import core, errors
from muster.api.objects import Key
from muster.api.raw import Document
from muster.records.tables_accounts import WORKSPACE_QUOTAS
from muster.records.tables_tasks import TASKS
from muster.store.protocol import Create, Options, Store, write_one

_USUAL: Final = "default"
_OPTIONS: Final = Options(manager="muster-tasks")
_PAUSED: Final = "PAUSED"


def check(connection: Connection, workspace: WorkspaceId, slots: int) -> None:
    """In the transaction that adds the task, so that two at once cannot both find the last room. Tasks that wait count
    as well. Raises TooManyRequests."""
    if not slots:
        return
    quota = WORKSPACE_QUOTAS
    query = select(quota.c.slots).where(quota.c.workspace_id == workspace, quota.c.cluster == "")
    most = connection.scalar(query)
    if most is None:
        return
    live = select(TASKS.c.config).where(
        TASKS.c.workspace_id == workspace, TASKS.c.ended.is_(None), TASKS.c.state != _PAUSED
    )
    held = sum(_slots(config or {}) for config in connection.scalars(live))
    if held + slots > most:
        raise errors.TooManyRequests(
            f"resources.slots: the workspace may hold {most} slots, its tasks hold or wait for {held}, and this one "
            f"needs {slots}; end some of them or ask for fewer"
        )


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
                await write_one(store, Create(core.NAMESPACE, {"metadata": {"name": name}}, _OPTIONS))
    return name
