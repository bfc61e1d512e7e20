"""Generic tasks: they are paused and go on, have children and forks; and what crashes and races leave of that."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.determined.account_api import Refused
from tests.unit.server.determined.task_api import Life, World, a_world, alive, generic

from muster.api import errors
from muster.engines.protocol import AllocationId, Exit, Failure
from muster.tasks.allocation_states import Ended, Signal, State
from muster.tasks.contract import Exited
from muster.tasks.generic_states import GenericState, Settled, settle
from muster.tasks.submitting import Submitted
from muster.tasks.task_records import Task

DONE = Exit(0)
LINE = 'entrypoint: "sleep 1"'


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with a_world(tmp_path) as found:
        yield found


@pytest.fixture
async def life(world: World) -> AsyncIterator[Life]:
    async with alive(world) as found:
        yield found


async def refusal(life: Life, method: str, path: str, body: object = None) -> Refused:
    with pytest.raises(Refused) as caught:
        await life.api(method, path, body)
    return caught.value


async def test_a_generic_task_is_paused_and_goes_on(life: Life) -> None:
    with pytest.raises(Refused, match="must be a list of texts"):
        await generic(life)
    task = await generic(life, config='entrypoint: "sleep 1"')
    await life.until_runs(task)
    await life.api("POST", f"/tasks/{task}/pause")
    await life.until_state(task, "PAUSED")
    assert (await life.api("GET", f"/tasks/{task}"))["task"]["endTime"] is None
    await life.api("POST", f"/tasks/{task}/pause")  # again
    await life.api("POST", f"/tasks/{task}/unpause")
    await life.until_runs(task, 2)
    found = (await life.api("GET", f"/tasks/{task}"))["task"]
    assert [run["allocationId"] for run in found["allocations"]] == [f"{task}.2", f"{task}.1"]
    assert found["taskState"] == "GENERIC_TASK_STATE_ACTIVE"
    life.finish(task, DONE, 2)
    await life.until_ended(task)
    assert (await life.api("GET", f"/tasks/{task}"))["task"]["taskState"] == "GENERIC_TASK_STATE_COMPLETED"
    assert (await refusal(life, "POST", f"/tasks/{task}/pause")).status == 409
    assert (await refusal(life, "POST", f"/tasks/{task}/unpause")).status == 409


async def test_a_generic_task_that_had_to_make_room_goes_on(life: Life) -> None:
    task = await generic(life, config='entrypoint: "sleep 1"')
    await life.until_runs(task)
    life.engine.ask_back(AllocationId(f"{task}.1"))
    await life.until_runs(task, 2)
    assert (await life.api("GET", f"/tasks/{task}"))["task"]["taskState"] == "GENERIC_TASK_STATE_ACTIVE"
    await life.api("POST", f"/tasks/{task}/kill", {"taskId": task})
    await life.until_ended(task)
    assert (await life.tasks.get(task)).state == "CANCELED"


async def test_generic_tasks_have_children_and_forks(life: Life) -> None:
    line = 'entrypoint: "sleep 1"'
    files = [{"path": "a", "type": 48, "content": ""}]
    root = await generic(life, config=line, contextDirectory=files)
    child = await generic(life, config=line, parentId=root, inheritContext=True)
    grandchild = await generic(life, config=line, parentId=child, noPause=True)
    fork = await generic(life, config="", forkedFrom=root)
    for task, has_context in ((root, True), (child, True), (grandchild, False), (fork, True)):
        assert bool((await life.api("GET", f"/tasks/{task}/context_directory"))["b64Tgz"]) is has_context
    config = json.loads((await life.api("GET", f"/tasks/{fork}/config"))["config"])
    assert config["entrypoint"] == ["sleep 1"]
    assert "cannot be paused" in (await refusal(life, "POST", f"/tasks/{grandchild}/pause")).message
    await life.until_runs(grandchild)
    await life.api("POST", f"/tasks/{grandchild}/kill", {"taskId": grandchild, "killFromRoot": True})
    for task in (root, child, grandchild):
        await life.until_ended(task)
        assert (await life.tasks.get(task)).state == "CANCELED"
    assert (await life.tasks.get(fork)).ended is None


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"config": "[1"}, ""),
        ({"config": "a: 1\n---\nb: 2"}, "expected one document"),
        ({"config": 'entrypoint: "x"', "inheritContext": True}, "inheritContext"),
        ({"config": 'entrypoint: "x"', "parentId": "none"}, "task 'none' not found"),
        ({"config": "", "forkedFrom": "none"}, "task 'none' not found"),
        ({"config": 'entrypoint: "x"', "projectId": 99}, "99"),
    ],
)
async def test_generic_tasks_that_will_not_do(life: Life, body: dict[str, Any], says: str) -> None:
    found = await refusal(life, "POST", "/generic-tasks", body)
    assert found.status in (400, 404)
    assert says in found.message


# Told twice, and at bad moments


def exited(**how: bool) -> Exited:
    ended = Ended("so", **how)  # type: ignore[arg-type]
    return Exited(AllocationId("t.1"), "t", "GENERIC", ended, State(id=AllocationId("t.1"), ended=ended))


@pytest.mark.parametrize("how", [{"is_killed": True}, {"is_preempted": True}, {"is_stopped_early": True}])
@pytest.mark.parametrize("state", [GenericState.STOPPING_PAUSED, GenericState.STOPPING_CANCELED, GenericState.ACTIVE])
def test_an_exit_that_is_told_twice_is_settled_once(state: GenericState, how: dict[str, bool]) -> None:
    once = settle(state, exited(**how))
    assert settle(once.state, exited(**how)) == once
    assert (once.state is GenericState.PAUSED) == (state is GenericState.STOPPING_PAUSED)


def test_a_failure_is_an_error() -> None:
    bad = exited()
    failed = Exited(bad.allocation, bad.task, bad.task_type, Ended("so", Failure.RESOURCES_FAILED), bad.state)
    assert settle(GenericState.ACTIVE, failed) == Settled(GenericState.ERROR, True)


async def test_whoever_is_to_stop_when_the_server_dies_is_told_when_it_is_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with alive(world) as life:
        task = await generic(life, config=LINE)
        await life.until_runs(task)

        async def unheard(allocation: AllocationId, signal: Signal, reason: str) -> None:
            raise errors.Unavailable("dying")

        monkeypatch.setattr(life.allocations, "signal", unheard)
        assert (await refusal(life, "POST", f"/tasks/{task}/pause")).status == 503
    async with alive(world) as life, asyncio.TaskGroup() as group:
        running = group.create_task(life.tasks.run())
        await life.until_state(task, "PAUSED")
        running.cancel()


async def test_one_whose_going_on_was_not_acknowledged_is_still_paused_after_a_crash(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with alive(world) as life:
        task = await generic(life, config=LINE)
        await life.until_runs(task)
        await life.api("POST", f"/tasks/{task}/pause")
        await life.until_state(task, "PAUSED")

        async def dies(_task: Task) -> Submitted:
            return await asyncio.Event().wait()  # type: ignore[return-value]

        monkeypatch.setattr(life.tasks.submitter, "again", dies)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(life.api("POST", f"/tasks/{task}/unpause"), 0.05)
        assert (await life.tasks.get(task)).state == "ACTIVE"
        while (run := (await life.tasks.get(task)).allocation) is None or run.is_open:
            await asyncio.sleep(0.005)
    async with alive(world) as life:
        assert (await life.tasks.get(task)).state == "PAUSED"
        await life.api("POST", f"/tasks/{task}/unpause")
        await life.until_runs(task, 2)


async def test_a_kill_that_comes_while_it_begins_again_is_not_lost(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    task = await generic(life, config=LINE)
    await life.until_runs(task)
    begins, again = asyncio.Event(), life.tasks.submitter.again

    async def slowly(found: Task) -> Submitted:
        begins.set()
        await life.api("POST", f"/tasks/{task}/kill", {"taskId": task})
        return await again(found)

    monkeypatch.setattr(life.tasks.submitter, "again", slowly)
    life.engine.ask_back(AllocationId(f"{task}.1"))
    await begins.wait()
    await life.until_ended(task)
    found = await life.tasks.get(task)
    assert (found.state, len(found.allocations)) == ("CANCELED", 2)


async def test_one_that_can_never_run_again_is_over_and_says_why(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    task = await generic(life, config=LINE)
    await life.until_runs(task)

    async def refuses(_task: Task) -> Submitted:
        raise errors.NotFound('there is no pool "gone"')

    monkeypatch.setattr(life.tasks.submitter, "again", refuses)
    life.engine.ask_back(AllocationId(f"{task}.1"))
    await life.until_ended(task)
    assert (await life.tasks.get(task)).state == "ERROR"
