"""Ports that are promised to allocations: each to one at a time, in the whole cluster.

They are numbers only: whoever was promised one listens on it on whichever node it runs. Since allocations may share a
node, and its network, no two of them are promised the same.
"""

from collections.abc import Collection, Mapping
from typing import Final

from muster.api import errors

_LAST: Final = 65_535


class PortRegistry:
    """`reserved`: never given to anybody."""

    def __init__(self, reserved: Collection[int] = ()) -> None:
        self._reserved = frozenset(reserved)
        self._taken: dict[int, str] = {}
        self._by_owner: dict[str, set[int]] = {}

    def reserve(self, owner: str, bases: Mapping[str, int]) -> dict[str, int]:
        """By name: the lowest that is free and not below its base. Raises TooManyRequests where none is; then none of
        them is taken."""
        given: dict[str, int] = {}
        for name, base in bases.items():
            port = base
            while port <= _LAST and (port in self._taken or port in self._reserved or port in given.values()):
                port += 1
            if port > _LAST:
                raise errors.TooManyRequests(f"no port from {base} on is free for {name}; end some tasks and try again")
            given[name] = port
        self.restore(owner, given)
        return given

    def restore(self, owner: str, ports: Mapping[str, int]) -> None:
        """As they were given before a restart."""
        for port in ports.values():
            self._taken[port] = owner
            self._by_owner.setdefault(owner, set()).add(port)

    def release(self, owner: str) -> None:
        for port in self._by_owner.pop(owner, ()):
            if self._taken.get(port) == owner:
                del self._taken[port]

    @property
    def taken(self) -> Mapping[int, str]:
        return self._taken
