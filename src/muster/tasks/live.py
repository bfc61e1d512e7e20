"""An allocation as the service keeps it in memory, and what the service needs of others."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from muster.accounts.callers import UserId
from muster.engines.protocol import AllocationId
from muster.tasks.allocation_records import Kept
from muster.tasks.allocation_states import Effect, Event, Phase, State
from muster.tasks.log_lines import Level, Origin
from muster.tasks.meeting import AllGather, Rendezvous

_STORY: Final = 32


class Sessions(Protocol):
    """What of accounts is needed. `accounts.service.Accounts` has it."""

    async def open_allocation(self, user: UserId, task: str, allocation: str) -> str: ...

    async def close_task(self, task: str, allocation: str = "") -> None: ...


class TaskLog(Protocol):
    """`tasks.logs.TaskLogs` has it."""

    async def tell(self, task: str, text: str, level: Level = ..., origin: Origin = ...) -> None: ...


class Entry(NamedTuple):
    """Of an allocation's story."""

    event: Event
    phase: Phase
    effects: Sequence[Effect]


@dataclass(eq=False, slots=True)
class Live:
    """An allocation that is not over, or not reported yet."""

    id: AllocationId
    task: str
    task_type: str
    kept: Kept
    """Without its template, which is not needed again."""
    state: State
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """It is to stop, or has."""
    rendezvous: Rendezvous = field(default_factory=Rendezvous)
    gather: AllGather = field(default_factory=AllGather)
    inbox: "deque[tuple[Event, asyncio.Future[State] | None]]" = field(default_factory=deque)
    is_busy: bool = False
    story: deque[Entry] = field(default_factory=lambda: deque(maxlen=_STORY))
