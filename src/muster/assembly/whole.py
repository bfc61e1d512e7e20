"""A platform with all that is mounted on it. Slow to load: who wants an answer soon starts with the core."""

import contextlib
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.assembly import embedded
from muster.assembly.configured import ServeSettings
from muster.assembly.controlling import Component
from muster.assembly.determined import Determined, Surroundings, determined
from muster.assembly.platform import Core, Objects, Started, core, kept_running
from muster.experiments.metric_sampling import SampleCollector
from muster.runtime.clock import Clock
from muster.server import activation
from muster.server.app import Services
from muster.server.listening import listening
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
    kubeconfig: Path | None
    node_token: str
    determined: Determined

    def started(self, nodes: Sequence[str]) -> Started:
        activation.notify_ready(os.environ)
        return Started(self.url, self.kubeconfig, self.node_token, nodes, self.determined.password)


@contextlib.asynccontextmanager
async def without_nodes(settings: ServeSettings) -> AsyncIterator[Platform]:
    """Up while the context lasts."""
    async with core(settings, embedded.objects) as found, completed(found, settings) as platform:
        yield platform


@contextlib.asynccontextmanager
async def completed(found: Core[Objects], settings: ServeSettings) -> AsyncIterator[Platform]:
    """With records, accounts, tasks and their API."""
    objects = found.objects
    around = Surroundings(
        objects.store,
        found.clock,
        found.place,
        found.trusted,
        found.tokens.admin,
        found.live,
        found.live.ring,
        objects.queues,
        objects.cluster,
    )
    async with determined(settings, around) as api:
        objects.metrics.collect(lambda: allocation_metrics.families(api.tasks.allocations))
        components = {**api.components, **_observing(found, settings, api)}
        async with (
            _shown(api.proxy, found, settings.platform) as services,
            kept_running(components, found.clock),
        ):
            objects.app.mount(api.router, api.identify, api.pages, services)
            yield Platform(objects.store, found.clock, found.place.url, found.kubeconfig, found.tokens.node, api)


def _observing(found: Core[Objects], settings: ServeSettings, api: Determined) -> Mapping[str, Component]:
    """Those who fetch what pods say and use."""
    objects, database = found.objects, api.tasks.database
    ours = [api.tasks.customs.ours()]
    collector = LogCollector(objects.store, found.clock, database, api.tasks.logs, objects.logs, ours)
    seconds = settings.platform.tasks.sample_seconds
    if objects.samples is None or not seconds:
        return {"logs of pods": collector.run}
    samples = SampleCollector(objects.store, found.clock, database, api.intake, objects.samples, seconds)
    return {"logs of pods": collector.run, "what trials use": samples.run}


@contextlib.asynccontextmanager
async def _shown(proxy: Proxy, found: Core[Objects], settings: PlatformSettings) -> AsyncIterator[Services]:
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
