"""Components that fail, and how their supervision ends."""

import asyncio

import pytest

from muster.api import errors
from muster.runtime.clock import Clock, SystemClock
from muster.runtime.supervision import supervise
from muster.testing.virtual import on_virtual_time


@on_virtual_time
async def test_one_that_fails_is_started_again_and_the_others_go_on(clock: Clock) -> None:
    starts: list[str] = []

    async def fails() -> None:
        starts.append("fails")
        raise ValueError("broken")

    async def lasts() -> None:
        starts.append("lasts")
        await asyncio.Event().wait()

    running = asyncio.create_task(supervise({"fails": fails, "lasts": lasts}, clock=clock))
    await clock.sleep(1)  # again after 0.1 s, 0.2 s more, 0.4 s more
    assert (starts.count("fails"), starts.count("lasts")) == (4, 1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_one_that_fails_while_it_is_cancelled_is_not_started_again() -> None:
    starts = 0

    async def stubborn() -> None:
        nonlocal starts
        starts += 1
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionError("broke while closing")

    running = asyncio.create_task(supervise({"stubborn": stubborn}, clock=SystemClock()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await running
    assert starts == 1


@on_virtual_time
async def test_a_server_that_is_away_is_told_in_one_line(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    async def asks() -> None:
        raise errors.Unavailable("nobody answers the webhook")

    running = asyncio.create_task(supervise({"queues": asks}, clock=clock))
    await clock.sleep(0.05)
    (told,) = caplog.records
    assert told.getMessage() == "queues cannot go on, and is started again: nobody answers the webhook"
    assert told.exc_info is None
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
