import asyncio
from collections import defaultdict

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from muster.runtime.clock import SystemClock, VirtualClock, run_virtual
from muster.runtime.workqueue import WorkQueue
from muster.testing.virtual import on_virtual_time


@on_virtual_time
async def test_a_key_added_twice_is_worked_on_once(clock: VirtualClock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock)
    for key in "aba":
        queue.add(key)
    assert (queue.depth, queue.adds) == (2, 2)
    assert [await queue.get(), await queue.get()] == ["a", "b"]
    assert queue.depth == 0


@on_virtual_time
async def test_a_key_added_while_worked_on_comes_back_after_done(clock: VirtualClock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    assert queue.depth == 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(100):
            await queue.get()
    queue.done("a")
    assert await queue.get() == "a"


@on_virtual_time
async def test_the_earliest_of_several_delays_counts_and_fires_once(clock: VirtualClock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add_after("a", 10)
    queue.add_after("a", 3)
    queue.add_after("a", 7)
    assert await queue.get() == "a"
    assert clock.monotonic() == pytest.approx(3)
    queue.done("a")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(100):
            await queue.get()


@on_virtual_time
async def test_a_delay_wakes_a_worker_that_already_waits_for_a_later_one(clock: VirtualClock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock)
    queue.add_after("late", 50)
    async with asyncio.TaskGroup() as group:
        got = group.create_task(queue.get(), name="worker")
        await clock.sleep(1)
        queue.add_after("soon", 2)
    assert got.result() == "soon"
    assert clock.monotonic() == pytest.approx(3)


@on_virtual_time
async def test_retries_double_up_to_the_limit_and_start_over_after_forget(clock: VirtualClock) -> None:
    queue: WorkQueue[str] = WorkQueue(clock, base_delay=0.005, max_delay=0.03)
    assert [queue.retry("a") for _ in range(5)] == [0.005, 0.01, 0.02, 0.03, 0.03]
    assert queue.retry("other") == 0.005
    queue.forget("a")
    assert queue.retry("a") == 0.005
    assert queue.retries == 7


_KEYS = st.sampled_from("abcd")
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), _KEYS, st.just(0.0)),
        st.tuples(st.just("after"), _KEYS, st.floats(0.001, 5)),
        st.tuples(st.just("retry"), _KEYS, st.just(0.0)),
        st.tuples(st.just("pass"), st.just("-"), st.floats(0.001, 3)),
    ),
    max_size=40,
)


@given(steps=_STEPS, workers=st.integers(1, 4), work_seconds=st.floats(0.0, 2))
def test_no_wish_is_lost_and_no_key_has_two_workers(
    steps: list[tuple[str, str, float]], workers: int, work_seconds: float
) -> None:
    """The model: a wished key is worked on, not before the first wish is due, at most once a wish, never twice at once;
    and no work starts that nobody wished for."""

    async def main(clock: VirtualClock) -> None:
        queue: WorkQueue[str] = WorkQueue(clock, base_delay=0.01, max_delay=1)
        wishes: dict[str, list[float]] = defaultdict(list)
        starts: dict[str, list[float]] = defaultdict(list)
        active: set[str] = set()

        async def work() -> None:
            while True:
                key = await queue.get()
                assert key not in active
                active.add(key)
                starts[key].append(clock.monotonic())
                await clock.sleep(work_seconds)
                active.discard(key)
                queue.done(key)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work(), name=f"worker-{number}") for number in range(workers)]
            for verb, key, seconds in steps:
                if verb == "add":
                    queue.add(key)
                    wishes[key].append(clock.monotonic())
                elif verb == "after":
                    queue.add_after(key, seconds)
                    wishes[key].append(clock.monotonic() + seconds)
                elif verb == "retry":
                    wishes[key].append(clock.monotonic() + queue.retry(key))
                else:
                    await clock.sleep(seconds)
            await clock.sleep(1000)
            for task in tasks:
                task.cancel()

        assert not active
        assert queue.depth == 0
        for key, times in wishes.items():
            assert starts[key], key
            assert len(starts[key]) <= len(times)
            assert starts[key][0] >= min(times) - 1e-6
        assert set(starts) <= set(wishes)

    run_virtual(main)


@given(steps=st.lists(st.tuples(_KEYS, st.floats(0, 2)), min_size=1, max_size=30), work_seconds=st.floats(0.0, 1))
def test_every_add_is_followed_by_a_start(steps: list[tuple[str, float]], work_seconds: float) -> None:
    async def main(clock: VirtualClock) -> None:
        queue: WorkQueue[str] = WorkQueue(clock)
        order: list[tuple[str, str]] = []

        async def work() -> None:
            while True:
                key = await queue.get()
                order.append(("start", key))
                await clock.sleep(work_seconds)
                queue.done(key)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work(), name=f"worker-{number}") for number in range(2)]
            for key, pause in steps:
                order.append(("add", key))
                queue.add(key)
                await clock.sleep(pause)
            await clock.sleep(1000)
            for task in tasks:
                task.cancel()
        for key in {key for key, _ in steps}:
            last_add = len(order) - order[::-1].index(("add", key))
            assert ("start", key) in order[last_add:]

    run_virtual(main)


def test_workers_that_a_loop_wakes_a_hair_too_early_do_not_spin() -> None:
    """Each kept the loop busy while the others waited for next to nothing, and so virtual time stood still."""

    class Watched(VirtualClock):
        looks = 0

        def monotonic(self) -> float:
            self.looks += 1
            assert self.looks < 1000
            return super().monotonic()

    async def main(clock: VirtualClock) -> None:
        queue: WorkQueue[str] = WorkQueue(Watched(clock._loop))
        queue.add_after("a", 3)
        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(queue.get(), name="worker-0")]
            await clock.sleep(3 - 4e-7)
            for number in range(1, 8):
                workers.append(group.create_task(queue.get(), name=f"worker-{number}"))
                await asyncio.sleep(0)
            await clock.sleep(10)
            for worker in workers:
                worker.cancel()
        assert [worker.result() for worker in workers if not worker.cancelled()] == ["a"]

    run_virtual(main)


def test_what_is_due_at_once_is_no_trouble_for_uvloop() -> None:
    """Whose handles do not say when they are due, where that is now."""

    async def main() -> list[str]:
        queue: WorkQueue[str] = WorkQueue(SystemClock())
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.add_after("soon", 1e-4)
        queue.add_after("as soon", 1e-4)
        return [await asyncio.wait_for(waiting, 5), await asyncio.wait_for(queue.get(), 5)]

    assert sorted(uvloop.run(main())) == ["as soon", "soon"]
