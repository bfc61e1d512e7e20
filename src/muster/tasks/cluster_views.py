"""Answers questions about the cluster as a whole: its agents, pools and jobs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, select

from muster.accounts.callers import WorkspaceId
from muster.api import errors, kueue, muster, timestamps
from muster.api.documents import text
from muster.api.meta import Instant
from muster.engines import sizing
from muster.engines.protocol import Pool
from muster.engines.sizing import DEFAULT_POOL, Auxiliary
from muster.quota.workloads import queued_since
from muster.records import Database
from muster.records.tables_accounts import POOL_BINDINGS, USERS
from muster.records.tables_experiments import EXPERIMENTS
from muster.records.tables_tasks import TASKS
from muster.tasks import agent_views, job_views, pool_views
from muster.tasks.agent_views import AgentView
from muster.tasks.cluster_watching import ClusterWatch
from muster.tasks.job_views import JobView, Search, Standings
from muster.tasks.pool_views import PoolView
from muster.tasks.queues import Queues

_MOST_WAITING: Final = 100_000


@dataclass(frozen=True, slots=True)
class Holder:
    """Whose a task is, and since when."""

    workspace: WorkspaceId
    user: int
    username: str
    since: Instant


class ClusterViews:
    def __init__(
        self, watch: ClusterWatch, queues: Queues, database: Database, auxiliary: Auxiliary | None = None
    ) -> None:
        self.watch = watch
        self._queues = queues
        self._database = database
        self._auxiliary = auxiliary or Auxiliary()

    # Agents

    async def agents(self) -> list[AgentView]:
        """By name."""
        await self.watch.ready()
        nodes = self.watch.nodes()
        pods = {node.metadata.name: self.watch.pods_on(node.metadata.name) for node in nodes}
        return agent_views.agents(nodes, pods, sizing.pools(self.watch.ground()))

    async def agent(self, name: str) -> AgentView:
        """Raises NotFound."""
        found = next((agent for agent in await self.agents() if agent.id == name), None)
        if found is None:
            raise no_agent(name)
        return found

    # Pools

    async def names(self) -> Sequence[str]:
        """Of all pools."""
        await self.watch.ready()
        return [pool.name for pool in sizing.pools(self.watch.ground())]

    async def pools(self) -> list[PoolView]:
        """By name."""
        found = await self.jobs()
        return pool_views.pools(self.watch.ground(), found, self._auxiliary)

    async def engine_pools(self) -> Sequence[Pool]:
        await self.watch.ready()
        return sizing.pools(self.watch.ground())

    async def bindings(self) -> Mapping[str, Collection[WorkspaceId]]:
        """Pools that are for some workspaces only."""
        return await self._database.read(_bindings)

    # Jobs

    async def jobs(self) -> list[JobView]:
        """Of all pools, in their order."""
        pools = await self.engine_pools()
        waiting = {pool.name: await self.waiting(pool.name) for pool in pools}
        allocations = [(found, self.watch.workload_of(found.metadata.uid)) for found in self.watch.allocations()]
        queues = self._queue_of(pools)
        others = [
            (found, queues(found)) for found in self.watch.workloads() if not _is_of_allocation(found) if queues(found)
        ]
        resources = {pool.name: pool.slot_resource for pool in pools}
        submitted = {task: timestamps.to_micro_text(holder.since) for task, holder in (await self.holders()).items()}
        searches = await self._database.read(_searches)
        return job_views.jobs(allocations, others, Standings(waiting, resources, submitted, searches))

    async def pool_jobs(self, pool: str) -> list[JobView]:
        """`pool`: empty for the default one. Raises NotFound."""
        wanted = pool or DEFAULT_POOL
        if wanted not in await self.names():
            raise no_pool(wanted)
        return [job for job in await self.jobs() if job.pool == wanted]

    async def holders(self) -> Mapping[str, Holder]:
        """By task, of all that have not ended."""
        return await self._database.read(_holders)

    async def waiting(self, pool: str) -> Sequence[str]:
        """The workloads that wait for quota, as `namespace/name`, in the order in which they would be looked at."""
        found = await self._queues.in_cluster_queue(pool, 0, _MOST_WAITING)
        return [f"{text(entry['metadata'], 'namespace')}/{text(entry['metadata'], 'name')}" for entry in found or ()]

    def waiting_since(self, workloads: Collection[str]) -> Mapping[str, Instant]:
        """By `namespace/name`: the time that decides their place."""
        wanted = frozenset(workloads)
        return {
            key: queued_since(found)
            for found in self.watch.workloads()
            if (key := f"{found.metadata.namespace}/{found.metadata.name}") in wanted
        }

    def _queue_of(self, pools: Sequence[Pool]) -> "_QueueOf":
        return _QueueOf(self.watch.local_queues(), frozenset(pool.name for pool in pools))


class _QueueOf:
    """The pool that a workload stands in; empty where that leads to none."""

    def __init__(self, local_queues: Mapping[str, str], pools: frozenset[str]) -> None:
        self._local_queues = local_queues
        self._pools = pools

    def __call__(self, workload: kueue.Workload) -> str:
        admission = workload.status.admission
        name = f"{workload.metadata.namespace}/{workload.spec.queue_name or ''}"
        found = self._local_queues.get(name, "") if admission is None else admission.cluster_queue
        return found if found in self._pools else ""


def _is_of_allocation(workload: kueue.Workload) -> bool:
    kind = muster.ALLOCATION
    owners = workload.metadata.owner_references or ()
    return any((owner.api_version, owner.kind) == (kind.api_version, kind.name) for owner in owners)


def _bindings(connection: Connection) -> Mapping[str, Collection[WorkspaceId]]:
    found: dict[str, set[WorkspaceId]] = {}
    for row in connection.execute(select(POOL_BINDINGS)):
        found.setdefault(row.pool, set()).add(WorkspaceId(row.workspace_id))
    return found


def _searches(connection: Connection) -> Mapping[str, Search]:
    """By job, of all experiments that something runs for."""
    live = select(TASKS.c.job_id).where(TASKS.c.ended.is_(None), TASKS.c.type == "TRIAL")
    query = select(EXPERIMENTS.c.id, EXPERIMENTS.c.name, EXPERIMENTS.c.job_id).where(EXPERIMENTS.c.job_id.in_(live))
    return {row.job_id: Search(row.id, row.name) for row in connection.execute(query)}


def _holders(connection: Connection) -> Mapping[str, Holder]:
    query = (
        select(TASKS.c.id, TASKS.c.workspace_id, TASKS.c.user_id, TASKS.c.created, USERS.c.username)
        .join(USERS, USERS.c.id == TASKS.c.user_id)
        .where(TASKS.c.ended.is_(None))
    )
    return {
        row.id: Holder(WorkspaceId(row.workspace_id or 0), row.user_id, row.username, row.created)
        for row in connection.execute(query)
    }


def no_agent(name: str) -> errors.NotFound:
    return errors.NotFound(f"agent {name[:254]!r} not found")


def no_pool(name: str) -> errors.NotFound:
    return errors.NotFound(f"resource pool {name[:254]!r} not found")
