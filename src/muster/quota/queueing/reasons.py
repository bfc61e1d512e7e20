"""Why a workload that was looked at goes back to its queue, and what follows from that."""

from enum import StrEnum
from typing import Final

from muster.quota.queues import Strategy


class RequeueReason(StrEnum):
    GENERIC = ""
    FAILED_AFTER_NOMINATION = "FailedAfterNomination"
    NAMESPACE_MISMATCH = "NamespaceMismatch"
    PENDING_PREEMPTION = "PendingPreemption"
    PENDING_MIGRATION = "PendingMigration"
    PREEMPTION_FAILED = "PreemptionFailed"
    PREEMPTION_GATED = "PreemptionGated"
    NO_FIT = "NoFit"
    PREEMPTION_NO_CANDIDATES = "PreemptionNoCandidates"


_RETRIED: Final = frozenset(
    {
        RequeueReason.FAILED_AFTER_NOMINATION,
        RequeueReason.PENDING_PREEMPTION,
        RequeueReason.PENDING_MIGRATION,
        RequeueReason.PREEMPTION_FAILED,
    }
)
WAITS_FOR_VICTIMS: Final = frozenset({RequeueReason.PENDING_PREEMPTION, RequeueReason.PENDING_MIGRATION})
"""Room is being made for it: it is its queue's preemptor until it has been served."""
HOLDS_FOR_SHAPE: Final = frozenset({RequeueReason.NO_FIT, RequeueReason.PREEMPTION_NO_CANDIDATES})
"""Whatever has the same shape would not fit either."""


def is_immediate(reason: RequeueReason, strategy: Strategy) -> bool:
    """Looked at again at once, without waiting for anything to change. A strict queue does that with all but those that
    it would never take, so that its head blocks whoever is behind it."""
    if strategy is Strategy.STRICT:
        return reason is not RequeueReason.NAMESPACE_MISMATCH
    return reason in _RETRIED
