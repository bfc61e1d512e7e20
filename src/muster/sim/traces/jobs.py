"""Jobs as a trace has them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Job:
    """`number`: its place in the trace, which is also the order of those that come in the same instant."""

    number: int
    arrives: float
    """Seconds since 1970."""
    seconds: float
    """How long it runs, from start to end, on all its GPUs."""
    gpus: int
    queue: str

    @property
    def work(self) -> float:
        """In GPU seconds."""
        return self.seconds * self.gpus


@dataclass(frozen=True)
class Trace:
    jobs: Sequence[Job]
    """In the order in which they come."""

    @cached_property
    def queues(self) -> tuple[str, ...]:
        return tuple(sorted({job.queue for job in self.jobs}))

    @cached_property
    def work_by_queue(self) -> dict[str, float]:
        found = dict.fromkeys(self.queues, 0.0)
        for job in self.jobs:
            found[job.queue] += job.work
        return found

    @property
    def starts(self) -> float:
        return self.jobs[0].arrives

    @property
    def last_arrival(self) -> float:
        return self.jobs[-1].arrives
