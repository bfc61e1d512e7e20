"""A platform with all that is mounted on it. Slow to load: who wants an answer soon starts with the core."""

import contextlib
import logging
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.assembly.configured import ServeSettings
from muster.assembly.determined import Determined, Surroundings, determined
from muster.assembly.platform import Core, Started, core, kept_running
from muster.experiments.metric_sampling import SampleCollector
from muster.runtime.clock import Clock
from muster.server import activation
from muster.server.app import Services
from muster.server.listening import listening
from muster.server.node_logs import LocalNodeLogs
from muster.server.proxy.apart import Alone, Elsewhere
from muster.server.proxy.proxying import Proxy
from muster.settings.sections import PlatformSettings
from muster.store.protocol import Store
from muster.tasks import allocation_metrics
from muster.tasks.log_collecting import LogCollector

_log = logging.getLogger(__name__)


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
        components = {**api.components, "logs of pods": collector.run}
        if seconds := settings.platform.tasks.sample_seconds:
            samples = SampleCollector(
                found.store, found.clock, api.tasks.database, api.intake, found.samples, seconds
            )  # fmt: skip
            components["what trials use"] = samples.run
        async with (
            _shown(api.proxy, found, settings.platform) as services,
            kept_running(components, found.clock),
        ):
            found.app.mount(api.router, api.identify, api.pages, services)
            yield Platform(
                found.store, found.clock, found.place.url, found.kubeconfig, found.tokens.node, found.local_logs, api
            )


@contextlib.asynccontextmanager
async def _shown(proxy: Proxy, found: Core, settings: PlatformSettings) -> AsyncIterator[Services]:
    """The services of tasks as they are mounted beside the API; their pages at a port of their own, where one is
    set."""
    bound = found.place.pages
    if bound is None:
        if not found.place.is_local:
            _log.warning("pages of tasks are shown at the API's own address; set proxy.port to keep them apart")
        yield proxy
        return
    trusted = settings.security.trusted_proxies
    async with listening(Alone(proxy), tls=found.tls, sockets=[bound], trusted_proxies=trusted) as url:
        _log.info("pages of tasks are shown at %s", settings.proxy.url or url)
        yield Elsewhere(proxy, bound.getsockname()[1], settings.proxy.url)
