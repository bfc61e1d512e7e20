import asyncio
import time

import pytest

from muster.runtime.clock import Deadlock, SystemClock, VirtualClock, run_virtual
from muster.testing.virtual import on_virtual_time


def test_days_pass_in_no_time() -> None:
    async def main(clock: VirtualClock) -> tuple[float, float]:
        await clock.sleep(3 * 86_400)
        return clock.monotonic(), clock.now()

    started = time.monotonic()
    assert run_virtual(main) == (3 * 86_400, 1_700_000_000 + 3 * 86_400)
    assert time.monotonic() - started < 5


@on_virtual_time
async def test_sleepers_wake_in_the_order_of_their_deadlines(clock: VirtualClock) -> None:
    woken = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as group:
        for name, seconds in [("c", 3.0), ("a", 0.1), ("b", 2.0)]:
            group.create_task(sleeper(name, seconds), name=name)
    assert woken == [("a", 0.1), ("b", 2.0), ("c", 3.0)]


@on_virtual_time
async def test_the_loops_own_timeouts_keep_virtual_time(clock: VirtualClock) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1000):
            await asyncio.Event().wait()
    assert clock.monotonic() == pytest.approx(1000)


@on_virtual_time
async def test_the_wall_can_jump_while_durations_hold(clock: VirtualClock) -> None:
    wall, monotonic = clock.now(), clock.monotonic()
    clock.jump(-3600)
    assert (clock.now() - wall, clock.monotonic() - monotonic) == (-3600, 0)


def test_a_deadlock_is_an_error_that_names_who_waits() -> None:
    async def main(clock: VirtualClock) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait(), name="waits-for-nobody")

    with pytest.raises(Deadlock, match="waits-for-nobody"):
        run_virtual(main, patience=0)


def test_a_result_from_a_thread_is_not_a_deadlock() -> None:
    def think() -> int:
        time.sleep(0.01)
        return 7

    async def main(clock: VirtualClock) -> int:
        return await asyncio.to_thread(think)

    assert run_virtual(main) == 7


def test_time_keeps_its_precision_after_a_year() -> None:
    async def main(clock: VirtualClock) -> int:
        await clock.sleep(366 * 86_400)
        ticks = 0
        while ticks < 1000:
            await clock.sleep(0.001)
            ticks += 1
        return ticks

    assert run_virtual(main) == 1000


async def test_the_system_clock_moves() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    await clock.sleep(0.001)
    assert clock.monotonic() > before
    assert abs(clock.now() - time.time()) < 5
