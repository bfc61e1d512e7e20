"""Carries out what the machine of an allocation wants done. All of it may be done again, and is after a restart.

What takes time, or may fail, is asked of the engine through a queue: whoever decides is never held up.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from muster.api import errors
from muster.api.errors import ApiError
from muster.engines.protocol import AllocationId, Request, ResourceManager
from muster.runtime.clock import Clock
from muster.tasks.allocation_states import AskToStop, Close, Effect, KillParts, OpenProxies, Release, Tell
from muster.tasks.live import Live, Sessions, TaskLog
from muster.tasks.log_lines import Level, Origin
from muster.tasks.port_registry import PortRegistry
from muster.tasks.proxies import ProxyTable
from muster.tasks.request_queue import RequestQueue

_log = logging.getLogger(__name__)

Host: TypeAlias = Callable[[Request, str], str]
"""Where the services of a request are, whose first part has this address."""


def at_first_part(_request: Request, address: str) -> str:
    return address


class Effects:
    """`requests.run` must be kept running. Reports are their owner's to make."""

    def __init__(
        self,
        engine: ResourceManager,
        sessions: Sessions,
        log: TaskLog,
        clock: Clock,
        ports: PortRegistry,
        host: Host = at_first_part,
    ) -> None:
        self._engine = engine
        self._sessions = sessions
        self._task_log = log
        self._host = host
        self.ports = ports
        self.proxies = ProxyTable(clock)
        self.requests: RequestQueue[AllocationId] = RequestQueue(clock)

    async def do(self, live: Live, effect: Effect) -> None:
        match effect:
            case KillParts():
                self.requests.delete(live.id, partial(self._kill, live.id, effect))
            case AskToStop():
                live.asked.set()
            case OpenProxies():
                host = self._host(live.kept.request, effect.address)
                self.proxies.open(live.task, live.id, host, live.kept.proxies)
            case Tell():
                await self.tell(live, effect.text, Level[effect.level])
            case Close():
                self._close(live)
            case Release():
                self.release(live.id)

    def release(self, id: AllocationId) -> None:
        self.requests.delete(id, partial(self._engine.release, id))

    async def tell(self, live: Live, text: str, level: Level) -> None:
        """A line for the task's log."""
        try:
            await self._task_log.tell(live.task, text, level, Origin(live.id, source="master"))
        except Exception as error:
            _log.warning("the log of task %s could not be written: %s", live.task, error)

    async def _kill(self, id: AllocationId, effect: KillParts) -> None:
        try:
            await self._engine.kill(id, effect.resources)
        except ApiError as error:
            _log.warning("allocation %s could not be killed, and will be again: %s", id, error)

    def _close(self, live: Live) -> None:
        live.asked.set()
        over = errors.Conflict(f"allocation {live.id} has ended")
        live.rendezvous.end(over)
        live.gather.end(over)
        self.proxies.close(live.id)
        self.ports.release(live.id)
        self.requests.delete(live.id, partial(self._sessions.close_task, live.task, live.id))
