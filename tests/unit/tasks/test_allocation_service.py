"""The service of allocations: what is durable when, what is told whom, and what a crash leaves."""

import asyncio

import pytest
from sqlalchemy import update
from tests.unit.tasks.service_worlds import BAD, DONE, ID, PART, World, alive

from muster.accounts.callers import UserId
from muster.api import errors
from muster.engines.protocol import AllocationId, Failure, ResourceId
from muster.records.tables_tasks import ALLOCATIONS
from muster.runtime.clock import VirtualClock
from muster.tasks.allocation_states import Phase, Signal
from muster.tasks.contract import Exited, Launch
from muster.testing.engines import a_request
from muster.testing.virtual import on_virtual_time


@on_virtual_time
async def test_a_life_from_start_to_report(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await life.start()
        await clock.sleep(1)
        assert life.state().phase is Phase.RUNNING
        target = life.service.proxies.find("t:2900")
        assert target is not None
        assert (target.address, life.service.proxies.find("t")) == ("127.0.0.1", target)
        assert life.service.proxies.find("t:2901") is None
        assert life.service.ports.taken == {29400: "t.1"}
        assert world.machine.entries[ID].secrets == {"DET_SESSION_TOKEN": "token-1"}
        template = world.machine.entries[ID].request.template
        env = {one["name"]: one["value"] for one in template["spec"]["containers"][0]["env"]}
        assert (env["DET_ALLOCATION_ID"], env["DET_TASK_ID"], env["C10D_PORT"]) == ("t.1", "t", "29400")
        life.finish(exit=BAD)
        await clock.sleep(1)
        assert [(exit.allocation, exit.task, exit.ended.failure) for exit in world.exits] == [
            ("t.1", "t", Failure.RESOURCES_FAILED)
        ]
        assert (life.service.count, life.service.ports.taken, life.service.proxies.find("t")) == (0, {}, None)
        assert (world.sessions.open, world.machine.entries) == ({}, {})
        row = await world.row()
        assert (row["phase"], row["is_open"], row["exit_code"], row["exit_error"]) == (
            "TERMINATED", False, 1, "it broke",
        )  # fmt: skip
        assert row["started"] is not None
        assert "token" not in str(row)
        assert world.lines.told[-1] == ("t", "ERROR", "allocation failed: it broke")
        assert world.phases[0] is Phase.PENDING
        assert world.phases[-1] is Phase.TERMINATED


@on_virtual_time
async def test_what_cannot_run_is_refused_at_once_and_not_reported_again(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        with pytest.raises(errors.NotFound, match="no pool"):
            await life.start(pool="nowhere")
        with pytest.raises(errors.NotFound, match="task u not found"):
            await life.start("u.1")
        await life.start()
        with pytest.raises(errors.AlreadyExists):
            await life.start()
        life.finish()
        await clock.sleep(1)
        with pytest.raises(errors.AlreadyExists):
            await life.start()
        await clock.sleep(1)
        assert len(world.exits) == 1
        assert life.service.ports.taken == {}


@on_virtual_time
async def test_a_creation_that_fails_is_whoever_asked_to_hear(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:

        async def refuse(request: object, secrets: object, *, is_restored: bool = False) -> None:
            raise errors.Unavailable("the cluster is away")

        life.engine.allocate = refuse  # type: ignore[method-assign]
        with pytest.raises(errors.Unavailable, match="away"):
            await life.start()
        await clock.sleep(1)
        row = await world.row()
        assert (row["phase"], row["is_open"], world.exits, world.sessions.open) == ("TERMINATED", False, [], {})


@on_virtual_time
async def test_one_that_waits_is_ended_without_having_run(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t", "u")
    async with alive(world) as life:
        await life.start("u.1", slots=4)
        await life.start(slots=4)
        await clock.sleep(1)
        assert life.state().phase is Phase.PENDING
        await life.service.signal(ID, Signal.KILL, "changed my mind")
        await clock.sleep(1)
        assert world.exits[0].ended.reason == "allocation aborted after exit before start: changed my mind"
        assert (await world.row())["started"] is None
        await life.service.signal(ID, Signal.KILL, "once more")
        assert list(world.machine.entries) == ["u.1"]


@on_virtual_time
async def test_a_lost_kill_is_repeated(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await life.start()
        await clock.sleep(1)
        world.machine.is_deaf = True
        await life.service.signal(ID, Signal.KILL, "enough")
        await clock.sleep(70)
        assert len(world.machine.kills) == 3
        world.machine.is_deaf = False
        await clock.sleep(30)
        assert world.exits[0].ended.is_killed


@on_virtual_time
async def test_whoever_is_asked_to_stop_has_its_time(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await life.start(is_preemptible=True, preemption_timeout_seconds=100)
        await clock.sleep(1)
        await life.harness.ready(ID)
        asked = asyncio.create_task(life.harness.should_stop(ID, 60))
        assert not await life.harness.should_stop(ID, 0)
        await clock.sleep(5)
        life.engine.ask_back(ID)
        assert await asked
        assert await life.harness.should_stop(ID, 60), "who comes later is told at once"
        await life.harness.acknowledge(ID)
        await life.harness.acknowledge(ID)
        await clock.sleep(50)
        assert world.machine.kills == []
        life.finish()
        await clock.sleep(1)
        assert world.exits[0].ended.is_preempted
        assert not await life.harness.should_stop(ID, 0), "one that is over is answered, too"


@on_virtual_time
async def test_time_that_runs_out_runs_out_also_across_a_restart(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await life.start(is_preemptible=True, preemption_timeout_seconds=100)
        await clock.sleep(1)
        await life.harness.ready(ID)
        await life.service.signal(ID, Signal.TERMINATE, "paused")
    await clock.sleep(60)
    async with alive(world) as life:
        assert await life.harness.should_stop(ID, 60), "it is still to stop"
        await clock.sleep(30)
        assert world.machine.kills == []
        await clock.sleep(20)
        assert world.machine.kills == [PART]
        assert world.exits[0].ended.is_killed


# Crashes


@on_virtual_time
async def test_what_runs_is_taken_up_again_and_runs_on(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await life.start()
        await clock.sleep(1)
    await clock.sleep(100)
    async with alive(world) as life:
        await clock.sleep(1)
        assert life.state().phase is Phase.RUNNING
        assert (life.service.ports.taken, world.sessions.opened) == ({29400: "t.1"}, 1)
        assert life.service.proxies.find("t") is not None
        life.finish()
        await clock.sleep(1)
    assert [exit.ended.is_stopped_early for exit in world.exits] == [True]


@on_virtual_time
async def test_what_ended_while_nobody_looked_is_reported_with_its_code(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await life.start()
        await clock.sleep(1)
        engine = life.engine
    engine.finish(PART, BAD)
    async with alive(world):
        await clock.sleep(1)
    assert [exit.ended.exit_code for exit in world.exits] == [1]
    async with alive(world):
        await clock.sleep(1)
    assert len(world.exits) == 1, "it was reported once"


@on_virtual_time
async def test_what_is_gone_without_a_trace_is_a_failure_that_does_not_count(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await life.start()
        await clock.sleep(45)
    stopped_at = clock.now()
    world.machine.entries.clear()
    await clock.sleep(5000)
    async with alive(world):
        await clock.sleep(1)
    assert world.exits[0].ended.failure is Failure.RESTORE_ERROR
    ended = (await world.row())["ended"]
    assert isinstance(ended, float)
    assert stopped_at - 60 <= ended <= stopped_at, "it is not counted for the time that the server was away"


@on_virtual_time
async def test_what_nobody_knows_is_released(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await life.engine.allocate(a_request("nobody.1"), {})
    async with alive(world):
        await clock.sleep(1)
    assert not world.machine.entries


@on_virtual_time
async def test_one_record_that_cannot_be_read_does_not_stop_the_others(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t", "u")
    async with alive(world) as life:
        await life.start()
        await life.start("u.1")
        await clock.sleep(1)
    await world.database.write(
        lambda connection: connection.execute(update(ALLOCATIONS).where(ALLOCATIONS.c.id == "t.1").values(state="{"))
    )
    async with alive(world) as life:
        await clock.sleep(1)
        assert life.state(AllocationId("u.1")).phase is Phase.RUNNING
        assert list(world.machine.entries) == ["u.1"]
        assert (await world.row())["is_open"] is False
        assert [(exit.allocation, exit.ended.failure) for exit in world.exits] == [("t.1", Failure.RESTORE_ERROR)]
        assert "its record cannot be read" in world.exits[0].ended.reason


@on_virtual_time
async def test_an_owner_who_fails_is_told_again(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t", "u")
    tries: list[Exited] = []
    async with alive(world) as life:

        async def stubborn(exit: Exited) -> None:
            tries.append(exit)
            if len(tries) < 3:
                raise ValueError("not yet")
            await life.start("u.1")  # the next one, from within

        life.service._exits["COMMAND"] = stubborn
        await life.start()
        await clock.sleep(1)
        life.finish()
        await clock.sleep(5)
        assert len(tries) == 3
        assert life.state(AllocationId("u.1")).phase is Phase.RUNNING


@on_virtual_time
async def test_an_owner_who_was_not_told_before_the_crash_is_told_after_it(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:

        async def hang(exit: Exited) -> None:
            await asyncio.Event().wait()

        life.service._exits["COMMAND"] = hang
        await life.start()
        await clock.sleep(1)
        life.finish()
        await clock.sleep(1)
    async with alive(world):
        await clock.sleep(1)
    assert len(world.exits) == 1


@on_virtual_time
async def test_records_that_are_away_hold_everything_up_but_lose_nothing(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await life.start()
        await clock.sleep(1)
        world.database.failures = [OSError("disk full")] * 3
        life.finish(exit=BAD)
        await clock.sleep(0.2)
        assert not world.exits
        world.sessions.failures = 2
        await clock.sleep(30)
        assert len(world.exits) == 1
        assert world.sessions.open == {}


@on_virtual_time
async def test_whoever_asks_while_it_restores_waits(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await life.start()
        await clock.sleep(1)
    async with alive(world) as life:
        await life.harness.ready(ID)
        assert life.state().is_ready
        with pytest.raises(errors.NotFound):
            await life.harness.ready(AllocationId("unknown.1"))
    with pytest.raises(errors.Unavailable, match="restoring"):
        await life.harness.ready(ID)


@on_virtual_time
async def test_many_at_once_and_a_crash_in_between_lose_and_double_nothing(clock: VirtualClock) -> None:
    world = World(clock)
    names = [f"task{number}" for number in range(30)]
    await world.task(*names)
    ids = [AllocationId(f"{name}.1") for name in names]
    for round in range(6):
        async with alive(world) as life:
            if round == 0:
                for id in ids:
                    await life.start(id, slots=1)
            await clock.sleep(0.3 * round)
            running = [id for id in ids if (found := life.service.state(id)) and found.phase is Phase.RUNNING]
            for number, id in enumerate(running):
                if number % 3 == round % 3:
                    life.finish(ResourceId(f"{id}-0"), DONE)
                elif number % 3 == 1:
                    await life.service.signal(id, Signal.KILL, "so")
            if round % 2:
                await clock.sleep(0.01)  # and gone, whatever was under way
    async with alive(world) as life:
        while len(world.exits) < len(names):
            await clock.sleep(1)
            for id in ids:
                if (found := life.service.state(id)) and found.phase is Phase.RUNNING:
                    life.finish(ResourceId(f"{id}-0"), DONE)
        await clock.sleep(1)
    assert sorted(exit.allocation for exit in world.exits) == sorted(ids), "each is reported, and once"
    assert (world.machine.entries, world.sessions.open) == ({}, {})


@on_virtual_time
async def test_whoever_goes_away_while_it_is_started_does_not_stop_it(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await clock.sleep(0.1)
        starting = asyncio.create_task(life.start())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        starting.cancel()
        await clock.sleep(1)
        assert life.state().phase is Phase.RUNNING


@on_virtual_time
async def test_secrets_reach_the_engine_and_nothing_else(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await life.service.start(Launch(a_request(), UserId(1), secrets={"DET_USER_TOKEN": "hush-hush"}))
        await clock.sleep(1)
        assert world.machine.entries[ID].secrets["DET_USER_TOKEN"] == "hush-hush"
        assert "hush-hush" not in str(await world.row())
