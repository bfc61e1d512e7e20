"""Workloads that wait for quota: in which order they are looked at, and what is not worth looking at again yet."""

from muster.quota.queueing.pending import Counts, PendingQueue, Preemptor, Verdict
from muster.quota.queueing.reasons import RequeueReason
from muster.quota.queueing.routing import PendingQueues
from muster.quota.queueing.second_pass import SecondPass, needs_second_pass
from muster.quota.queueing.standing import Position, Standing

__all__ = [
    "Counts",
    "PendingQueue",
    "PendingQueues",
    "Position",
    "Preemptor",
    "RequeueReason",
    "SecondPass",
    "Standing",
    "Verdict",
    "needs_second_pass",
]
