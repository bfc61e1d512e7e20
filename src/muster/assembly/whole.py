"""A platform with all that is mounted on it. Slow to load: who wants an answer soon starts with the core."""

import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.assembly.configured import ServeSettings
from muster.assembly.determined import Determined, Surroundings, determined
from muster.assembly.platform import Core, Started, core, kept_running
from muster.runtime.clock import Clock
from muster.server import activation
from muster.server.node_logs import LocalNodeLogs
from muster.store.protocol import Store
from muster.tasks import allocation_metrics
from muster.tasks.log_collecting import LogCollector


@dataclass(frozen=True, slots=True)
class Platform:
    """What runs, for those who add nodes of their own to it."""

    store: Store
    clock: Clock
    url: str
    kubeconfig: Path
    node_token: str
    local_logs: LocalNodeLogs
    determined: Determined

    def started(self, nodes: Sequence[str]) -> Started:
        activation.notify_ready(os.environ)
        return Started(self.url, self.kubeconfig, self.node_token, nodes, self.determined.password)


@contextlib.asynccontextmanager
async def without_nodes(settings: ServeSettings) -> AsyncIterator[Platform]:
    """Up while the context lasts."""
    async with core(settings) as found, completed(found, settings) as platform:
        yield platform


@contextlib.asynccontextmanager
async def completed(found: Core, settings: ServeSettings) -> AsyncIterator[Platform]:
    """With records, accounts, tasks and their API."""
    around = Surroundings(
        found.store,
        found.clock,
        found.place,
        found.trusted,
        found.tokens.admin,
        found.live,
        found.live.ring,
        found.queues,
    )
    async with determined(settings, around) as api:
        found.metrics.collect(lambda: allocation_metrics.families(api.tasks.allocations))
        collector = LogCollector(found.store, found.clock, api.tasks.database, api.tasks.logs, found.local_logs)
        found.app.mount(api.router, api.identify, api.pages, api.proxy)
        async with kept_running({**api.components, "logs of pods": collector.run}, found.clock):
            yield Platform(
                found.store, found.clock, found.place.url, found.kubeconfig, found.tokens.node, found.local_logs, api
            )
