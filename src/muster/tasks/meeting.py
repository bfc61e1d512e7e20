"""Where the parts of one allocation wait for each other.

Nothing of it survives a restart of the server: who waited asks again. What was achieved is in the allocation's state,
which is durable before anybody is told.
"""

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from muster.api import errors
from muster.api.raw import JSON
from muster.engines.protocol import ResourceId, ResourceState
from muster.tasks.allocation_states import Part

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Meeting:
    """What each part is told: where all are, by rank, and which one it is."""

    addresses: Sequence[str]
    slots: Sequence[int]
    rank: int


class Rendezvous:
    """All parts ask, and are answered together once all of them run."""

    def __init__(self) -> None:
        self.complained_at = -math.inf
        """When people were last told of those who wait, by the monotonic clock."""
        self._waiting: dict[ResourceId, asyncio.Future[None]] = {}

    def join(self, resource: ResourceId) -> "asyncio.Future[None]":
        """One that comes again takes the place of its first call, whose asker may long have gone."""
        first = self._waiting.pop(resource, None)
        if first is not None and not first.done():
            first.set_exception(errors.Conflict(f"{resource} has already rendezvoused again: this call is given up"))
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[resource] = waiting
        return waiting

    def leave(self, resource: ResourceId, waiting: "asyncio.Future[None]") -> None:
        if self._waiting.get(resource) is waiting:
            del self._waiting[resource]

    def is_complete(self, parts: Sequence[Part]) -> bool:
        return bool(parts) and all(part.id in self._waiting and is_there(part) for part in parts)

    def missing(self, parts: Sequence[Part]) -> list[ResourceId]:
        return [part.id for part in parts if part.id not in self._waiting]

    def complete(self) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(None)

    def end(self, error: errors.ApiError) -> None:
        _fail(self._waiting.values(), error)


def is_there(part: Part) -> bool:
    return part.resource.state is ResourceState.RUNNING and bool(part.resource.address)


def met(parts: Sequence[Part], resource: ResourceId) -> Meeting:
    ordered = sorted(parts, key=lambda part: part.resource.rank)
    rank = next(number for number, part in enumerate(ordered) if part.id == resource)
    return Meeting([part.resource.address for part in ordered], [part.resource.slots for part in ordered], rank)


Gathered: TypeAlias = Sequence[JSON]


@dataclass
class AllGather:
    """So many peers bring something, and each gets all of it. Then they may gather again."""

    peers: int = 0
    _brought: dict[str, JSON] = field(default_factory=dict)
    _waiting: dict[str, "asyncio.Future[Gathered]"] = field(default_factory=dict)
    _last: Mapping[str, JSON] = field(default_factory=dict)
    """What was gathered before: for who has not heard the answer."""

    def join(self, peer: str, peers: int, data: JSON) -> "asyncio.Future[Gathered]":
        """One that comes again takes the place of its first call. Raises BadRequest."""
        if not peer:
            raise errors.BadRequest("requestUuid: required")
        if peers < 1:
            raise errors.BadRequest("numPeers: must be greater than 0")
        made: asyncio.Future[Gathered] = asyncio.get_running_loop().create_future()
        if peer in self._last and peer not in self._brought:
            made.set_result(list(self._last.values()))
            return made
        if self._waiting and peers != self.peers:
            raise errors.BadRequest(f"numPeers: {peers}, but others who wait have said {self.peers}")
        first = self._waiting.pop(peer, None)
        if first is not None and not first.done():
            first.set_exception(errors.Conflict(f"{peer} has asked again: this call is given up"))
        self.peers = peers
        self._brought[peer] = data
        self._waiting[peer] = made
        return made

    def leave(self, peer: str, waiting: "asyncio.Future[Gathered]") -> None:
        if self._waiting.get(peer) is waiting:
            del self._waiting[peer]
            self._brought.pop(peer, None)

    @property
    def is_complete(self) -> bool:
        return 0 < self.peers <= len(self._waiting)

    @property
    def present(self) -> int:
        return len(self._waiting)

    def complete(self) -> None:
        self._last, waiting = self._brought, self._waiting
        self._brought, self._waiting, self.peers = {}, {}, 0
        for made in waiting.values():
            if not made.done():
                made.set_result(list(self._last.values()))

    def end(self, error: errors.ApiError) -> None:
        _fail(self._waiting.values(), error)


def _fail(waiting: "Iterable[asyncio.Future[T]]", error: errors.ApiError) -> None:
    for made in waiting:
        if not made.done():
            made.set_exception(error)
