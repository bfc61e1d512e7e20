"""The controllers on a Kubernetes cluster: what Muster decides, over objects that live in the cluster's API server.

Of several replicas one leads, by the Lease `muster-controller`. The others keep the same copies of all objects, answer
webhooks and probes like it, and are at work a moment after it is gone.
"""

import contextlib
import logging
import os
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from muster.access.kubeconfig import Cluster
from muster.api import batch, kubeflow, kueue, muster, storage, volcano
from muster.api.kinds import Kind
from muster.api.ownership import EVERYTHING, Ownership, Unlabelled
from muster.api.volcano.defaults import SCHEDULER as VOLCANO_SCHEDULER
from muster.assembly import configured, outward
from muster.assembly.admission import WebhookSettings
from muster.assembly.controlling import deciding
from muster.assembly.outward import Answers, Terms
from muster.controllers.jobs.start_times import StartTimeController
from muster.controllers.quota import QuotaController
from muster.controllers.quota.controller import KINDS as QUOTA_KINDS
from muster.controllers.quota.visibility import Visibility
from muster.controllers.scheduling import MakeEngine, SchedulingController
from muster.deploying import names
from muster.placement.engine import KINDS as PLACEMENT_KINDS
from muster.placement.engine import Engine
from muster.placement.profiles import DEFAULT_SCHEDULER
from muster.runtime.clock import SystemClock
from muster.runtime.informers import Shared
from muster.runtime.leading import LeadersStore
from muster.runtime.leases import LeaderElector
from muster.runtime.metrics import Registry
from muster.runtime.mirroring import mirrored
from muster.runtime.supervision import supervise
from muster.server.admission.answering import Webhooks
from muster.server.admission.reviewing import SCHEDULER, Completing
from muster.server.listening import listening
from muster.server.probing import Probes
from muster.server.visibility import VisibilityApi
from muster.settings.sections import PlatformSettings
from muster.store.kubernetes import KubernetesStore
from muster.store.protocol import Store

_log = logging.getLogger(__name__)
_LEASE_SECONDS: Final = 15
_FOLLOWED: Final = frozenset[Kind](
    {
        *PLACEMENT_KINDS,
        storage.PERSISTENT_VOLUME,
        *QUOTA_KINDS,
        volcano.JOB,
        volcano.CRON_JOB,
        volcano.JOB_FLOW,
        volcano.JOB_TEMPLATE,
        volcano.QUEUE,
        volcano.COMMAND,
        kueue.WORKLOAD_PRIORITY_CLASS,
        kubeflow.PYTORCH_JOB,
        muster.ALLOCATION,
        batch.JOB,
    }
)
"""What the controllers watch, so that whoever takes over need not read it first."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """`namespace`: where the lease and the certificate are kept. `metrics_port`: of probes and measurements. Without
    `webhooks` nobody fills in and checks new objects."""

    namespace: str = names.NAMESPACE
    ownership: Ownership = EVERYTHING
    platform: PlatformSettings = field(default_factory=PlatformSettings)
    host: str = "127.0.0.1"
    metrics_port: int = 0
    webhooks: WebhookSettings | None = None
    lease_seconds: int = _LEASE_SECONDS

    @property
    def has_volcano(self) -> bool:
        """Whether others look after what is not labelled as ours: then Volcano may be one of them."""
        return self.ownership.unlabelled is Unlabelled.THEIRS


@dataclass(frozen=True, slots=True)
class Running:
    """What there is to know once the controller is up. `probes`: the URL below which they are."""

    identity: str
    probes: str


Announce = Callable[[Running], None]


async def controller(cluster: Cluster, settings: ControllerSettings, announce: Announce) -> None:
    """Until it is cancelled."""
    async with KubernetesStore(cluster, owned=settings.ownership) as store:
        await run(store, settings, announce)


async def run(store: Store, settings: ControllerSettings, announce: Announce) -> None:
    """Over any store with the rules of Kubernetes."""
    clock, metrics = SystemClock(), Registry()
    policies = configured.policies(settings.platform)
    elector = LeaderElector(
        store,
        clock,
        name=names.CONTROLLER,
        namespace=settings.namespace,
        identity=f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}",
        lease_seconds=settings.lease_seconds,
    )
    async with contextlib.AsyncExitStack() as stack:
        mirror = await stack.enter_async_context(mirrored(store, clock))
        mirror.follow(_FOLLOWED)
        leaders = Shared(LeadersStore(mirror, lambda: elector.is_leading))
        scheduler = SchedulingController(leaders, clock, _serving(policies.make_engine, settings.has_volcano))
        quota = QuotaController(leaders, clock, policies.quota, metrics)
        components = dict(deciding(leaders, clock, scheduler, quota, has_volcano=settings.has_volcano))
        components["start times"] = StartTimeController(leaders, clock).run
        probes = Probes(lambda: mirror.is_ready, metrics.pieces)
        url = await stack.enter_async_context(listening(probes, settings.host, settings.metrics_port))
        if settings.webhooks is not None:
            webhooks = Webhooks(mirror, mirror.find, Completing(policies.take_in, settings.ownership))
            asked = VisibilityApi(store, Visibility(quota, clock), scheduler.decisions)
            answers = Answers(webhooks, asked, lambda: elector.is_leading)
            terms = _terms(settings, settings.webhooks)
            components |= await stack.enter_async_context(outward.answering(answers, store, leaders, clock, terms))
        announce(Running(elector.identity, url))
        await elector.run(lambda: supervise(components, clock=clock))


def _serving(make_engine: MakeEngine, has_volcano: bool) -> MakeEngine:
    """Engines that leave the pods of other schedulers alone: those of the cluster's own, and of Volcano's where it is
    there."""

    def make() -> Engine:
        engine = make_engine()
        named = {SCHEDULER, *engine.scheduler.profiles} - {DEFAULT_SCHEDULER}
        engine.share(frozenset(named if has_volcano else {*named, VOLCANO_SCHEDULER}))
        return engine

    return make


def _terms(settings: ControllerSettings, webhooks: WebhookSettings) -> Terms:
    return Terms(settings.namespace, webhooks, settings.ownership, steers_pods=bool(settings.platform.admission))
