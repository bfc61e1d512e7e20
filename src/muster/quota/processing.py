"""One entry after another: each is admitted, preempts, or waits, given what was decided for those before it.

What an entry takes is counted in the state at once, so that the next one sees it; only what was admitted stays counted
when the cycle is over.
"""

from typing import Final

from muster.quota import assuming, status, variants
from muster.quota.assignments import Mode
from muster.quota.claims import Claims
from muster.quota.decisions import Admission, CycleResult, Eviction, Moment, Replacement
from muster.quota.entries import NO_LONGER_FITS, OVERLAPS, Entry, Standing, to_reserve
from muster.quota.gates import Gate, Gates
from muster.quota.nomination import Proposer
from muster.quota.queueing import RequeueReason
from muster.quota.queues import Victims
from muster.quota.state import QueueState, QuotaState
from muster.quota.status import Evicted, Pending
from muster.quota.workloads import PODS_READY, Usage

WAITING_FOR_PODS: Final = "waiting for all admitted workloads to be in PodsReady condition"
NEW_TARGETS: Final = "new_targets"
DEFERRED_FIT: Final = "deferred_fit"
SKIPPED: Final = "skipped"


class Processor:
    def __init__(self, state: QuotaState, proposer: Proposer, moment: Moment, result: CycleResult) -> None:
        self._state = state
        self._proposer = proposer
        self._moment = moment
        self._result = result
        self._claims = Claims(state)
        self._counted: list[tuple[QueueState, Usage]] = []
        self._are_pods_ready: bool | None = None

    @property
    def _gates(self) -> Gates:
        return self._moment.settings.gates

    def finish(self) -> None:
        """Takes back what was counted for workloads that were not admitted, and what was tried out."""
        self._claims.put_back()
        self._claims.show()
        for queue, usage in reversed(self._counted):
            self._state.remove_usage(queue, usage)
        self._counted.clear()

    def process(self, entry: Entry) -> None:
        self._decide(entry)
        if self._moment.settings.fair_sharing is not None:
            self._claims.put_back()  # who is next, shares decide that say who uses what now

    def _decide(self, entry: Entry) -> None:
        queue = entry.queue
        assert queue is not None
        if entry.is_estimate and not self._look_closer(entry, queue):
            entry.overtake()
            return
        fits = self._settle_offer(entry)
        mode = entry.mode
        if mode is not Mode.FIT and self._evicts_for_failed_node(entry):
            return
        if mode is Mode.NO_FIT:
            entry.wait(entry.assignment.no_fit_reason or Pending.WAITING_FOR_QUOTA, RequeueReason.NO_FIT)
        elif mode is Mode.PREEMPT and not entry.targets:
            self._hold_room(entry, queue)
        elif mode is Mode.PREEMPT and self._is_gated(entry):
            entry.gate()
        elif mode is Mode.DEFERRED_FIT:
            entry.defer()
            self._count(queue, entry.usage)
        elif self._overlaps(entry):
            entry.skip(OVERLAPS, self._gates)
            self._note_skipped(queue)
        elif not fits:
            entry.skip(NO_LONGER_FITS, self._gates)
            if mode is Mode.PREEMPT:
                self._note_skipped(queue)
        elif not self._is_refused_for_sibling(entry, queue):
            self._grant(entry, queue)

    # Whether it still fits

    def _look_closer(self, entry: Entry, queue: QueueState) -> bool:
        """False: what was estimated is no longer there."""
        self._claims.put_back()
        self._claims.show()
        if not self._state.fits_quota(queue, entry.usage.quota):
            return False
        self._proposer.nominate(entry)
        return True

    def _settle_offer(self, entry: Entry) -> bool:
        """Whether it fits after all that was decided before, with another offer where that takes one."""
        if entry.mode is Mode.NO_FIT or (entry.mode is Mode.PREEMPT and not entry.targets and not entry.usage.topology):
            return False
        if self._overlaps(entry) and Gate.RECOMPUTE_ASSIGNMENT_UPON_PREEMPTION_TARGETS_OVERLAP in self._gates:
            self._choose_other_targets(entry)
            return self._fits(entry) == (True, True)
        fits_quota, fits_topology = self._fits(entry)
        if fits_quota and not fits_topology and Gate.TAS_RECOMPUTE_ASSIGNMENT_WITHIN_SCHEDULING_CYCLE in self._gates:
            self._claims.put_back()
            self._claims.show()
            self._proposer.renominate(entry)
            return self._fits(entry) == (True, True)
        return fits_quota and fits_topology

    def _overlaps(self, entry: Entry) -> bool:
        return self._claims.overlap(entry.targets)

    def _choose_other_targets(self, entry: Entry) -> None:
        """As if those were gone already whom others preempt."""
        self._claims.take_out()
        self._claims.hide()
        self._proposer.renominate(entry)
        if entry.mode is Mode.FIT:
            entry.mode = Mode.DEFERRED_FIT
            outcome = DEFERRED_FIT
        else:
            outcome = NEW_TARGETS if entry.targets else SKIPPED
        counts = self._result.recomputations.setdefault(entry.info.queue, {})
        counts[outcome] = counts.get(outcome, 0) + 1

    def _fits(self, entry: Entry) -> tuple[bool, bool]:
        """Its quota and its topology, with all gone who have to go for it and for those before it."""
        assert entry.queue is not None
        self._claims.take_out()
        mine = self._claims.unclaimed(entry.targets)
        for target in mine:
            self._state.remove_usage(target.queue, target.info.usage)
        fits = (
            self._state.fits_quota(entry.queue, entry.usage.quota),
            self._state.fits_topology(entry.usage),
        )
        for target in mine:
            self._state.add_usage(target.queue, target.info.usage)
        return fits

    # What becomes of it

    def _hold_room(self, entry: Entry, queue: QueueState) -> None:
        """It waits for room that nobody has to make. Others must not take what there is of it, unless the queue can
        always claim it back."""
        entry.wait(Pending.WAITING_FOR_QUOTA, RequeueReason.PREEMPTION_NO_CANDIDATES)
        reserves_anyway = entry.is_preemptor and Gate.PRIORITIZE_PREEMPTOR_WORKLOADS in self._gates
        if queue.policy.reclaim_within_cohort is not Victims.ANY or reserves_anyway:
            self._claims.put_back()
            self._count(queue, Usage(to_reserve(entry, queue), entry.usage.topology))

    def _is_gated(self, entry: Entry) -> bool:
        has_gates = Gate.CONCURRENT_ADMISSION in self._gates or Gate.MULTIKUEUE_ORCHESTRATED_PREEMPTION in self._gates
        return has_gates and bool(status.closed_gates(entry.info.view))

    def _is_refused_for_sibling(self, entry: Entry, queue: QueueState) -> bool:
        if Gate.CONCURRENT_ADMISSION not in self._gates:
            return False
        verdict = variants.judge(entry)
        if verdict is None:
            return False
        if verdict.refusal:
            entry.skip(verdict.refusal, self._gates, Pending.PENDING_EVALUATION)
            return True
        if verdict.moves is None or entry.mode is not Mode.FIT:
            return False
        self._count(queue, entry.usage)
        if not verdict.moves.is_evicted:
            message = f"Evicted to migrate the workload to a more favorable flavor, variant {entry.info.key}"
            self._evict(Eviction(verdict.moves, Evicted.FLAVOR_MIGRATION, self._moment, entry, said=message))
        entry.migrate(f"Pending the migration from variant {verdict.moves.key}")
        return True

    def _grant(self, entry: Entry, queue: QueueState) -> None:
        self._claims.add(entry.targets)
        if entry.mode is Mode.PREEMPT:
            self._count(queue, entry.usage)
            self._preempt(entry)
        elif self._must_wait_for_pods(entry):
            self._count(queue, entry.usage)
            entry.refuse(Pending.WAITING_FOR_PODS_READY, WAITING_FOR_PODS, RequeueReason.FAILED_AFTER_NOMINATION)
        else:
            self._admit(entry, queue)

    def _preempt(self, entry: Entry) -> None:
        for target in entry.targets:
            if target.info.is_evicted:
                continue  # it has been told already
            self._evict(Eviction(target.info, Evicted.PREEMPTED, self._moment, entry, target))
        entry.preempt(len(entry.targets))

    def _evict(self, eviction: Eviction) -> None:
        info = eviction.info
        queue = self._state.queues[info.queue]
        if info.key in queue.workloads:
            queue.put(assuming.evicted(info, eviction.reason, self._moment.text, self._moment.settings))
        self._result.decisions.append(eviction)

    def _evicts_for_failed_node(self, entry: Entry) -> bool:
        info = entry.info
        if (
            Gate.TAS_FAILED_NODE_REPLACEMENT_FAIL_FAST not in self._gates
            or not info.has_reservation
            or not info.view.status.unhealthy_nodes
        ):
            return False
        nodes = ", ".join(node.name for node in info.view.status.unhealthy_nodes)
        message = f"Workload was evicted as there was no replacement for unhealthy node(s): {nodes}"
        self._evict(Eviction(info, Evicted.NODE_FAILURES, self._moment, entry, said=message))
        entry.standing = Standing.EVICTED
        return True

    def _must_wait_for_pods(self, entry: Entry) -> bool:
        rule = self._moment.settings.pods_ready
        if rule is None or not rule.blocks_admission or entry.info.has_reservation:
            return False
        if self._are_pods_ready is None:
            self._are_pods_ready = all(
                info.is_true(PODS_READY) for queue in self._state.queues.values() for info in queue.workloads.values()
            )
        return not self._are_pods_ready

    def _admit(self, entry: Entry, queue: QueueState) -> None:
        info, assignment, moment = entry.info, entry.assignment, self._moment
        if entry.replaced is not None and self._state.remove(entry.replaced.key) is not None:
            self._result.decisions.append(Replacement(entry.replaced, info, moment))
        has_all = self._has_all_checks(entry, queue)
        is_admitted = (
            has_all
            and status.are_checks_ready(info.view)
            and not any(pods.delayed_topology == "Pending" for pods in assignment.pod_sets)
        )
        assumed = assuming.reserved(info, assignment, queue.name, moment.text, moment.settings, is_admitted=is_admitted)
        self._state.add(assumed)
        entry.standing = Standing.ASSUMED
        self._are_pods_ready = False
        self._result.decisions.append(Admission(info, assumed, entry, moment, has_all))

    def _has_all_checks(self, entry: Entry, queue: QueueState) -> bool:
        if not queue.policy.checks:
            return True
        flavors = {choice.flavor for pods in entry.assignment.pod_sets for choice in pods.flavors.values()}
        listed = {check.name for check in entry.info.view.status.admission_checks}
        return queue.policy.checks_for(frozenset(flavors)) <= listed

    def _count(self, queue: QueueState, usage: Usage) -> None:
        self._state.add_usage(queue, usage)
        self._counted.append((queue, usage))

    def _note_skipped(self, queue: QueueState) -> None:
        skipped = self._result.skipped_preemptions
        skipped[queue.name] = skipped.get(queue.name, 0) + 1
