"""Starting allocations, and starting the service itself again: what goes wrong halfway, and what comes twice."""

import asyncio
from collections.abc import Mapping

import pytest
from tests.unit.tasks.service_worlds import DONE, PART, World, alive

from muster.api import errors
from muster.engines.protocol import Failure, Request
from muster.runtime.clock import VirtualClock
from muster.tasks.allocation_states import Phase
from muster.testing.engines import PretendEngine
from muster.testing.virtual import on_virtual_time


@on_virtual_time
async def test_two_who_start_the_same_do_not_take_each_others_ports_away(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await clock.sleep(0.1)
        done = await asyncio.gather(life.start(), life.start(), return_exceptions=True)
        assert sorted(type(one).__name__ for one in done) == ["AlreadyExists", "NoneType"]
        assert dict(life.service.ports.taken) == {29400: "t.1"}
        await clock.sleep(1)
        with pytest.raises(errors.AlreadyExists):
            await life.start()
        assert dict(life.service.ports.taken) == {29400: "t.1"}
        assert life.state().phase is Phase.RUNNING


class BrokenEngine(PretendEngine):
    """Makes it, but the answer never comes: what is at the other end has closed the connection."""

    async def allocate(self, request: Request, secrets: Mapping[str, str], *, is_restored: bool = False) -> None:
        await super().allocate(request, secrets, is_restored=is_restored)
        raise ConnectionResetError("the store has gone away")


@on_virtual_time
async def test_whatever_goes_wrong_in_a_start_leaves_nothing_of_it(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world, BrokenEngine(world.machine)) as life:
        with pytest.raises(ConnectionResetError):
            await life.start()
        await clock.sleep(1)
        assert (life.service.count, dict(life.service.ports.taken)) == (0, {})
        assert (world.machine.entries, world.sessions.open, world.exits) == ({}, {}, [])
        assert (await world.row())["is_open"] is False


@on_virtual_time
async def test_a_service_that_is_started_again_over_the_same_engine_hears_what_it_has_missed(
    clock: VirtualClock,
) -> None:
    world = World(clock)
    await world.task("t")
    engine = PretendEngine(world.machine)
    async with alive(world, engine) as life:
        await life.start()
        await clock.sleep(1)
    engine.finish(PART, DONE)  # told to nobody
    async with alive(world, engine):
        await clock.sleep(1)
    assert [exit.ended.exit_code for exit in world.exits] == [0]


class GoneAtOnce(PretendEngine):
    """It is there when one looks, and gone when it is taken up."""

    async def allocate(self, request: Request, secrets: Mapping[str, str], *, is_restored: bool = False) -> None:
        if is_restored:
            self.machine.entries.clear()
        await super().allocate(request, secrets, is_restored=is_restored)


@on_virtual_time
async def test_what_goes_while_it_is_restored_is_not_made_again(clock: VirtualClock) -> None:
    world = World(clock)
    await world.task("t")
    async with alive(world) as life:
        await life.start()
        await clock.sleep(1)
    async with alive(world, GoneAtOnce(world.machine)):
        await clock.sleep(1)
    assert world.machine.entries == {}
    assert [exit.ended.failure for exit in world.exits] == [Failure.RESTORE_ERROR]
