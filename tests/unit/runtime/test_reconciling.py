import asyncio
import logging

import pytest

from muster.api import errors
from muster.runtime.clock import VirtualClock
from muster.runtime.reconciling import Reconciler
from muster.runtime.supervision import supervise
from muster.testing.virtual import on_virtual_time


@on_virtual_time
async def test_an_exception_is_logged_with_its_key_backed_off_and_survived(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[str, float]] = []

    async def reconcile(key: str) -> float | None:
        seen.append((key, clock.monotonic()))
        if key == "bad" and len(seen) < 4:
            raise ValueError("no good")
        return None

    reconciler = Reconciler("test", reconcile, clock=clock)
    reconciler.queue.add("bad")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await reconciler.run()
    assert [key for key, _ in seen] == ["bad"] * 4
    assert [at for _, at in seen] == pytest.approx([0, 0.005, 0.015, 0.035])
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(failures) == 3
    assert "bad" in failures[0].getMessage()
    assert failures[0].exc_info


@on_virtual_time
async def test_a_lost_race_is_retried_without_noise(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    attempts = 0

    async def reconcile(key: str) -> float | None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise errors.Conflict("changed meanwhile")
        return None

    reconciler = Reconciler("test", reconcile, clock=clock)
    reconciler.queue.add("key")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await reconciler.run()
    assert attempts == 2
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]


@on_virtual_time
async def test_a_reconcile_may_ask_to_be_called_again(clock: VirtualClock) -> None:
    times = []

    async def reconcile(key: str) -> float | None:
        times.append(clock.monotonic())
        return 10.0

    reconciler = Reconciler("test", reconcile, clock=clock)
    reconciler.queue.add("key")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(35):
            await reconciler.run()
    assert times == pytest.approx([0, 10, 20, 30])


@on_virtual_time
async def test_workers_share_the_queue(clock: VirtualClock) -> None:
    finished = {}

    async def reconcile(key: int) -> float | None:
        await clock.sleep(1)
        finished[key] = clock.monotonic()
        return None

    reconciler = Reconciler("test", reconcile, clock=clock, workers=4)
    for key in range(8):
        reconciler.queue.add(key)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await reconciler.run()
    assert sorted(finished.values()) == pytest.approx([1] * 4 + [2] * 4)


@on_virtual_time
async def test_a_component_that_fails_or_ends_is_started_again_while_others_go_on(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    starts: dict[str, int] = {"fails": 0, "ends": 0, "lasts": 0}

    async def fails() -> None:
        starts["fails"] += 1
        await clock.sleep(1)
        raise RuntimeError("broken")

    async def ends() -> None:
        starts["ends"] += 1
        await clock.sleep(100)

    async def lasts() -> None:
        starts["lasts"] += 1
        await clock.sleep(1e9)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(350):
            await supervise({"fails": fails, "ends": ends, "lasts": lasts}, clock=clock)
    assert starts["lasts"] == 1
    assert starts["ends"] == 4  # each ran long enough for the pause to stay short
    assert 10 < starts["fails"] < 30  # the pause grows to half a minute
    assert "fails failed" in caplog.text
    assert "ends ended by itself" in caplog.text
