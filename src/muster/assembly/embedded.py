"""Objects in a store of this process, and the controllers that look after them."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from muster.agent import tokens as node_tokens
from muster.api.everything import REGISTRY
from muster.assembly.configured import Policies, ServeSettings
from muster.assembly.controlling import controllers
from muster.assembly.platform import Objects, Tokens
from muster.controllers.quota import QuotaController
from muster.controllers.quota.visibility import Visibility
from muster.controllers.scheduling import SchedulingController
from muster.runtime.clock import Clock
from muster.runtime.informers import Shared
from muster.runtime.metrics import Registry
from muster.server import access, app
from muster.server.app import Lookouts
from muster.server.node_logs import LocalNodeLogs, RemoteNodeLogs
from muster.server.node_samples import NodeSamples
from muster.store.embedded import EmbeddedStore
from muster.version import VERSION


@dataclass(frozen=True, slots=True)
class EmbeddedObjects(Objects):
    """Agents of this process can be added to those that are asked for logs and samples."""

    logs: LocalNodeLogs
    samples: NodeSamples


@contextlib.asynccontextmanager
async def objects(
    settings: ServeSettings, policies: Policies, clock: Clock, tokens: Tokens
) -> AsyncIterator[EmbeddedObjects]:
    """Open while the context lasts."""
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(
            EmbeddedStore.on_disk(settings.data / "store.db", clock=clock, take_in=policies.take_in)
        )
        logs = LocalNodeLogs(await stack.enter_async_context(RemoteNodeLogs(store, tokens.node)))
        samples = await stack.enter_async_context(NodeSamples(store, tokens.node))
        metrics, shared = Registry(), Shared(store)
        scheduler = SchedulingController(shared, clock, policies.make_engine)
        quota = QuotaController(shared, clock, policies.quota, metrics)
        queues = Visibility(quota, clock)
        authenticator = access.TokenAuthenticator(
            {tokens.admin: access.administrator(), tokens.node: access.a_node()},
            partial(node_tokens.node_of, tokens.node),
        )
        application = app.build(
            store=store,
            registry=REGISTRY,
            clock=clock,
            authenticator=authenticator,
            node_logs=logs,
            version=VERSION,
            lookouts=Lookouts(scheduler.decisions, queues, metrics.pieces),
        )
        yield EmbeddedObjects(
            store=store,
            app=application,
            logs=logs,
            samples=samples,
            queues=queues,
            metrics=metrics,
            components=controllers(shared, clock, scheduler, quota),
        )
