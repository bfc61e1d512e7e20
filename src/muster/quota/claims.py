"""Victims of a cycle: told to stop for one entry, they hold their quota on, and no other entry can count on it twice.

Entries that come later are asked as if they were gone. There may be thousands of victims, and as many who ask: what is
gone stays gone from one question to the next, until somebody has to see things as they are.
"""

from collections.abc import Iterable

from muster.quota.amounts import FlavorResource
from muster.quota.preempting import Target
from muster.quota.state import QueueState, QuotaState
from muster.quota.topology import DomainUsage
from muster.quota.workloads import Usage


class _Claim:
    """What the victims of one queue hold together."""

    __slots__ = ("_quota", "_topology", "keys", "queue", "usage")

    def __init__(self, queue: QueueState) -> None:
        self.queue = queue
        self.keys: list[str] = []
        self._quota: dict[FlavorResource, int] = {}
        self._topology: dict[str, tuple[DomainUsage, ...]] = {}
        self.usage = Usage(self._quota, self._topology)

    def add(self, key: str, usage: Usage) -> None:
        self.keys.append(key)
        for what, value in usage.quota.items():
            self._quota[what] = self._quota.get(what, 0) + value
        for flavor, taken in usage.topology.items():
            self._topology[flavor] = (*self._topology.get(flavor, ()), *taken)


class Claims:
    def __init__(self, state: QuotaState) -> None:
        self._state = state
        self._keys: set[str] = set()
        self._claims: dict[str, _Claim] = {}
        """By queue."""
        self._are_out = False
        self._are_hidden = True

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def overlap(self, targets: Iterable[Target]) -> bool:
        return bool(self._keys) and any(target.info.key in self._keys for target in targets)

    def unclaimed(self, targets: Iterable[Target]) -> list[Target]:
        return [target for target in targets if target.info.key not in self._keys]

    def add(self, targets: Iterable[Target]) -> None:
        for target in self.unclaimed(targets):
            key, queue, usage = target.info.key, target.queue, target.info.usage
            self._keys.add(key)
            claim = self._claims.get(queue.name)
            if claim is None:
                claim = self._claims[queue.name] = _Claim(queue)
            claim.add(key, usage)
            if self._are_out:
                self._state.remove_usage(queue, usage)
            if self._are_hidden:
                queue.hide(key)

    # As if they were gone

    def take_out(self) -> None:
        """What they hold is free."""
        if not self._are_out:
            self._are_out = True
            for claim in self._claims.values():
                self._state.remove_usage(claim.queue, claim.usage)

    def put_back(self) -> None:
        if self._are_out:
            self._are_out = False
            for claim in self._claims.values():
                self._state.add_usage(claim.queue, claim.usage)

    def hide(self) -> None:
        """Nobody finds them who looks for victims. They are hidden when they are claimed, too."""
        if not self._are_hidden:
            self._are_hidden = True
            for claim in self._claims.values():
                for key in claim.keys:
                    claim.queue.hide(key)

    def show(self) -> None:
        if self._are_hidden:
            self._are_hidden = False
            for claim in self._claims.values():
                claim.queue.show_all()
