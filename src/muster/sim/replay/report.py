"""What a replay tells: how long jobs waited and took, how full the cluster was, who paid for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from muster.api.raw import Document
from muster.sim.replay.lives import Course, Life, Promise
from muster.sim.replay.running import History

_SIZES: Final = ((1, "1"), (4, "2-4"), (8, "5-8"), (16, "9-16"), (None, "17+"))
"""Up to how many GPUs, and how that is called."""
_SHORT: Final = 10.0
"""Seconds: a job that takes less counts as taking this, lest waiting a moment makes it look slowed down much."""
_HOUR: Final = 3600.0
Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Spread:
    """Of so many values. Percentiles are values that occurred."""

    count: int
    mean: float
    p50: float
    p99: float
    max: float

    @staticmethod
    def of(values: Sequence[float]) -> "Spread":
        if not values:
            return Spread(0, 0.0, 0.0, 0.0, 0.0)
        p50, p99 = np.percentile(values, (50, 99), method="inverted_cdf")
        return Spread(len(values), float(np.mean(values)), float(p50), float(p99), max(values))

    def to_document(self) -> Document:
        """In seconds."""
        found: Document = {"count": self.count}
        for name in ("mean", "p50", "p99", "max"):
            found[name] = round(getattr(self, name), 1)
        return found


@dataclass(frozen=True, slots=True)
class QueueReport:
    quota: int
    jobs: int
    gpu_hours: float
    wait: Spread
    slowdown: float
    """Mean of how many times longer jobs took, from arrival to end, than they ran."""
    owed_gpu_hours: float
    """Of its own quota, what it had jobs for and did not have."""

    def to_document(self) -> Document:
        return {
            "quota": self.quota,
            "jobs": self.jobs,
            "gpuHours": round(self.gpu_hours, 1),
            "wait": self.wait.to_document(),
            "slowdown": round(self.slowdown, 2),
            "owedGpuHours": round(self.owed_gpu_hours, 1),
        }


@dataclass(frozen=True, slots=True)
class ReservationReport:
    """How well reservations kept what they promise: that a job starts when those are expected to have gone who run on
    its nodes."""

    count: int
    kept: int
    """How many started by then. All do where estimates are right."""
    after: Spread
    """From the reservation to the start."""
    late: float
    """Seconds, of the one that started latest after it should have."""

    def to_document(self) -> Document:
        return {
            "count": self.count,
            "kept": self.kept,
            "startedAfter": self.after.to_document(),
            "latestBy": round(self.late, 1),
        }


@dataclass(frozen=True, slots=True)
class Report:
    policy: str
    gpus: int
    nodes: int
    makespan: float
    """Seconds from the first arrival to the last end."""
    utilisation: float
    """Part of the GPUs that were in use, until the last job came: afterwards a cluster only empties."""
    wait: Spread
    wait_by_size: Mapping[str, Spread]
    large_wait: Spread
    """Of those for whom nodes would be reserved, whether the policy does that or not."""
    completion: Spread
    """From arrival to end."""
    preemptions: int
    lost_gpu_hours: float
    held_idle_gpu_hours: float
    reservations: ReservationReport
    owed_gpu_hours: float
    """To all queues together."""
    fairness: float
    """Jain's index of the queues' mean slowdowns: 1 where all are slowed down alike, 1/n where one is only."""
    queues: Mapping[str, QueueReport]
    waits: Sequence[float]
    """Of all jobs, in order of length."""
    course: Course

    def to_document(self) -> Document:
        return {
            "policy": self.policy,
            "nodes": self.nodes,
            "gpus": self.gpus,
            "jobs": self.wait.count,
            "makespan": round(self.makespan, 1),
            "utilisation": round(self.utilisation, 4),
            "wait": self.wait.to_document(),
            "waitBySize": {name: spread.to_document() for name, spread in self.wait_by_size.items()},
            "largeWait": self.large_wait.to_document(),
            "completion": self.completion.to_document(),
            "preemptions": self.preemptions,
            "lostGpuHours": round(self.lost_gpu_hours, 1),
            "heldIdleGpuHours": round(self.held_idle_gpu_hours, 1),
            "reservations": self.reservations.to_document(),
            "owedGpuHours": round(self.owed_gpu_hours, 1),
            "fairness": round(self.fairness, 4),
            "queues": {name: queue.to_document() for name, queue in self.queues.items()},
        }


def report(history: History) -> Report:
    setup, lives = history.setup, history.lives
    queues = _queues(history)
    ends = [life.ended for life in lives if life.ended is not None]
    return Report(
        policy=setup.policy.name,
        gpus=setup.machines.gpus,
        nodes=setup.machines.nodes,
        makespan=max(ends) - setup.trace.starts,
        utilisation=_utilisation(history.course, setup.machines.gpus, setup.trace.last_arrival),
        wait=Spread.of([life.waited for life in lives]),
        wait_by_size=_by_size(lives),
        large_wait=Spread.of([life.waited for life in lives if life.job.gpus >= setup.options.large_gpus]),
        completion=Spread.of([life.took for life in lives]),
        preemptions=history.preemptions,
        lost_gpu_hours=sum(life.lost * life.job.gpus for life in lives) / _HOUR,
        held_idle_gpu_hours=history.held_idle / _HOUR,
        reservations=_reservations(history.promises, lives),
        owed_gpu_hours=sum(history.owed.values()) / _HOUR,
        fairness=_jain([queue.slowdown for queue in queues.values() if queue.jobs]),
        queues=queues,
        waits=sorted(life.waited for life in lives),
        course=history.course,
    )


def _by_size(lives: Sequence[Life]) -> dict[str, Spread]:
    found: dict[str, list[float]] = {name: [] for _, name in _SIZES}
    for life in lives:
        found[_size(life.job.gpus)].append(life.waited)
    return {name: Spread.of(values) for name, values in found.items() if values}


def _reservations(promises: Sequence[Promise], lives: Sequence[Life]) -> ReservationReport:
    first = ((each, lives[each.job].first_started) for each in promises)
    starts = [(each, start) for each, start in first if start is not None]
    late = [start - each.due for each, start in starts]
    return ReservationReport(
        count=len(promises),
        kept=sum(by <= 0 for by in late),
        after=Spread.of([start - each.made for each, start in starts]),
        late=max(0.0, *late) if late else 0.0,
    )


def _size(gpus: int) -> str:
    return next(name for most, name in _SIZES if most is None or gpus <= most)


def _queues(history: History) -> dict[str, QueueReport]:
    shares = history.setup.shares
    lives: dict[str, list[Life]] = {name: [] for name in shares.quotas}
    for life in history.lives:
        lives[shares.queue_of(life.job.queue)].append(life)
    return {
        name: QueueReport(
            quota=shares.quotas[name],
            jobs=len(mine),
            gpu_hours=sum(life.job.work for life in mine) / _HOUR,
            wait=Spread.of([life.waited for life in mine]),
            slowdown=float(np.mean([_slowdown(life) for life in mine])) if mine else 1.0,
            owed_gpu_hours=history.owed[name] / _HOUR,
        )
        for name, mine in lives.items()
    }


def _slowdown(life: Life) -> float:
    return max(1.0, life.took / max(life.job.seconds, _SHORT))


def _jain(values: Sequence[float]) -> float:
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values)) if values else 1.0


def _utilisation(course: Course, gpus: int, until: float) -> float:
    times = np.minimum(np.append(course.times, until), until)
    spans = np.diff(times)
    whole = float(times[-1] - times[0])
    return float(np.dot(spans, course.busy)) / (gpus * whole) if whole else 0.0
