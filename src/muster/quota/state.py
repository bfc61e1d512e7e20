"""Everything that admission is decided from: queues, cohorts, flavors, checks, topologies, and who holds what.

Mutable, with one owner, and no I/O. Fed by watch changes and by the engine's own decisions ("assumed" until the store
has them too). Whoever tries something out takes it back exactly: `remove` and `add` of a workload, `add_usage` and
`remove_usage` of an amount are inverses.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from muster.api import conditions, kueue
from muster.api.meta import Instant
from muster.api.selectors import LabelSelector
from muster.cluster.namespaces import Namespaces
from muster.cluster.state import ClusterState
from muster.quota.amounts import FlavorResource
from muster.quota.queues import Queue, Stop, read_priority, read_queue, read_quotas, read_weight
from muster.quota.ranking import Ranking, ranking
from muster.quota.settings import Settings
from muster.quota.tallies import Tally
from muster.quota.topology import Topologies
from muster.quota.tree import Node, QuotaTree
from muster.quota.workloads import Usage, WorkloadInfo


class Inactive(StrEnum):
    """Why a queue admits nothing, in the order in which one is shown."""

    TERMINATING = "Terminating"
    STOPPED = "Stopped"
    MISCONFIGURED = "Misconfigured"
    FLAVOR_NOT_FOUND = "FlavorNotFound"
    CHECK_NOT_FOUND = "AdmissionCheckNotFound"
    CHECK_INACTIVE = "AdmissionCheckInactive"
    TOPOLOGY_NOT_FOUND = "TopologyNotFound"


@dataclass(slots=True, eq=False)
class QueueState:
    policy: Queue
    node: Node
    workloads: dict[str, WorkloadInfo] = field(default_factory=dict)
    """By key: all that hold quota here."""
    tally: Tally = field(default_factory=Tally)
    """Of those."""
    by_local_queue: dict[str, Tally] = field(default_factory=dict)
    """What the workloads of each local queue hold, in all queues together: shared by all of them."""
    generation: int = 0
    """Grows when there may be more room than before: a workload left, or quotas changed."""
    is_terminating: bool = False
    _ranking: Ranking | None = None
    _hidden: dict[str, None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.policy.name

    def put(self, info: WorkloadInfo) -> None:
        known = self.workloads.get(info.key)
        if known is not None:
            self._unrank(info.key)
        self.workloads[info.key] = info
        self._rank(info)
        if known is None:
            self._count(info, 1)
        elif known.is_admitted is not info.is_admitted or known.usage is not info.usage:
            self._count(known, -1)
            self._count(info, 1)

    def drop(self, key: str) -> WorkloadInfo:
        self._unrank(key)
        self._hidden.pop(key, None)
        info = self.workloads.pop(key)
        self._count(info, -1)
        return info

    def empty(self) -> dict[str, WorkloadInfo]:
        """It is gone, and who held quota here waits until it comes back."""
        for info in self.workloads.values():
            self._count(info, -1)
        return self.workloads

    def _count(self, info: WorkloadInfo, sign: int) -> None:
        usage, is_admitted = info.usage.quota, info.is_admitted
        self.tally.count(usage, sign, is_admitted=is_admitted)
        door = self.by_local_queue.get(info.local_queue)
        if door is None:
            door = self.by_local_queue[info.local_queue] = Tally()
        door.count(usage, sign, is_admitted=is_admitted)
        if not door.reserving:
            del self.by_local_queue[info.local_queue]

    def ranking(self, now: Instant, *, by_usage: bool = False) -> Ranking:
        """In which order its workloads lose their quota, where one has to."""
        if self._ranking is not None and not by_usage:
            return self._ranking
        hidden = self._hidden
        found = ranking((info for key, info in self.workloads.items() if key not in hidden), now, by_usage=by_usage)
        if found.is_lasting:
            self._ranking = found
        return found

    def _rank(self, info: WorkloadInfo) -> None:
        if self._ranking is not None and info.key not in self._hidden and not self._ranking.insert(info):
            self._ranking = None

    def _unrank(self, key: str) -> None:
        if self._ranking is not None and key not in self._hidden:
            self._ranking.remove(self.workloads[key])

    def hide(self, key: str) -> None:
        """It holds its quota, and nobody is to look for it there: it is ranked no more, until all are shown again."""
        if key in self.workloads:
            self._unrank(key)
            self._hidden[key] = None

    def is_hidden(self, key: str) -> bool:
        return key in self._hidden

    def show_all(self) -> None:
        hidden = self._hidden
        self._hidden = {}
        for key in hidden:
            self._rank(self.workloads[key])


class QuotaState:
    def __init__(self, settings: Settings, cluster: ClusterState | None = None) -> None:
        self.settings = settings
        self.cluster = cluster or ClusterState()
        """Nodes, and the pods on them that no topology assignment accounts for."""
        self.tree = QuotaTree()
        self.queues: dict[str, QueueState] = {}
        self.flavors: dict[str, kueue.ResourceFlavor] = {}
        self.checks: dict[str, kueue.AdmissionCheck] = {}
        self.topology_kinds: dict[str, kueue.Topology] = {}
        self.topologies = Topologies(self.cluster, settings.gates)
        self.namespaces = Namespaces()
        self.local_queues: dict[str, kueue.LocalQueue] = {}
        """By `namespace/name`."""
        self.by_local_queue: dict[str, Tally] = {}
        """What their workloads hold."""
        self.holders: dict[str, str] = {}
        """By key of a workload that holds quota, the queue that it holds it in."""
        self._waiting: dict[str, dict[str, WorkloadInfo]] = {}  # hold quota in queues that are not known
        self._tree_version = 0

    # Queues and what they are made of

    def set_queue(self, view: kueue.ClusterQueue) -> None:
        policy = read_queue(view)
        self.tree.set_queue(policy.name, policy.cohort, policy.quotas, policy.weight, policy.priority)
        known = self.queues.get(policy.name)
        if known is None:
            known = self.queues[policy.name] = QueueState(
                policy, self.tree.queues[policy.name], by_local_queue=self.by_local_queue
            )
            for info in self._waiting.pop(policy.name, {}).values():
                self._count(known, info)
        known.policy = policy
        known.is_terminating = view.metadata.deletion_timestamp is not None

    def remove_queue(self, name: str) -> None:
        known = self.queues.pop(name, None)
        if known is not None:
            for info in known.workloads.values():
                self.vacate(info.usage)
            self._waiting[name] = known.empty()
            self.tree.remove_queue(name)

    def set_cohort(self, view: kueue.Cohort) -> None:
        spec, quotas = view.spec, read_quotas(view.spec.resource_groups)
        weight, priority = read_weight(spec.fair_sharing), read_priority(view.metadata)
        self.tree.set_cohort(view.metadata.name, spec.parent_name or "", quotas, weight, priority)

    def remove_cohort(self, name: str) -> None:
        self.tree.remove_cohort(name)

    def set_flavor(self, view: kueue.ResourceFlavor) -> None:
        self.flavors[view.metadata.name] = view
        self._link_topology(view.metadata.name)

    def remove_flavor(self, name: str) -> None:
        self.flavors.pop(name, None)
        self._link_topology(name)

    def set_topology(self, view: kueue.Topology) -> None:
        self.topology_kinds[view.metadata.name] = view
        self._link_flavors_of(view.metadata.name)

    def remove_topology(self, name: str) -> None:
        self.topology_kinds.pop(name, None)
        self._link_flavors_of(name)

    def _link_flavors_of(self, topology: str) -> None:
        for name, flavor in self.flavors.items():
            if flavor.spec.topology_name == topology:
                self._link_topology(name)

    def _link_topology(self, name: str) -> None:
        """A flavor has a topology once both are known. What is held there is counted anew."""
        flavor = self.flavors.get(name)
        topology = self.topology_kinds.get(flavor.spec.topology_name or "") if flavor is not None else None
        self.topologies.remove_flavor(name)
        if flavor is None or topology is None:
            return
        self.topologies.set_flavor(flavor, topology)
        linked = self.topologies.flavor(name)
        assert linked is not None
        for queue in self.queues.values():
            for info in queue.workloads.values():
                taken = info.usage.topology.get(name)
                if taken:
                    linked.add_usage(taken)

    def settle(self) -> None:
        """Before deciding: changes of the tree take effect, and queues whose quota may have grown say so."""
        self.tree.settle()
        if self._tree_version != self.tree.version:
            self._tree_version = self.tree.version
            for queue in self.queues.values():
                queue.generation += 1

    def inactive(self, queue: QueueState) -> list[tuple[Inactive, str]]:
        """Why the queue admits nothing, the most important first; nothing where it is active."""
        found: list[tuple[Inactive, str]] = []
        policy = queue.policy
        if queue.is_terminating:
            found.append((Inactive.TERMINATING, "Can't admit new workloads; clusterQueue is terminating"))
        if policy.stop is not Stop.NONE:
            found.append((Inactive.STOPPED, "is stopped"))
        if policy.problem:
            found.append((Inactive.MISCONFIGURED, f"cannot be used: {policy.problem}"))
        missing = sorted(flavor for flavor in policy.flavors if flavor not in self.flavors)
        if missing:
            found.append((Inactive.FLAVOR_NOT_FOUND, f"references missing ResourceFlavor(s): {','.join(missing)}"))
        absent = sorted(name for name in policy.checks if name not in self.checks)
        if absent:
            found.append((Inactive.CHECK_NOT_FOUND, f"references missing AdmissionCheck(s): {','.join(absent)}"))
        idle = sorted(name for name in policy.checks if name in self.checks and not _is_check_active(self.checks[name]))
        if idle:
            found.append((Inactive.CHECK_INACTIVE, f"references inactive AdmissionCheck(s): {','.join(idle)}"))
        lost = sorted(
            {
                flavor.spec.topology_name
                for name in policy.flavors
                if (flavor := self.flavors.get(name)) is not None
                and flavor.spec.topology_name
                and flavor.spec.topology_name not in self.topology_kinds
            }
        )
        if lost:
            found.append((Inactive.TOPOLOGY_NOT_FOUND, f"there is no Topology {','.join(lost)} for TAS flavor(s)"))
        return found

    def is_active(self, queue: QueueState) -> bool:
        return not self.inactive(queue) and not self.tree.is_in_cycle(queue.name)

    def accepts_namespace(self, queue: QueueState, namespace: str) -> bool:
        selector: LabelSelector = queue.policy.selector
        return namespace in self.namespaces and selector.matches(self.namespaces[namespace])

    # Who holds what

    def add(self, info: WorkloadInfo) -> None:
        """It holds quota, in the queue that it names."""
        if info.key in self.holders:
            self.remove(info.key)
        self.holders[info.key] = info.queue
        queue = self.queues.get(info.queue)
        if queue is None:
            self._waiting.setdefault(info.queue, {})[info.key] = info
        else:
            self._count(queue, info)

    def _count(self, queue: QueueState, info: WorkloadInfo) -> None:
        queue.put(info)
        queue.node.add_all(info.usage.quota)
        self.occupy(info.usage)

    def remove(self, key: str) -> WorkloadInfo | None:
        name = self.holders.pop(key, None)
        if name is None:
            return None
        queue = self.queues.get(name)
        if queue is None:
            return self._waiting[name].pop(key)
        info = queue.drop(key)
        queue.node.remove_all(info.usage.quota)
        self.vacate(info.usage)
        return info

    def holder(self, key: str) -> WorkloadInfo | None:
        queue = self.queues.get(self.holders.get(key, ""))
        return queue.workloads.get(key) if queue is not None else None

    def make_room(self, queue: str) -> None:
        """A workload has left for good: what did not fit may fit now."""
        known = self.queues.get(queue)
        if known is not None:
            known.generation += 1

    def add_usage(self, queue: QueueState, usage: Usage) -> None:
        queue.node.add_all(usage.quota)
        self.occupy(usage)

    def remove_usage(self, queue: QueueState, usage: Usage) -> None:
        queue.node.remove_all(usage.quota)
        self.vacate(usage)

    def occupy(self, usage: Usage) -> None:
        """Places in topologies only."""
        for name, taken in usage.topology.items():
            flavor = self.topologies.flavor(name)
            if flavor is not None:
                flavor.add_usage(taken)

    def vacate(self, usage: Usage) -> None:
        for name, taken in usage.topology.items():
            flavor = self.topologies.flavor(name)
            if flavor is not None:
                flavor.remove_usage(taken)

    def fits(self, queue: QueueState, usage: Usage) -> bool:
        return self.fits_quota(queue, usage.quota) and self.fits_topology(usage)

    def fits_quota(self, queue: QueueState, amounts: Mapping[FlavorResource, int]) -> bool:
        node = queue.node
        return all(value <= 0 or value <= node.available(what) for what, value in amounts.items())

    def fits_topology(self, usage: Usage) -> bool:
        for name, wanted in usage.topology.items():
            flavor = self.topologies.flavor(name)
            if flavor is not None and not flavor.fits(wanted):
                return False
        return True


def _is_check_active(check: kueue.AdmissionCheck) -> bool:
    return conditions.is_true(check.status.conditions, "Active")
