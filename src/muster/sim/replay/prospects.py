"""Whether anybody who waits could start now. On a busy cluster the answer is no most of the time, and then the engine
need not be asked.

It says no only where the engine would admit nobody: nodes without room for any job that is next. What is free on nodes
decides, since quotas add up to all GPUs and queues lend each other whatever they do not use. Where jobs can be
preempted, room can be made, and it says yes whenever somebody waits.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from muster.quota.queues import Strategy, Victims
from muster.sim.replay.machines import Machines
from muster.sim.replay.policies import Policy

Free = npt.NDArray[np.int64]


class Prospects:
    """Mutable, with one owner."""

    def __init__(self, machines: Machines, policy: Policy) -> None:
        self._machines = machines
        self._is_strict = policy.strategy is Strategy.STRICT
        self._can_preempt = policy.reclaims is not Victims.NEVER
        sizes = machines.by_name()
        self._place = {name: place for place, name in enumerate(sizes)}
        self._free: Free = np.array(list(sizes.values()), dtype=np.int64)
        self._is_open = np.ones(len(sizes), dtype=np.bool_)
        self._waiting: dict[str, dict[int, int]] = {}  # by queue, in the order in which they came: GPUs by job
        self._queue_of: dict[int, str] = {}
        self._sizes: dict[int, int] = {}  # by GPUs: how many wait who ask for so many
        self._pods: dict[int, tuple[int, int]] = {}
        self._favoured: dict[int, int] = {}  # those who may use reserved nodes: GPUs by job
        self._known: dict[tuple[int, bool], bool] = {}  # while the same is free: whether so many GPUs have room

    # What happens

    def came(self, job: int, gpus: int, queue: str, *, may_use_reserved: bool = False) -> None:
        """It waits, or it waits again, or what it may use has changed."""
        if job not in self._queue_of:
            self._queue_of[job] = queue
            self._waiting.setdefault(queue, {})[job] = gpus
            self._sizes[gpus] = self._sizes.get(gpus, 0) + 1
        if may_use_reserved:
            self._favoured[job] = gpus
        else:
            self._favoured.pop(job, None)

    def started(self, job: int, nodes: Iterable[tuple[str, int]]) -> None:
        gpus = self._waiting[self._queue_of.pop(job)].pop(job)
        self._sizes[gpus] -= 1
        self._favoured.pop(job, None)
        self._change(nodes, -1)

    def left(self, nodes: Iterable[tuple[str, int]]) -> None:
        """Somebody has ended there, or was preempted."""
        self._change(nodes, 1)

    def reserve(self, nodes: Sequence[str], *, is_open: bool) -> None:
        self._is_open[[self._place[name] for name in nodes]] = is_open
        self._known.clear()

    def _change(self, nodes: Iterable[tuple[str, int]], sign: int) -> None:
        for name, gpus in nodes:
            self._free[self._place[name]] += sign * gpus
        self._known.clear()

    # What follows

    def has_any(self) -> bool:
        if self._can_preempt:
            return bool(self._queue_of)
        return any(self._fits(gpus, only_open=True) for gpus in self._next()) or any(
            self._fits(gpus, only_open=False) for gpus in self._favoured.values()
        )

    def _next(self) -> Iterable[int]:
        """GPUs of those whose turn it may be. In a strict queue that is the first one only."""
        if self._is_strict:
            return (next(iter(waiting.values())) for waiting in self._waiting.values() if waiting)
        return (gpus for gpus, count in self._sizes.items() if count)

    def _fits(self, gpus: int, *, only_open: bool) -> bool:
        found = self._known.get((gpus, only_open))
        if found is None:
            pods, size = self._pods_for(gpus)
            free = self._free[self._is_open] if only_open else self._free
            found = self._known[gpus, only_open] = int((free // size).sum()) >= pods
        return found

    def _pods_for(self, gpus: int) -> tuple[int, int]:
        found = self._pods.get(gpus)
        if found is None:
            found = self._pods[gpus] = self._machines.pods_for(gpus)
        return found
