"""The admission engine: fed with what the store shows, it decides what may start.

Kueue looks at one head of every queue in a cycle and then waits for the store. Here a pass runs such cycles one after
another in memory until nothing moves any more, tree by tree (queues that share no quota do not decide about each
other), and only over trees in which something happened. Admissions count at once ("assumed"); the outcome is the one
that as many single cycles would reach.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from muster.api import conditions, core, kueue, node, timestamps
from muster.api.meta import Instant, ObjectMeta
from muster.api.scalars import ResourceList
from muster.quota.agenda import Agenda
from muster.quota.cycle import Cycle
from muster.quota.decisions import Admission, CycleResult, Eviction, Replacement, Requeue
from muster.quota.fair_admission import Ledger, charges_entry
from muster.quota.limits import LimitRanges, adjustment
from muster.quota.queueing import PendingQueues, SecondPass
from muster.quota.queueing.pending import Verdict
from muster.quota.settings import Settings
from muster.quota.state import QueueState, QuotaState
from muster.quota.workloads import FINISHED, WorkloadInfo

DEFAULT_QUEUE: Final = "default"
"""The ClusterQueue of workloads that name no queue."""


@dataclass(slots=True)
class Step:
    """What became of a few workloads, to be written and told."""

    decisions: list[Admission | Eviction | Replacement] = field(default_factory=list)
    waits: list[Requeue] = field(default_factory=list)
    """Looked at, and waiting until something changes."""
    moved: list[tuple[WorkloadInfo, Verdict]] = field(default_factory=list)
    """Waiting because another one just like them does."""
    skipped_preemptions: dict[str, int] = field(default_factory=dict)
    recomputations: dict[str, dict[str, int]] = field(default_factory=dict)
    """As the cycle says."""
    is_attempt: bool = False
    """Something was looked at."""

    @property
    def has_admissions(self) -> bool:
        return any(isinstance(decided, Admission) for decided in self.decisions)


class Engine:
    """Mutable, with one owner. `…_changed` and `…_removed` tell it what happened; `step` decides."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.state = QuotaState(settings)
        self.pending = PendingQueues(settings, self.state.tree, self.state.namespaces)
        self.second_pass = SecondPass()
        self.ranges: dict[str, LimitRanges] = {}
        """LimitRanges by namespace."""
        self.overheads: dict[str, ResourceList] = {}
        """Of pods, by RuntimeClass."""
        self._agenda = Agenda(self.state, self.pending)
        self._assumed: dict[str, WorkloadInfo | None] = {}  # by key, what it held before
        self._evicting: set[str] = set()  # told to stop by us, and not yet seen to have been
        self._waits: dict[str, Requeue] = {}
        self._cycles = 0
        self._cycle: Cycle | None = None

    # Workloads

    def workload_changed(self, view: kueue.Workload, now: Instant) -> None:
        key = f"{view.metadata.namespace}/{view.metadata.name}"
        if conditions.is_true(view.status.conditions, FINISHED):
            self.workload_removed(key)
            return
        known = self.state.holder(key)
        if known is not None and _differs_in_conditions_only(known.view, view):
            info = known.changed(view, known.queue, known.pod_sets, self.settings)
        else:
            info = self._read(view, now)
        if info.key in self._assumed and not info.has_reservation:
            return  # not yet what we have written; should the write fail, it is read again
        if info.key in self._evicting and info.holds_quota and not info.is_evicted:
            return  # likewise
        self._evicting.discard(info.key)
        if info.holds_quota:
            self._holds(info, known, now)
            return
        self._assumed.pop(info.key, None)
        self.second_pass.forget(info.key)
        if known is not None:
            self._release(info.key)
        if info.is_queueable(self.settings):
            self.pending.push(info, now)
            self._agenda.came(info)
        else:
            self.pending.delete(info.key)
            self._waits.pop(info.key, None)

    def workload_removed(self, key: str) -> None:
        self._assumed.pop(key, None)
        self._evicting.discard(key)
        self._waits.pop(key, None)
        self.second_pass.forget(key)
        self.pending.delete(key)
        self._release(key)

    def _read(self, view: kueue.Workload, now: Instant) -> WorkloadInfo:
        admission = view.status.admission
        local = f"{view.metadata.namespace}/{view.spec.queue_name or ''}"
        queue = admission.cluster_queue if admission is not None else self.pending.leads_to(local)
        if not view.spec.queue_name and not queue:
            self._open_default(view.metadata.namespace, now)
            queue = DEFAULT_QUEUE
        adjust = adjustment(self.ranges.get(view.metadata.namespace), self.overheads)
        return WorkloadInfo(view, queue, self.settings, adjust)

    def _open_default(self, namespace: str, now: Instant) -> None:
        """Whatever names no queue in this namespace goes to the default one."""
        door = kueue.LocalQueue(
            metadata=ObjectMeta(namespace=namespace), spec=kueue.LocalQueueSpec(cluster_queue=DEFAULT_QUEUE)
        )
        self.pending.set_local_queue(door, now)

    def _holds(self, info: WorkloadInfo, known: WorkloadInfo | None, now: Instant) -> None:
        self._assumed.pop(info.key, None)
        self._waits.pop(info.key, None)
        self.pending.delete(info.key)
        if known is not None and known.pod_sets is info.pod_sets:
            self.state.queues[known.queue].put(info)
        else:
            self.state.add(info)
        if known is not None and known.usage.quota != info.usage.quota:
            self._make_room(info)
        if self.pending.ledger is not None and info.is_admitted and self.pending.ledger.is_charged_for(info.key):
            self.pending.ledger.settle(info.key, self.used_by(info.local_queue), now)
        self.second_pass.update(info)
        self.second_pass.queue(info, now)

    def _release(self, key: str) -> None:
        info = self.state.remove(key)
        if info is not None:
            if self.pending.ledger is not None:
                self.pending.ledger.drop(key)
            self._make_room(info)

    def _make_room(self, info: WorkloadInfo) -> None:
        """Whoever shares quota with that queue, or places workloads on the same nodes, may fit now."""
        self.state.make_room(info.queue)
        self._agenda.room_in(info.queue)
        if info.usage.topology:
            self._agenda.room_on_nodes()

    def used_by(self, local_queue: str) -> dict[str, int]:
        """By resource, what the admitted workloads of a local queue use."""
        tally = self.state.by_local_queue.get(local_queue)
        return tally.used_by_resource() if tally is not None else {}

    # Everything else

    def queue_changed(self, view: kueue.ClusterQueue, now: Instant) -> None:
        name = view.metadata.name
        known = self.state.queues.get(name)
        neighbours = self._agenda.tree_of(name) if known is not None else ()
        self._forget_activity()
        self.state.set_queue(view)
        self.pending.set_queue(self.state.queues[name].policy, now)
        self._agenda.flush([*neighbours, name])

    def queue_removed(self, name: str) -> None:
        neighbours = self._agenda.tree_of(name)
        self._forget_activity()
        self.state.remove_queue(name)
        self.pending.remove_queue(name)
        self._agenda.flush(neighbours)

    def local_queue_changed(self, view: kueue.LocalQueue, now: Instant) -> None:
        key = f"{view.metadata.namespace}/{view.metadata.name}"
        if self.pending.ledger is not None and key not in self.state.local_queues:
            _open_account(self.pending.ledger, key, view.status)
        self.state.local_queues[key] = view
        self.pending.set_local_queue(view, now)
        self._agenda.touch(view.spec.cluster_queue)

    def local_queue_removed(self, key: str) -> None:
        removed = self.state.local_queues.pop(key, None)
        self.pending.remove_local_queue(key)
        if removed is not None:
            self._agenda.flush([removed.spec.cluster_queue])

    def cohort_changed(self, view: kueue.Cohort) -> None:
        self._forget_activity()
        self.state.set_cohort(view)
        self._agenda.flush_cohort(view.metadata.name)

    def cohort_removed(self, name: str) -> None:
        self._forget_activity()
        self.state.remove_cohort(name)
        self._agenda.flush_cohort(name)

    def flavor_changed(self, view: kueue.ResourceFlavor) -> None:
        self.state.set_flavor(view)
        self._flush_where(lambda queue: view.metadata.name in queue.policy.flavors)

    def flavor_removed(self, name: str) -> None:
        self.state.remove_flavor(name)
        self._flush_where(lambda queue: name in queue.policy.flavors)

    def check_changed(self, view: kueue.AdmissionCheck) -> None:
        self.state.checks[view.metadata.name] = view
        self._flush_where(lambda queue: view.metadata.name in queue.policy.checks)

    def check_removed(self, name: str) -> None:
        self.state.checks.pop(name, None)
        self._flush_where(lambda queue: name in queue.policy.checks)

    def topology_changed(self, view: kueue.Topology) -> None:
        self.state.set_topology(view)
        self._flush_where(lambda queue: self._has_topology(queue, view.metadata.name))

    def topology_removed(self, name: str) -> None:
        self.state.remove_topology(name)
        self._flush_where(lambda queue: self._has_topology(queue, name))

    def _has_topology(self, queue: QueueState, topology: str) -> bool:
        flavors = (self.state.flavors.get(flavor) for flavor in queue.policy.flavors)
        return any(flavor is not None and flavor.spec.topology_name == topology for flavor in flavors)

    def namespace_changed(self, view: core.Namespace) -> None:
        labels = view.metadata.labels or {}
        name = view.metadata.name
        known = name in self.state.namespaces
        if known and self.state.namespaces[name] == labels:
            return
        self.state.namespaces[name] = labels
        self._flush_where(lambda queue: queue.policy.selector.matches(labels))

    def namespace_removed(self, name: str) -> None:
        if name in self.state.namespaces:
            del self.state.namespaces[name]
        self._forget_activity()

    def ranges_changed(self, namespace: str, ranges: LimitRanges, now: Instant) -> None:
        if ranges:
            self.ranges[namespace] = ranges
        else:
            self.ranges.pop(namespace, None)
        self._reread(lambda view: view.metadata.namespace == namespace, now)

    def runtime_class_changed(self, view: node.RuntimeClass, now: Instant) -> None:
        overhead = view.overhead.pod_fixed if view.overhead is not None else None
        self._set_overhead(view.metadata.name, overhead or {}, now)

    def runtime_class_removed(self, name: str, now: Instant) -> None:
        self._set_overhead(name, {}, now)

    def _set_overhead(self, name: str, overhead: ResourceList, now: Instant) -> None:
        if self.overheads.get(name, {}) == overhead:
            return
        self.overheads.pop(name, None)
        if overhead:
            self.overheads[name] = overhead
        self._reread(lambda view: _has_class(view, name), now)

    def _reread(self, concerns: Callable[[kueue.Workload], bool], now: Instant) -> None:
        """What their pods will ask for has changed, of those that wait: what holds quota keeps what it was given."""
        for known in [info for info in self.pending if concerns(info.view)]:
            fresh = self._read(known.view, now)
            self.pending.delete(known.key)
            self.pending.push(fresh, now)
            self._agenda.touch(self.pending.leads_to(fresh.local_queue))

    def room_on_nodes(self) -> None:
        """Nodes came, changed or were freed: what is placed by topology may fit now."""
        self._agenda.room_on_nodes()

    def _flush_where(self, concerns: Callable[[QueueState], bool]) -> None:
        self._forget_activity()
        self._agenda.flush_where(concerns)

    def _forget_activity(self) -> None:
        """What decides whether a queue admits anything has changed."""
        self._cycle = None
        self._agenda.forget_activity()

    # Deciding

    @property
    def has_topologies(self) -> bool:
        return any(flavor.spec.topology_name for flavor in self.state.flavors.values())

    def has_work(self, now: Instant) -> bool:
        due = self.next_due()
        return self._agenda.has_news or (due is not None and due <= now)

    def next_due(self) -> Instant | None:
        """When there is something to do though nothing happens."""
        return self.second_pass.next_due()

    def step(self, now: Instant) -> Step:
        """One cycle over the queues of one tree in which something happened, and over what is due for a second pass.
        Ask again while it `has_work`."""
        self.state.settle()
        self._agenda.settle(now)
        step = Step()
        again = self.second_pass.take(now)
        names = self._agenda.next_tree()
        heads = [info for name in names if (info := self.pending.pop(name)) is not None]
        if again or heads:
            if self._cycle is None:
                self._cycle = Cycle(self.state, self.pending, self.ranges)
            self._cycles += 1
            midway = {info.key for info in heads if info.scan is not None and info.scan.has_untried}
            result = self._cycle.run([*again, *heads], now, self._cycles)
            step.is_attempt = True
            self._take(result, step, now)
            self._agenda.plan_next(names, result, midway)
        if self._agenda.is_empty:
            step.waits = list(self._waits.values())
            self._waits.clear()
            self._agenda.rest()
            step.moved = self.pending.take_moved()
        return step

    def _take(self, result: CycleResult, step: Step, now: Instant) -> None:
        for decided in result.decisions:
            if isinstance(decided, Requeue):
                self._put_back(decided, now)
            else:
                self._count(decided)
                step.decisions.append(decided)
        step.skipped_preemptions = result.skipped_preemptions
        step.recomputations = result.recomputations

    def _count(self, decided: Admission | Eviction | Replacement) -> None:
        if isinstance(decided, Admission):
            key = decided.info.key
            self._assumed[key] = decided.info if decided.is_second_pass else None
            self._waits.pop(key, None)
            self.pending.delete(key)
            policy = self.state.queues[decided.assumed.queue].policy
            if self.pending.ledger is not None and charges_entry(decided.info, policy, self.settings):
                self.pending.ledger.charge(decided.info, policy)
        elif isinstance(decided, Eviction):
            self._evicting.add(decided.info.key)
        elif isinstance(decided, Replacement):
            self.state.make_room(decided.info.queue)

    def _put_back(self, decided: Requeue, now: Instant) -> None:
        info = decided.info
        if decided.is_second_pass:
            self.second_pass.retry(info, now)
        elif self.pending.requeue(info, decided.reason, now, decided.entry.pending_reason):
            self._waits[info.key] = decided
            queue, entry = decided.entry.queue, decided.entry
            if queue is not None and entry.assignment.places and self.state.fits_quota(queue, entry.usage.quota):
                self._agenda.short_of_nodes(queue.name)

    # The store's answer

    def refused(self, key: str, view: kueue.Workload | None, now: Instant) -> None:
        """A decision about the workload was not written: it is as `view` says, or gone."""
        self._evicting.discard(key)
        if key in self._assumed:
            before = self._assumed.pop(key)
            assumed = self.state.remove(key)
            if before is not None:
                self.state.add(before)
            if assumed is not None:
                self._make_room(assumed)  # others were turned away for it
            if self.pending.ledger is not None:
                self.pending.ledger.drop(key)
        if view is None:
            self.workload_removed(key)
        else:
            self.workload_changed(view, now)


def _open_account(ledger: Ledger, local_queue: str, status: kueue.LocalQueueStatus) -> None:
    """What a local queue used in an earlier life of this process, its status remembers."""
    sharing = status.fair_sharing
    known = sharing.admission_fair_sharing_status if sharing is not None else None
    if known is not None and known.last_update:
        ledger.seed(local_queue, known.consumed_resources or {}, timestamps.parse(known.last_update))


def _has_class(view: kueue.Workload, runtime_class: str) -> bool:
    return any(pods.template.spec.runtime_class_name == runtime_class for pods in view.spec.pod_sets)


def _differs_in_conditions_only(old: kueue.Workload, new: kueue.Workload) -> bool:
    """It asks for, and was given, the same: most changes of a workload that holds quota are our own decisions."""
    return (
        new.metadata.generation is not None
        and old.metadata.generation == new.metadata.generation
        and old.metadata.annotations == new.metadata.annotations
        and old.status.admission == new.status.admission
        and old.status.reclaimable_pods == new.status.reclaimable_pods
    )
