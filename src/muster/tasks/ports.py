"""The ports of services: each kind has a range of its own, as in Determined, and a wider one where that is full.

Allocations may share a node and its network, so no two that run are given the same.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from muster.api import errors
from muster.tasks.task_config import TaskType

_RANGES: Final = {
    TaskType.TENSORBOARD: range(2600, 2900),
    TaskType.NOTEBOOK: range(2900, 3200),
    TaskType.SHELL: range(3200, 3500),
}
_WIDE: Final = range(13_000, 29_000)
"""Below what systems give to outgoing connections, and clear of what launchers of distributed training use."""

PORT_VARIABLE: Final = {
    TaskType.NOTEBOOK: "NOTEBOOK_PORT",
    TaskType.SHELL: "SHELL_PORT",
    TaskType.TENSORBOARD: "TENSORBOARD_PORT",
}


class ServicePorts:
    """`taken`: those that allocations have already. What is picked stays so until it is let go: then it is either among
    those, or free."""

    def __init__(self, taken: Callable[[], Collection[int]], choose: Callable[[int], int]) -> None:
        self._taken = taken
        self._choose = choose
        self._picked: set[int] = set()

    def pick(self, kind: TaskType) -> int:
        """Raises TooManyRequests."""
        used = {*self._taken(), *self._picked}
        for candidates in (_RANGES[kind], _WIDE):
            start = self._choose(len(candidates))
            for port in _from(candidates, start):
                if port not in used:
                    self._picked.add(port)
                    return port
        raise errors.TooManyRequests("no port is free for another service; end some tasks and try again")

    def let_go(self, port: int) -> None:
        self._picked.discard(port)


def _from(candidates: range, start: int) -> Iterable[int]:
    yield from candidates[start:]
    yield from candidates[:start]
