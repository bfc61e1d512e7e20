"""The server's own log, kept and followed."""

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from muster.runtime.log_ring import LogRing


@pytest.fixture
def ring() -> LogRing:
    return LogRing(most=3)


@pytest.fixture
def log(ring: LogRing) -> Iterator[logging.Logger]:
    made = logging.getLogger("test.log_ring")
    made.setLevel(logging.INFO)
    made.propagate = False
    made.addHandler(ring)
    yield made
    made.removeHandler(ring)


def test_the_newest_are_kept(ring: LogRing, log: logging.Logger) -> None:
    for number in range(5):
        log.info("line %d", number)
    assert [(line.id, line.message) for line in ring.lines()] == [
        (3, "test.log_ring: line 2"), (4, "test.log_ring: line 3"), (5, "test.log_ring: line 4"),
    ]  # fmt: skip
    assert [line.id for line in ring.lines(after=4)] == [5]


def test_what_fails_is_kept_with_its_traceback_but_not_without_end(ring: LogRing, log: logging.Logger) -> None:
    try:
        raise ValueError("x" * 100_000)
    except ValueError:
        log.exception("failed")
    [line] = ring.lines()
    assert line.level == logging.ERROR
    assert "Traceback" in line.message
    assert len(line.message) <= 16 * 1024


async def test_followers_hear_of_lines_from_other_threads_and_leave_nothing(ring: LogRing, log: logging.Logger) -> None:
    log.info("before")
    following = ring.follow(after=1)
    waiting = asyncio.ensure_future(anext(following))
    await asyncio.sleep(0)
    thread = threading.Thread(target=log.warning, args=("from afar",))
    thread.start()
    [line] = await asyncio.wait_for(waiting, 5)
    thread.join()
    assert (line.id, line.message) == (2, "test.log_ring: from afar")
    await following.aclose()
    log.info("after")


async def test_a_follower_that_is_slow_misses_only_what_is_not_kept(ring: LogRing, log: logging.Logger) -> None:
    following = ring.follow(after=0)
    for number in range(5):
        log.info("%d", number)
    assert [line.id for line in await anext(following)] == [3, 4, 5]
    await following.aclose()
