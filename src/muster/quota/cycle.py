"""One admission cycle: the heads of all queues are considered, put in order, and decided about one by one.

Pure: the state afterwards differs only by what was admitted or told to stop; everything else is in the result, for the
caller to write, to record and to put back into the queues.
"""

from collections.abc import Iterable, Mapping, Sequence

from muster.api.meta import Instant
from muster.quota.decisions import CycleResult, Moment, Requeue
from muster.quota.entries import Entry, Standing, order
from muster.quota.flavors import FlavorMemory
from muster.quota.gates import Gate
from muster.quota.limits import LimitRanges
from muster.quota.nomination import Nominator, Proposer
from muster.quota.preempting import Preemptor
from muster.quota.processing import Processor
from muster.quota.queueing import PendingQueues
from muster.quota.state import QuotaState
from muster.quota.tournament import Tournament
from muster.quota.workloads import WorkloadInfo

_NO_RANGES: Mapping[str, LimitRanges] = {}


class Cycle:
    """Made for one pass: it remembers of queues and namespaces what only changes from outside."""

    def __init__(
        self, state: QuotaState, pending: PendingQueues, ranges: Mapping[str, LimitRanges] = _NO_RANGES
    ) -> None:
        """`ranges`: LimitRanges by namespace."""
        self._state = state
        self._pending = pending
        self._nominator = Nominator(state, ranges)
        self._memory = FlavorMemory()
        self._marks_preemptors = Gate.PRIORITIZE_PREEMPTOR_WORKLOADS in state.settings.gates

    def run(self, heads: Sequence[WorkloadInfo], now: Instant, number: int) -> CycleResult:
        """`number`: of the cycle, growing by one each time."""
        state, settings = self._state, self._state.settings
        moment, result = Moment(now, settings), CycleResult()
        proposer = Proposer(state, Preemptor(state, now, self._pending.ledger), self._memory, number)
        considered, refused = self._consider(heads)
        self._nominate(considered, proposer)
        processor = Processor(state, proposer, moment, result)
        try:
            for entry in self._ordered(considered):
                processor.process(entry)
        finally:
            processor.finish()
        for entry in (*considered, *refused):
            if entry.standing is not Standing.ASSUMED and entry.standing is not Standing.EVICTED:
                result.decisions.append(Requeue(entry, moment))
        return result

    def roll_back(self, key: str, before: WorkloadInfo | None = None) -> None:
        """The store did not take a decision: the workload holds what it held before, nothing if None."""
        self._state.remove(key)
        if before is not None:
            self._state.add(before)

    def _consider(self, heads: Sequence[WorkloadInfo]) -> tuple[list[Entry], list[Entry]]:
        considered: list[Entry] = []
        refused: list[Entry] = []
        for info in heads:
            info.was_seen = True
            entry = self._nominator.consider(info)
            if entry is None:
                continue
            if entry.queue is None:
                refused.append(entry)
                continue
            if self._marks_preemptors:
                entry.is_preemptor = self._pending.is_preemptor(info)
            considered.append(entry)
        return considered, refused

    def _nominate(self, entries: Sequence[Entry], proposer: Proposer) -> None:
        """Of many that would fit, few do in the end: it is enough to estimate what they would take, and look closer
        when their turn comes. But not where victims have to be chosen, whose room is not to be counted on twice."""
        estimated = [entry for entry in entries if len(entries) > 1 and proposer.estimate(entry)]
        for entry in entries:
            if not entry.is_estimate:
                proposer.nominate(entry)
        if any(entry.targets for entry in entries):
            for entry in estimated:
                proposer.nominate(entry)

    def _ordered(self, entries: list[Entry]) -> Iterable[Entry]:
        gates = self._state.settings.gates
        if self._state.settings.fair_sharing is not None:
            return Tournament(entries, gates)
        entries.sort(key=lambda entry: order(entry, gates))
        return entries
