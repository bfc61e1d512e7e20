"""How many slots the tasks of a workspace may hold, and in which namespace they run."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.determined.account_api import Refused
from tests.unit.server.determined.task_api import Life, a_world, alive

from muster.api import core
from muster.api.objects import Key
from muster.engines.protocol import Exit


@pytest.fixture
async def life(tmp_path: Path) -> AsyncIterator[Life]:
    async with a_world(tmp_path) as world, alive(world) as found:
        yield found


async def workspace(life: Life, **more: Any) -> int:
    found: int = (await life.api("POST", "/workspaces", {"name": "lab", **more}))["workspace"]["id"]
    return found


async def launch(life: Life, where: int, slots: int) -> str:
    body = {"config": {"entrypoint": ["true"], "resources": {"slots": slots}}, "workspaceId": where}
    found: str = (await life.api("POST", "/commands", body))["command"]["id"]
    return found


async def test_tasks_of_a_workspace_hold_no_more_than_its_quota(life: Life) -> None:
    lab = await workspace(life)
    await life.api("POST", f"/workspaces/{lab}/set-resource-quota", {"id": lab, "clusterQuotaPairs": {"": 3}})
    first = await launch(life, lab, 2)
    with pytest.raises(Refused) as caught:
        await launch(life, lab, 2)
    assert caught.value.status == 429
    assert "may hold 3 slots, its tasks hold or wait for 2, and this one needs 2" in caught.value.message
    assert len((await life.api("GET", "/commands"))["commands"]) == 1
    await launch(life, lab, 1)
    await launch(life, lab, 0)
    await launch(life, 1, 4)
    life.finish(first, Exit(0))
    await life.until_ended(first)
    await launch(life, lab, 2)


async def test_the_namespace_of_a_workspace_is_made_where_it_is_missing(life: Life) -> None:
    lab = await workspace(life, clusterNamespaceMeta={"": {"namespace": "team-x"}})
    task = await launch(life, lab, 1)
    assert life.world.machine.entries[f"{task}.1"].request.namespace == "team-x"  # type: ignore[index]
    await life.world.store.get(core.NAMESPACE, Key("", "team-x"))
    await launch(life, lab, 1)
