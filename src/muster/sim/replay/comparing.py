"""Several replays at once, each in a process of its own: they share nothing but how far they have come."""

import multiprocessing
import os
from collections.abc import Callable, MutableSequence, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from functools import partial
from typing import Final, TypeAlias

from muster.sim.replay.report import Report, report
from muster.sim.replay.running import Setup, replay

Told: TypeAlias = Callable[[int], None]
_LOOK_EVERY: Final = 0.2  # seconds
_ended: MutableSequence[int] = []
"""By replay, how many of its jobs have ended. In a worker: memory that all of them share."""


def processors() -> int:
    """How many of them this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compare(setups: Sequence[Setup], workers: int, told: Told | None = None) -> list[Report]:
    """In the order of the setups, and the same whatever the number of `workers`. `told`: now and then, how many jobs
    have ended in all of them together. Raises BadRequest for jobs that can never start."""
    if min(workers, len(setups)) == 1:
        return _one_by_one(setups, told)
    # Not forked: whoever draws the progress has threads.
    context = multiprocessing.get_context("spawn")
    ended = context.Array("q", len(setups), lock=False)
    with ProcessPoolExecutor(min(workers, len(setups)), context, _share, (ended,)) as pool:
        replays = [pool.submit(_replayed, number, setup) for number, setup in enumerate(setups)]
        try:
            _watch(replays, lambda: sum(ended), told)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [each.result() for each in replays]


def _one_by_one(setups: Sequence[Setup], told: Told | None) -> list[Report]:
    found: list[Report] = []
    before = 0
    for setup in setups:
        found.append(report(replay(setup, None if told is None else partial(_tell_beyond, told, before))))
        before += len(setup.trace.jobs)
    return found


def _tell_beyond(told: Told, before: int, ended: int) -> None:
    told(before + ended)


def _watch(replays: Sequence[Future[Report]], ended: Callable[[], int], told: Told | None) -> None:
    """Until all are done, or one has failed."""
    left = set(replays)
    while left:
        done, left = wait(left, _LOOK_EVERY, FIRST_EXCEPTION)
        for each in done:
            each.result()
        if told is not None:
            told(ended())


# In a worker


def _share(ended: MutableSequence[int]) -> None:
    global _ended  # noqa: PLW0603  shared memory reaches a process only when it starts
    _ended = ended


def _replayed(number: int, setup: Setup) -> Report:
    def tell(ended: int) -> None:
        _ended[number] = ended

    return report(replay(setup, tell))
