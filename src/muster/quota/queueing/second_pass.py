"""Workloads that hold quota and need another look: a topology to be chosen now that checks are done, or a node that
failed to be replaced. Tried a second later, and after each failure twice as late, up to half a minute."""

from typing import Final

from muster.api.meta import Instant
from muster.quota.queueing.backoff import Backoffs
from muster.quota.topology.assignments import HOSTNAME
from muster.quota.workloads import WorkloadInfo

_FIRST: Final = 1.0
_LONGEST: Final = 30.0


def needs_second_pass(info: WorkloadInfo) -> bool:
    if info.is_finished or info.is_evicted or not info.has_reservation:
        return False
    return _has_broken_node(info) if info.is_admitted else _has_delayed_topology(info)


def _has_delayed_topology(info: WorkloadInfo) -> bool:
    checks = info.view.status.admission_checks
    if not checks or any(check.state != "Ready" for check in checks):
        return False
    return any(pods.delayed_topology == "Pending" and pods.topology is None for pods in info.pod_sets)


def _has_broken_node(info: WorkloadInfo) -> bool:
    broken = {node.name for node in info.view.status.unhealthy_nodes}
    if not broken:
        return False
    return any(
        domain.values[-1] in broken
        for pods in info.pod_sets
        if pods.topology is not None and pods.topology.levels[-1] == HOSTNAME
        for domain in pods.topology.domains
    )


class SecondPass:
    def __init__(self) -> None:
        self._waiting: dict[str, WorkloadInfo] = {}
        self._timers = Backoffs()
        self._failures: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, key: str) -> bool:
        return key in self._waiting

    def queue(self, info: WorkloadInfo, now: Instant) -> bool:
        """For its first try. False, and nothing changes, where it needs none or waits for one already."""
        if info.key in self._waiting or not needs_second_pass(info):
            return False
        self._wait(info, now, 0)
        return True

    def retry(self, info: WorkloadInfo, now: Instant) -> bool:
        """After a try that failed. What needs no other is forgotten."""
        if not needs_second_pass(info):
            self.forget(info.key)
            return False
        if info.key in self._waiting:
            return False
        self._wait(info, now, self._failures.get(info.key, 0) + 1)
        return True

    def update(self, info: WorkloadInfo) -> None:
        """The workload has changed. It is tried as it is then, or not at all."""
        if not needs_second_pass(info):
            self.forget(info.key)
        elif info.key in self._waiting:
            self._waiting[info.key] = info

    def forget(self, key: str) -> None:
        self._waiting.pop(key, None)
        self._failures.pop(key, None)
        self._timers.set(key, None)

    def next_due(self) -> Instant | None:
        return self._timers.next_due()

    def take(self, now: Instant) -> list[WorkloadInfo]:
        """Those whose time has come, the earliest first."""
        return [self._waiting.pop(key) for key in self._timers.take(now)]

    def _wait(self, info: WorkloadInfo, now: Instant, failures: int) -> None:
        self._waiting[info.key] = info
        self._failures[info.key] = failures
        # Capped before it is raised to a power: after a day of failures that would be a number of many digits.
        delay = min(_LONGEST, _FIRST * 2 ** min(failures, 10))
        self._timers.set(info.key, Instant(now + delay))
