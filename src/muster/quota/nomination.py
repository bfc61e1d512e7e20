"""Which of the heads are considered at all, and what each of those could be given, seen by itself."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from muster.quota import limits, status, waking
from muster.quota.assignments import Assignment, Mode
from muster.quota.entries import Entry
from muster.quota.flavors import FlavorAssigner, FlavorMemory, Pins, net_topology_usage, only_choice
from muster.quota.gates import Gate
from muster.quota.limits import LimitRanges
from muster.quota.partial import count_ranges, search_partial
from muster.quota.preempting import Preemptor, Target
from muster.quota.queueing import RequeueReason, needs_second_pass
from muster.quota.state import QueueState, QuotaState
from muster.quota.status import Pending
from muster.quota.workloads import Usage, WorkloadInfo

NO_NAMESPACE: Final = "workload namespace doesn't match ClusterQueue selector"


class Offer(NamedTuple):
    """What a workload could be given, and whom that would cost their place."""

    assignment: Assignment
    mode: Mode
    targets: Sequence[Target]

    @property
    def is_viable(self) -> bool:
        return self.mode is Mode.FIT or bool(self.targets)


class Nominator:
    """Lives as long as nothing outside changes: it remembers which queues are active, and whom they take."""

    def __init__(self, state: QuotaState, ranges: Mapping[str, LimitRanges]) -> None:
        """`ranges`: by namespace."""
        self._state = state
        self._ranges = ranges
        self._active: dict[str, bool] = {}
        self._accepted: dict[tuple[str, str], bool] = {}

    def is_active(self, queue: QueueState) -> bool:
        found = self._active.get(queue.name)
        if found is None:
            found = self._active[queue.name] = self._state.is_active(queue)
        return found

    def consider(self, info: WorkloadInfo) -> Entry | None:
        """None where there is nothing to decide: it holds what it asks for. An entry without a queue is refused."""
        if info.key in self._state.holders and not needs_second_pass(info):
            return None
        entry = Entry(info)
        if status.failed_checks(info.view):
            entry.refuse(Pending.PENDING_EVALUATION, "The workload has failed admission checks")
            return entry
        queue = self._state.queues.get(info.queue)
        if queue is None:
            entry.refuse(Pending.MISCONFIGURED, f"ClusterQueue {info.queue} not found")
        elif not self.is_active(queue):
            entry.refuse(Pending.SUSPENDED, f"ClusterQueue {info.queue} is inactive")
        elif not self._accepts(queue, info.view.metadata.namespace):
            entry.refuse(Pending.MISCONFIGURED, NO_NAMESPACE, RequeueReason.NAMESPACE_MISMATCH)
        elif problem := self._problem(info):
            entry.refuse(Pending.MISCONFIGURED, problem)
        else:
            entry.queue = queue
        return entry

    def _accepts(self, queue: QueueState, namespace: str) -> bool:
        found = self._accepted.get((queue.name, namespace))
        if found is None:
            found = self._accepted[queue.name, namespace] = self._state.accepts_namespace(queue, namespace)
        return found

    def _problem(self, info: WorkloadInfo) -> str:
        if info.beyond_limits is None:
            info.beyond_limits = limits.beyond_limits(info)
        if info.beyond_limits:
            return f"resources validation failed: {info.beyond_limits}"
        ranges = self._ranges.get(info.view.metadata.namespace)
        found = limits.beyond_ranges(info, ranges) if ranges else ""
        return f"resources didn't satisfy LimitRange constraints: {found}" if found else ""


class Proposer:
    """Works out offers against the state as it is at the moment of asking."""

    def __init__(self, state: QuotaState, preemptor: Preemptor, memory: FlavorMemory, cycle: int) -> None:
        self._state = state
        self._preemptor = preemptor
        self._assigner = FlavorAssigner(state, preemptor, memory)
        self._cycle = cycle

    def estimate(self, entry: Entry) -> bool:
        """What it would be given, where that can be told without a search, and there is room for it. False where it
        cannot."""
        info, queue = entry.info, entry.queue
        assert queue is not None
        looks_again = Gate.TAS_RECOMPUTE_ASSIGNMENT_WITHIN_SCHEDULING_CYCLE in self._state.settings.gates
        if not looks_again or info.has_reservation or info.replaced_key is not None or info.can_be_partial():
            return False
        wanted = only_choice(info, queue.policy)
        if wanted is None or not waking.has_quota(queue, info) or not waking.has_nodes(self._state, queue, info):
            return False
        borrowing = max((queue.node.borrow_height(*asked)[0] for asked in wanted.items()), default=0)
        entry.usage = Usage(wanted)
        entry.assignment = Assignment(borrowing=borrowing, usage=entry.usage)
        entry.mode, entry.is_estimate = Mode.FIT, True
        return True

    def nominate(self, entry: Entry) -> None:
        info = entry.info
        entry.is_estimate = False
        entry.replaced = self._replaced(info)
        self._take(entry, self._offer(entry, None))

    def renominate(self, entry: Entry) -> None:
        """Again, after others were decided about. The flavors stay: another may be better only for a moment."""
        entry.forget_scan()
        self._take(entry, self._offer(entry, Pins.of(entry.assignment)))

    def _take(self, entry: Entry, offer: Offer) -> None:
        assignment = offer.assignment
        entry.assignment, entry.mode, entry.targets = offer
        entry.usage = assignment.usage
        entry.info.scan = assignment.scan
        if assignment.places and offer.mode is Mode.PREEMPT and not entry.info.view.status.unhealthy_nodes:
            self._expect_places(assignment, offer.targets)
            entry.usage = Usage(assignment.usage.quota, net_topology_usage(entry.info, assignment, entry.replaced))

    def _expect_places(self, assignment: Assignment, targets: Sequence[Target]) -> None:
        """Where its pods will go once its victims are gone; without victims, where they would go if nobody were there:
        that room is kept for it, lest others take it and have to be preempted in their turn."""
        for target in targets:
            self._state.remove_usage(target.queue, target.info.usage)
        pod_sets = {pods.name: pods for pods in assignment.pod_sets}
        for name, requests in assignment.places.items():
            flavor = self._state.topologies.flavor(name)
            if flavor is not None:
                for pod_set, placed in flavor.find(requests, empty=not targets).items():
                    pod_sets[pod_set].topology = placed.assignment
        for target in targets:
            self._state.add_usage(target.queue, target.info.usage)

    def _replaced(self, info: WorkloadInfo) -> WorkloadInfo | None:
        key = info.replaced_key
        if key is None or Gate.ELASTIC_JOBS_VIA_WORKLOAD_SLICES not in self._state.settings.gates:
            return None
        return self._state.holder(key)

    def _offer(self, entry: Entry, pins: Pins | None) -> Offer:
        info, queue = entry.info, entry.queue
        assert queue is not None
        whole = self._attempt(entry, None, pins)
        if whole.is_viable:
            return whole
        if Gate.PARTIAL_ADMISSION in self._state.settings.gates and info.can_be_partial():
            found = search_partial(count_ranges(info), lambda counts: self._viable(entry, counts, pins))
            if found is not None:
                return found
        return whole

    def _viable(self, entry: Entry, counts: Sequence[int], pins: Pins | None) -> Offer | None:
        found = self._attempt(entry, counts, pins)
        return found if found.is_viable else None

    def _attempt(self, entry: Entry, counts: Sequence[int] | None, pins: Pins | None) -> Offer:
        queue = entry.queue
        assert queue is not None
        self._preemptor.begin()
        assignment = self._assigner.assign(
            entry.info, queue, counts=counts, replaced=entry.replaced, pinned=pins, cycle=self._cycle
        )
        mode = assignment.mode
        targets = self._preemptor.targets(entry.info, queue, assignment) if mode is Mode.PREEMPT else ()
        return Offer(assignment, mode, targets)
