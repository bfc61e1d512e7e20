"""The quota engine, told of jobs instead of objects: who waits, who has ended; it says who starts where, and who stops.

Nodes are a topology of one level, so the engine that admits also finds the nodes (see `quota.topology`): a job starts
when there is quota for it and room for all its pods at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from msgspec import structs

from muster.api import core, kueue, timestamps
from muster.api.conditions import FALSE, TRUE
from muster.api.meta import Condition, Instant, LabelSelector, ObjectMeta
from muster.quota.decisions import Admission, Eviction
from muster.quota.engine import Engine
from muster.quota.queues import Victims
from muster.quota.settings import FairSharing, Settings
from muster.quota.topology.assignments import HOSTNAME
from muster.quota.workloads import EVICTED, QUEUED_SINCE, QUOTA_RESERVED, WorkloadInfo
from muster.sim.replay.machines import GPU, Machines
from muster.sim.replay.policies import Policy
from muster.sim.replay.shares import Shares
from muster.sim.traces import Job

_NAMESPACE: Final = "replay"
_COHORT: Final = "replay"
_FLAVOR: Final = "nodes"
_RESERVED: Final = core.Taint(key="muster.dev/reserved", effect="NoSchedule")
_TOLERATED: Final = core.Toleration(key="muster.dev/reserved", operator="Exists")


@dataclass(frozen=True, slots=True)
class Started:
    job: int
    nodes: tuple[tuple[str, int], ...]
    """Each with how many GPUs it takes there."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """Preempted: it waits again."""

    job: int


Outcome: TypeAlias = Started | Stopped


class Decider:
    """Mutable, with one owner."""

    def __init__(self, machines: Machines, shares: Shares, policy: Policy, now: float) -> None:
        self._machines = machines
        self._shares = shares
        self._engine = Engine(Settings(fair_sharing=FairSharing() if policy.shares_fairly else None))
        self._nodes = {node.metadata.name: node for node in machines.views()}
        self._pod_sets: dict[tuple[int, bool], tuple[kueue.PodSet, ...]] = {}
        self._views: dict[int, kueue.Workload] = {}
        self._told = 0
        self._set_up(policy, Instant(now))

    def _set_up(self, policy: Policy, now: Instant) -> None:
        engine = self._engine
        engine.namespace_changed(core.Namespace(metadata=ObjectMeta(name=_NAMESPACE)))
        for node in self._nodes.values():
            engine.state.cluster.node_changed(node)
        level = kueue.TopologyLevel(node_label=HOSTNAME)
        topology = kueue.Topology(metadata=ObjectMeta(name=_FLAVOR), spec=kueue.TopologySpec(levels=(level,)))
        engine.topology_changed(topology)
        spec = kueue.ResourceFlavorSpec(topology_name=_FLAVOR)
        engine.flavor_changed(kueue.ResourceFlavor(metadata=ObjectMeta(name=_FLAVOR), spec=spec))
        for name, gpus in self._shares.quotas.items():
            engine.queue_changed(_queue(name, gpus, policy), now)
            door = kueue.LocalQueueSpec(cluster_queue=name)
            engine.local_queue_changed(
                kueue.LocalQueue(metadata=ObjectMeta(name=name, namespace=_NAMESPACE), spec=door), now
            )

    # What happens

    def waits(self, job: Job, now: float, *, since: float | None = None, may_use_reserved: bool = False) -> None:
        """It has come, or what is said of it has changed. `since`: instead of when it came, for its place in the
        queue."""
        annotations = None if since is None else {QUEUED_SINCE: timestamps.to_micro_text(Instant(since))}
        self._told += 1
        view = kueue.Workload(
            metadata=ObjectMeta(
                name=str(job.number),
                namespace=_NAMESPACE,
                uid=f"{job.number:09}",
                generation=self._told,  # what is told of a job again is another spec
                creation_timestamp=timestamps.to_micro_text(Instant(job.arrives)),
                annotations=annotations,
            ),
            spec=kueue.WorkloadSpec(
                pod_sets=self._pods(job.gpus, may_use_reserved=may_use_reserved),
                queue_name=self._shares.queue_of(job.queue),
            ),
        )
        self._views[job.number] = view
        self._engine.workload_changed(view, Instant(now))

    def ended(self, job: int) -> None:
        del self._views[job]
        self._engine.workload_removed(_key(job))

    def reserve(self, nodes: Sequence[str]) -> None:
        """Only those may use these nodes, and no others, who were told so when they came."""
        for name in nodes:
            node = self._nodes[name]
            spec = structs.replace(node.spec, taints=(_RESERVED,))
            self._engine.state.cluster.node_changed(structs.replace(node, spec=spec))

    def open(self, nodes: Sequence[str]) -> None:
        for name in nodes:
            self._engine.state.cluster.node_changed(self._nodes[name])
        self._engine.room_on_nodes()

    # What follows

    def decide(self, now: float) -> list[Outcome]:
        """All that can be decided now."""
        engine, instant = self._engine, Instant(now)
        found: list[Outcome] = []
        while engine.has_work(instant):
            for decision in engine.step(instant).decisions:
                if isinstance(decision, Admission):
                    engine.workload_changed(decision.assumed.view, instant)
                    found.append(self._started(decision.assumed))
                elif isinstance(decision, Eviction):
                    found.append(self._stopped(decision, instant))
        return found

    def _started(self, info: WorkloadInfo) -> Started:
        job = int(info.view.metadata.name)
        (pods,) = info.pod_sets
        assert pods.topology is not None
        each = pods.requests[GPU] // pods.count
        return Started(job, tuple((domain.values[-1], domain.pods * each) for domain in pods.topology.domains))

    def _stopped(self, decision: Eviction, now: Instant) -> Stopped:
        """At once: a replay knows no grace period."""
        number = int(decision.info.view.metadata.name)
        when = timestamps.to_micro_text(now)
        told = (
            Condition(type=QUOTA_RESERVED, status=FALSE, reason="Pending", last_transition_time=when),
            Condition(type=EVICTED, status=TRUE, reason=decision.reason, last_transition_time=when),
        )
        view = self._views[number]
        self._engine.workload_changed(structs.replace(view, status=kueue.WorkloadStatus(conditions=told)), now)
        return Stopped(number)

    def _pods(self, gpus: int, *, may_use_reserved: bool) -> tuple[kueue.PodSet, ...]:
        """The same object for all that ask for the same: the engine remembers what it has worked out for it."""
        found = self._pod_sets.get((gpus, may_use_reserved))
        if found is None:
            count, size = self._machines.pods_for(gpus)
            resources = core.ResourceRequirements(requests={GPU: str(size)})
            spec = core.PodSpec(
                containers=(core.Container(name="train", resources=resources),),
                tolerations=(_TOLERATED,) if may_use_reserved else (),
            )
            made = kueue.PodSet(name="main", count=count, template=core.PodTemplateSpec(spec=spec))
            found = self._pod_sets[gpus, may_use_reserved] = (made,)
        return found


def _key(job: int) -> str:
    return f"{_NAMESPACE}/{job}"


def _queue(name: str, gpus: int, policy: Policy) -> kueue.ClusterQueue:
    quota = kueue.FlavorQuotas(name=_FLAVOR, resources=(kueue.ResourceQuota(name=GPU, nominal_quota=str(gpus)),))
    return kueue.ClusterQueue(
        metadata=ObjectMeta(name=name),
        spec=kueue.ClusterQueueSpec(
            resource_groups=(kueue.ResourceGroup(covered_resources=(GPU,), flavors=(quota,)),),
            cohort_name=_COHORT,
            queueing_strategy=policy.strategy,
            namespace_selector=LabelSelector(),
            preemption=kueue.ClusterQueuePreemption(
                reclaim_within_cohort=policy.reclaims, within_cluster_queue=Victims.NEVER
            ),
        ),
    )
