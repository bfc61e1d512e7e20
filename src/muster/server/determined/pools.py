"""Resource pools: the cluster's queues, as Determined's clients know them."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from muster.accounts.authorizing import Authorizer
from muster.accounts.callers import Caller, WorkspaceId
from muster.accounts.permissions import Permission
from muster.engines.protocol import DEFAULT_PRIORITY
from muster.server.determined import paging
from muster.server.determined.agents import DeviceType
from muster.server.determined.paging import Paged, Pagination
from muster.server.determined.routing import Call, Message, Nothing, Route, known, route
from muster.tasks.cluster_views import ClusterViews
from muster.tasks.pool_views import PoolView


class PoolType(StrEnum):
    STATIC = "RESOURCE_POOL_TYPE_STATIC"


class SchedulerType(StrEnum):
    PRIORITY = "SCHEDULER_TYPE_PRIORITY"


class FittingPolicy(StrEnum):
    KUBERNETES = "FITTING_POLICY_KUBERNETES"


class PriorityScheduler(Message, frozen=True):
    preemption: bool
    default_priority: int = DEFAULT_PRIORITY
    k8_priorities: Sequence[str] = ()


class Detail(Message, frozen=True):
    priority_scheduler: PriorityScheduler
    aws: None = None
    gcp: None = None


class QueueStats(Message, frozen=True):
    queued_count: int
    scheduled_count: int


class ResourcePool(Message, frozen=True):
    """Nodes come and go by themselves here: what Determined says of machines in clouds has no meaning, and is empty."""

    name: str
    description: str
    num_agents: int
    slots_available: int
    slots_used: int
    slot_type: DeviceType
    accelerator: str
    slots_per_agent: int
    aux_container_capacity: int
    aux_container_capacity_per_agent: int
    aux_containers_running: int
    default_compute_pool: bool
    default_aux_pool: bool
    details: Detail
    stats: QueueStats
    type: PoolType = PoolType.STATIC
    scheduler_type: SchedulerType = SchedulerType.PRIORITY
    scheduler_fitting_policy: FittingPolicy = FittingPolicy.KUBERNETES
    preemptible: bool = False
    min_agents: int = 0
    max_agents: int = 0
    location: str = "on-prem"
    image_id: str = ""
    instance_type: str = ""
    master_url: str = ""
    master_cert_name: str = ""
    startup_script: str = ""
    container_startup_script: str = ""
    agent_docker_network: str = ""
    agent_docker_runtime: str = ""
    agent_docker_image: str = ""
    agent_fluent_image: str = ""
    max_idle_agent_period: float = 0.0
    max_agent_starting_period: float = 0.0
    cluster_name: str = ""
    resource_manager_metadata: Mapping[str, str] = {}


class GetPools(Paged, frozen=True):
    """`unbound`: only those that are for all workspaces."""

    unbound: bool = False


class GetPoolsReply(Message, frozen=True):
    resource_pools: Sequence[ResourcePool]
    pagination: Pagination


class ResourceManagers(Message, frozen=True):
    """Those over a Kubernetes cluster of somebody else: none, ours is its own."""

    resource_managers: Sequence[str] = ()


class _Pools:
    def __init__(self, views: ClusterViews, authorizer: Authorizer) -> None:
        self._views = views
        self._authorizer = authorizer

    async def list(self, call: Call, asked: GetPools) -> GetPoolsReply:
        seen = await self._seen(call.caller, only_unbound=asked.unbound)
        page = paging.cut([pool for pool in await self._views.pools() if pool.name in seen], asked)
        return GetPoolsReply(resource_pools=[_told(pool) for pool in page.items], pagination=paging.told(page, asked))

    async def managers(self, call: Call, asked: Nothing) -> ResourceManagers:
        return ResourceManagers()

    async def _seen(self, caller: Caller, *, only_unbound: bool) -> frozenset[str]:
        """Pools that are for all, and those for workspaces that the caller may see."""
        names, bindings = await self._views.names(), await self._views.bindings()
        visible = await self._authorizer.workspaces(caller, Permission.VIEW_WORKSPACE)

        def is_seen(name: str) -> bool:
            bound = bindings.get(name)
            if bound is None:
                return True
            return not only_unbound and (visible is None or _meets(bound, visible))

        return frozenset(filter(is_seen, names))


def _meets(bound: object, visible: frozenset[WorkspaceId]) -> bool:
    return isinstance(bound, set | frozenset) and not visible.isdisjoint(bound)


def _told(pool: PoolView) -> ResourcePool:
    return ResourcePool(
        name=pool.name,
        description=pool.description,
        num_agents=pool.nodes,
        slots_available=pool.slots,
        slots_used=pool.slots_used,
        slot_type=DeviceType.CUDA if pool.has_gpus else DeviceType.CPU,
        accelerator=pool.accelerator,
        slots_per_agent=pool.slots_per_node,
        aux_container_capacity=pool.small_capacity,
        aux_container_capacity_per_agent=pool.small_capacity_per_node,
        aux_containers_running=pool.small_running,
        default_compute_pool=pool.is_default,
        default_aux_pool=pool.is_default,
        details=Detail(priority_scheduler=PriorityScheduler(preemption=pool.preempts)),
        stats=QueueStats(queued_count=pool.counts.queued, scheduled_count=pool.counts.scheduled),
    )


def routes(views: ClusterViews, authorizer: Authorizer) -> Sequence[Route]:
    handlers = _Pools(views, authorizer)
    return (
        route("GET", "/api/v1/resource-pools", GetPools, GetPoolsReply, known(), handlers.list),
        route("GET", "/api/v1/k8s-resource-managers", Nothing, ResourceManagers, known(), handlers.managers),
    )
