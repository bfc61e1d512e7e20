"""What is measured of workloads, by the queue that they are in."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

from muster.controllers.quota.metrics.families import PREFIX, QueueCounter, QueueHistogram
from muster.runtime.metrics import Histogram, Registry

_CAUSES: Final = ("reason", "underlying_cause")


@dataclass(frozen=True, slots=True)
class Counts:
    """How many came how far."""

    reserved: QueueCounter
    admitted: QueueCounter
    finished: QueueCounter
    evicted: QueueCounter
    evicted_once: QueueCounter

    @classmethod
    def over(cls, registry: Registry, *, is_local: bool) -> Self:
        """`is_local`: by LocalQueue as well."""

        def counter(name: str, help: str, *more: str, is_local: bool = is_local) -> QueueCounter:
            return QueueCounter(registry, name, help, *more, is_local=is_local)

        return cls(
            counter("quota_reserved_workloads_total", "Workloads for which quota was reserved"),
            counter("admitted_workloads_total", "Workloads that were admitted"),
            counter("finished_workloads_total", "Workloads that have finished"),
            counter("evicted_workloads_total", "Evictions of workloads", *_CAUSES),
            counter(
                "evicted_workloads_once_total",
                "Workloads that were evicted for a reason at least once",
                *_CAUSES,
                is_local=False,
            ),
        )

    def all(self) -> Iterator[QueueCounter]:
        yield from (self.reserved, self.admitted, self.finished, self.evicted, self.evicted_once)


@dataclass(frozen=True, slots=True)
class Times:
    """How long that took."""

    until_reserved: QueueHistogram
    until_admitted: QueueHistogram
    in_checks: QueueHistogram
    executed: QueueHistogram

    @classmethod
    def over(cls, registry: Registry, *, is_local: bool) -> Self:
        """`is_local`: by LocalQueue as well."""

        def histogram(name: str, help: str) -> QueueHistogram:
            return QueueHistogram(registry, name, help, is_local=is_local)

        return cls(
            histogram(
                "quota_reserved_wait_time_seconds",
                "From when a workload was made or put back in the queue until quota was reserved for it",
            ),
            histogram(
                "admission_wait_time_seconds",
                "From when a workload was made or put back in the queue until it was admitted",
            ),
            histogram(
                "admission_checks_wait_time_seconds",
                "From when quota was reserved for a workload until it was admitted",
            ),
            histogram("execution_time_seconds", "How long a workload was admitted, in all, when it finished"),
        )

    def all(self) -> Iterator[QueueHistogram]:
        yield from (self.until_reserved, self.until_admitted, self.in_checks, self.executed)


@dataclass(frozen=True, slots=True)
class Readiness:
    """How long pods took to be ready, and were it: measured where somebody waits for that."""

    until_ready: QueueHistogram
    started: QueueHistogram
    until_evicted: Histogram

    @classmethod
    def over(cls, registry: Registry, *, is_local: bool) -> Self:
        """`is_local`: by LocalQueue as well."""
        return cls(
            QueueHistogram(
                registry,
                "ready_wait_time_seconds",
                "From when a workload was made or put back in the queue until its pods were ready",
                is_local=is_local,
            ),
            QueueHistogram(
                registry,
                "admitted_until_ready_wait_time_seconds",
                "From when a workload was admitted until its pods were ready",
                is_local=is_local,
            ),
            registry.histogram(
                f"{PREFIX}pods_ready_to_evicted_time_seconds",
                "From when the pods of a workload were ready until it was evicted",
                ("cluster_queue", *_CAUSES, "replica_role"),
            ),
        )

    def all(self) -> Iterator[QueueHistogram]:
        yield from (self.until_ready, self.started)
