"""All controllers by name: those that decide, and those that a Kubernetes cluster brings itself."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from muster.controllers.allocations import AllocationController
from muster.controllers.claims import ClaimController
from muster.controllers.events import EventCleaner
from muster.controllers.garbage import GarbageCollector
from muster.controllers.jobs.batch import BatchJobController
from muster.controllers.jobs.cron import CronJobController
from muster.controllers.jobs.flow import JobFlowController
from muster.controllers.jobs.metrics import JobMetrics
from muster.controllers.jobs.pytorch import PyTorchJobController
from muster.controllers.jobs.queues import QueueController
from muster.controllers.jobs.volcano import VolcanoJobController
from muster.controllers.namespaces import NamespaceController
from muster.controllers.nodes import NodeController
from muster.controllers.podgroups import PodGroupController
from muster.controllers.quota import QuotaController
from muster.controllers.quota.default_queue import DefaultQueueController
from muster.controllers.quota.failures import FailuresController
from muster.controllers.quota.jobs import JobsController
from muster.controllers.quota.lifecycle import LifecycleController
from muster.controllers.quota.pods import PodsController
from muster.controllers.quota.priorities import PriorityController
from muster.controllers.quota.protection import ProtectionController
from muster.controllers.quota.retention import RetentionController
from muster.controllers.quota.statuses import StatusController
from muster.controllers.quota.ungating import UngatingController
from muster.controllers.quota.volcano_queues import VolcanoQuotaController
from muster.controllers.scheduling import SchedulingController
from muster.controllers.taints import TaintEvictionController
from muster.runtime.clock import Clock
from muster.store.protocol import Store

Component: TypeAlias = Callable[[], Awaitable[None]]


def controllers(
    store: Store, clock: Clock, scheduler: SchedulingController, quota: QuotaController
) -> Mapping[str, Component]:
    """Where nobody else looks after the objects."""
    return {**deciding(store, clock, scheduler, quota), **maintaining(store, clock)}


def deciding(
    store: Store,
    clock: Clock,
    scheduler: SchedulingController,
    quota: QuotaController,
    *,
    has_volcano: bool = False,
) -> Mapping[str, Component]:
    """What Muster brings to any cluster. `has_volcano`: whether Volcano itself is there as well."""
    settings = quota.engine.settings
    chosen = {"retention": RetentionController(store, clock, settings).run} if settings.retention.is_limited else {}
    return chosen | {
        "scheduler": scheduler.run,
        "pod groups": PodGroupController(store, clock, makes_groups=not has_volcano).run,
        "allocations": AllocationController(store, clock).run,
        "volcano jobs": VolcanoJobController(store, clock).run,
        "pytorch jobs": PyTorchJobController(store, clock).run,
        "volcano queues": QueueController(store, clock).run,
        "volcano quota": VolcanoQuotaController(store, clock).run,
        "cron jobs": CronJobController(store, clock).run,
        "job flows": JobFlowController(store, clock).run,
        "quota": quota.run,
        "workloads": LifecycleController(store, clock, settings).run,
        "queue statuses": StatusController(store, clock, quota).run,
        "protection": ProtectionController(store, clock).run,
        "workload priorities": PriorityController(store, clock).run,
        "jobs in queues": JobsController(store, clock, settings=settings, metrics=quota.counted).run,
        "pods in queues": PodsController(store, clock, settings, quota.counted).run,
        "ungating": UngatingController(store, clock, quota.counted).run,
        "failed nodes": FailuresController(store, clock, settings).run,
        "job metrics": JobMetrics(store, clock, quota.metrics, lambda: quota.engine).run,
        "default queue": DefaultQueueController(store, clock).run,
    }


def maintaining(store: Store, clock: Clock) -> Mapping[str, Component]:
    """What a Kubernetes cluster does by itself (its kube-controller-manager)."""
    return {
        "batch jobs": BatchJobController(store, clock).run,
        "nodes": NodeController(store, clock).run,
        "claims": ClaimController(store, clock).run,
        "taints": TaintEvictionController(store, clock).run,
        "garbage": GarbageCollector(store, clock).run,
        "namespaces": NamespaceController(store, clock).run,
        "events": EventCleaner(store, clock).run,
    }
