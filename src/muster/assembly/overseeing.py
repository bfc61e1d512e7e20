"""The cluster as a whole: its views, what changes it, reports, and webhooks, put together with their routes."""

import contextlib
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from muster.accounts.services import AccountServices
from muster.assembly.controlling import Component
from muster.assembly.tasking import TaskServices
from muster.engines.sizing import Auxiliary
from muster.experiments.telling import Speakers
from muster.runtime.clock import Clock
from muster.server.app import Pages
from muster.server.determined import agents, job_queue, pools, usage, webhooks
from muster.server.determined.router import Authenticate
from muster.server.determined.routing import Route
from muster.server.determined.usage import UsagePages
from muster.settings.sections import Webhooks as WebhookSettings
from muster.store.protocol import Store
from muster.tasks.agent_control import AgentControl
from muster.tasks.cluster_views import ClusterViews
from muster.tasks.cluster_watching import ClusterWatch
from muster.tasks.job_control import JobControl
from muster.tasks.queues import Queues
from muster.tasks.usage import Usage
from muster.tasks.webhook_scanning import LogScanner
from muster.tasks.webhook_sending import Sender, networks
from muster.tasks.webhook_shipping import Shipper
from muster.tasks.webhooks import Webhooks


@dataclass(frozen=True, slots=True)
class Oversight:
    """`components` must be kept running."""

    views: ClusterViews
    webhooks: Webhooks
    routes: Sequence[Route]
    components: Mapping[str, Component]
    usage: Usage


@dataclass(frozen=True, slots=True)
class Scene:
    """What there is to look at. `queues`: who waits for quota. `key`: that webhooks are signed with, where the settings
    name none."""

    store: Store
    clock: Clock
    queues: Queues
    url: str
    key: str
    auxiliary: Auxiliary


@contextlib.asynccontextmanager
async def oversight(
    scene: Scene, settings: WebhookSettings, tasks: TaskServices, accounts: AccountServices
) -> AsyncIterator[Oversight]:
    """Open while the context lasts. Raises BadRequest where the settings will not do."""
    database, store, clock, authorizer = tasks.database, scene.store, scene.clock, accounts.authorizer
    allowed = networks(settings.allowed_networks, "webhooks.allowed_networks")
    watch = ClusterWatch(store, clock)
    views = ClusterViews(watch, scene.queues, database, scene.auxiliary)
    books = Usage(database, clock)
    async with Sender(settings.signing_key or scene.key, allowed) as sender:
        speakers = Speakers(database, authorizer)
        hooks = Webhooks(
            database, clock, sender, uuid4, base_url=settings.base_url or scene.url, find_experiment=speakers.find
        )
        shipper = Shipper(database, clock, sender.send, random.Random())  # noqa: S311  pauses, no secrets
        scanner = LogScanner(database, hooks)
        hooks.on_enqueued(shipper.wake)
        tasks.logs.observe(scanner.observe)
        yield Oversight(
            views=views,
            webhooks=hooks,
            routes=(
                *agents.routes(views, AgentControl(store, database, clock, views), authorizer),
                *pools.routes(views, authorizer),
                *job_queue.routes(views, JobControl(store, database, clock, views), books, authorizer),
                *usage.routes(books),
                *webhooks.routes(hooks, authorizer),
            ),
            components={
                "views of the cluster": watch.run,
                "deliveries of webhooks": shipper.run,
                "patterns of webhooks": scanner.run,
            },
            usage=books,
        )


def pages(overseen: Oversight, authenticate: Authenticate, accounts: AccountServices) -> Sequence[Pages]:
    """Tables beside the API."""
    return (UsagePages(overseen.usage, authenticate, accounts.authorizer),)
