"""Where the services of tasks are reached: by a task's id, or by its id and a port. Only ports that were declared."""

from collections.abc import Sequence
from dataclasses import dataclass

from muster.api.meta import Instant
from muster.runtime.clock import Clock
from muster.tasks.contract import ProxyPort


@dataclass(frozen=True, slots=True)
class Target:
    """One service of a task. `task` and `allocation`: whose it is."""

    task: str
    allocation: str
    address: str
    port: ProxyPort


class ProxyTable:
    """Kept in memory: after a restart each allocation that runs is entered again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._targets: dict[str, Target] = {}
        self._by_allocation: dict[str, list[str]] = {}
        self._requested: dict[str, Instant] = {}

    def open(self, task: str, allocation: str, address: str, ports: Sequence[ProxyPort]) -> None:
        """Instead of what was known of this allocation before."""
        self.close(allocation)
        has_default = any(port.is_default for port in ports)
        for number, port in enumerate(ports):
            names = [f"{task}:{port.port}"]
            if port.is_default or (not has_default and number == 0):
                names.append(task)
            for name in names:
                self._targets[name] = Target(task, allocation, address, port)
                self._by_allocation.setdefault(allocation, []).append(name)
        if ports:
            self._requested.setdefault(task, self._clock.now())

    def close(self, allocation: str) -> None:
        for name in self._by_allocation.pop(allocation, ()):
            found = self._targets.get(name)
            if found is not None and found.allocation == allocation:
                del self._targets[name]
                if name == found.task:
                    self._requested.pop(name, None)

    def find(self, service: str) -> Target | None:
        """`service`: `<task>` or `<task>:<port>`."""
        return self._targets.get(service)

    def is_open(self, task: str) -> bool:
        return task in self._targets

    def touch(self, task: str) -> None:
        """Somebody has asked something of it."""
        if task in self._targets:
            self._requested[task] = self._clock.now()

    def last_requested(self, task: str) -> Instant | None:
        """When it was asked for last, or opened; None where it is not open."""
        return self._requested.get(task)
