"""Requests to an engine: in order for each key, called off, parked, bounded, tried again."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api import errors
from muster.runtime.clock import VirtualClock, run_virtual
from muster.tasks.request_queue import Act, RequestQueue
from muster.testing.staging import running
from muster.testing.virtual import on_virtual_time


class Diary:
    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.written: list[str] = []

    def act(self, words: str, seconds: float = 1.0, error: Exception | None = None) -> Act:
        async def act() -> None:
            self.written.append(f"begin {words}")
            await self.clock.sleep(seconds)
            self.written.append(f"end {words}")
            if error is not None:
                raise error

        return act


@on_virtual_time
async def test_a_creation_that_waits_is_called_off_by_a_deletion(clock: VirtualClock) -> None:
    diary, queue = Diary(clock), RequestQueue[str](clock, workers=1)
    async with running(queue.run), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(queue.create("a", diary.act("make a")))
        second = tasks.create_task(queue.create("b", diary.act("make b")))
        await clock.sleep(0.5)
        assert (queue.counts().waiting, queue.counts().under_way) == (1, 1)
        queue.delete("b", diary.act("drop b"))
        assert await second is False
        assert await first is True
        await clock.sleep(5)
    assert diary.written == ["begin make a", "end make a", "begin drop b", "end drop b"]
    counts = queue.counts()
    assert (counts.created, counts.deleted, counts.called_off, counts.waiting) == (1, 1, 1, 0)
    assert not queue._keys


@on_virtual_time
async def test_deletions_wait_for_the_creation_that_is_under_way_and_none_is_lost(clock: VirtualClock) -> None:
    diary, queue = Diary(clock), RequestQueue[str](clock, workers=4)
    async with running(queue.run), asyncio.TaskGroup() as tasks:
        made = tasks.create_task(queue.create("a", diary.act("make", 10)))
        await clock.sleep(1)
        queue.delete("a", diary.act("first"))
        queue.delete("a", diary.act("second"))
        queue.delete("b", diary.act("other"))
        await clock.sleep(2)
        assert (queue.counts().parked, diary.written) == (2, ["begin make", "begin other", "end other"])
        assert await made
        await clock.sleep(5)
    assert diary.written[3:] == ["end make", "begin first", "end first", "begin second", "end second"]


@on_virtual_time
async def test_more_than_can_wait_is_refused(clock: VirtualClock) -> None:
    diary, queue = Diary(clock), RequestQueue[int](clock, workers=1, most_waiting=2)
    async with running(queue.run), asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(queue.create(number, diary.act(str(number))))
            await clock.sleep(0.1)
        with pytest.raises(errors.TooManyRequests, match="2 requests wait"):
            await queue.create(3, diary.act("3"))
        with pytest.raises(errors.AlreadyExists):
            await queue.create(2, diary.act("2"))
        queue.delete(9, diary.act("a deletion is never refused"))
        assert queue.counts().longest_wait_seconds == pytest.approx(0.2)
    assert queue.counts().refused == 1


@on_virtual_time
async def test_whoever_asked_is_told_what_went_wrong_but_deletions_are_tried_again(clock: VirtualClock) -> None:
    queue, tries = RequestQueue[str](clock), list[float]()

    async def stubborn() -> None:
        tries.append(clock.monotonic())
        if len(tries) < 3:
            raise errors.Unavailable("not now")

    async with running(queue.run):
        with pytest.raises(errors.Unavailable, match="no"):
            await queue.create("a", Diary(clock).act("a", error=errors.Unavailable("no")))
        queue.delete("a", stubborn)
        await clock.sleep(10)
    assert (len(tries), queue.counts().retried, queue.counts().deleted) == (3, 2, 1)


@on_virtual_time
async def test_a_creation_whose_asker_has_gone_is_called_off(clock: VirtualClock) -> None:
    diary, queue = Diary(clock), RequestQueue[str](clock, workers=1)
    async with running(queue.run), asyncio.TaskGroup() as tasks:
        tasks.create_task(queue.create("a", diary.act("a")))
        gone = tasks.create_task(queue.create("b", diary.act("b")))
        await clock.sleep(0.1)
        gone.cancel()
        await clock.sleep(5)
    assert diary.written == ["begin a", "end a"]


steps = st.lists(
    st.tuples(st.sampled_from("abc"), st.booleans(), st.sampled_from([0.0, 0.5, 1.5]), st.booleans()), max_size=25
)


@settings(max_examples=60, deadline=None)
@given(steps, st.integers(1, 4))
def test_of_each_key_one_at_a_time_and_in_order(asked: list[tuple[str, bool, float, bool]], workers: int) -> None:
    async def main(clock: VirtualClock) -> None:
        queue, busy, order = RequestQueue[str](clock, workers=workers), set[str](), list[tuple[str, int]]()

        def act(key: str, number: int, fails: bool) -> Act:
            tried: list[bool] = []

            async def act() -> None:
                assert key not in busy
                busy.add(key)
                await clock.sleep(1)
                busy.discard(key)
                tried.append(True)
                if fails and len(tried) == 1:
                    raise errors.Unavailable("once")
                order.append((key, number))

            return act

        async def create(key: str, do: Callable[[], Act]) -> None:
            try:
                await queue.create(key, do())
            except (errors.AlreadyExists, errors.Unavailable):
                return

        async with running(queue.run), asyncio.TaskGroup() as tasks:
            for number, (key, is_creation, pause, fails) in enumerate(asked):
                if is_creation:
                    tasks.create_task(create(key, lambda k=key, n=number: act(k, n, False)))  # type: ignore[misc]
                else:
                    queue.delete(key, act(key, number, fails))
                await clock.sleep(pause)
            await clock.sleep(300)
        counts = queue.counts()
        assert (counts.waiting, counts.parked, counts.under_way, len(queue._keys)) == (0, 0, 0, 0)
        deletions = {n for n, (_, is_creation, _, _) in enumerate(asked) if not is_creation}
        assert deletions <= {number for _, number in order}, "a deletion was lost"
        if not any(fails for *_, fails in asked):
            for key in "abc":
                numbers = [number for found, number in order if found == key]
                assert numbers == sorted(numbers)

    run_virtual(main)
