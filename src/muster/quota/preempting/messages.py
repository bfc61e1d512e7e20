"""What is said of a preemption: to the victim, in its conditions and as an event, and to the preemptor."""

from collections.abc import Mapping
from typing import Final

from muster.api import kueue
from muster.quota.preempting.policies import Reason, Target
from muster.quota.state import QueueState
from muster.quota.workloads import JOB_UID_LABEL, WorkloadInfo

_UNKNOWN: Final = "UNKNOWN"
_GROUNDS: Final[Mapping[str, str]] = {
    Reason.IN_QUEUE: "prioritization in the ClusterQueue",
    Reason.RECLAMATION: "reclamation within the cohort",
    Reason.FAIR_SHARING: "Fair Sharing within the cohort",
    Reason.RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
}


def message(preemptor: kueue.Workload, reason: str, preemptor_path: str, victim_path: str) -> str:
    """Of the victim's conditions. Paths are those of the two queues, from the root."""
    uid = preemptor.metadata.uid or _UNKNOWN
    job = (preemptor.metadata.labels or {}).get(JOB_UID_LABEL) or _UNKNOWN
    return (
        f"Preempted to accommodate a workload (UID: {uid}, JobUID: {job}) due to {_GROUNDS.get(reason, _UNKNOWN)}; "
        f"preemptor path: {preemptor_path or _UNKNOWN}; preemptee path: {victim_path or _UNKNOWN}"
    )


def message_for(preemptor: WorkloadInfo, queue: QueueState, target: Target) -> str:
    return message(preemptor.view, target.reason, queue.node.path(), target.queue.node.path())


def victim_event(preemptor: WorkloadInfo, queue: QueueState, target: Target) -> str:
    return f"{message_for(preemptor, queue, target)}; {_priorities(preemptor, target.info)}"


def preemptor_event(preemptor: WorkloadInfo, target: Target) -> str:
    victim = target.info
    return (
        f"Preempted workload {victim.key} (UID: {victim.uid}) in ClusterQueue {target.queue.name}; "
        f"{_priorities(preemptor, victim)}"
    )


def _priorities(preemptor: WorkloadInfo, victim: WorkloadInfo) -> str:
    return f"preemptor {_priority(preemptor)}; preemptee {_priority(victim)}"


def _priority(info: WorkloadInfo) -> str:
    boost = info.priority - info.base_priority
    return f"effective priority: {info.priority} (base: {info.base_priority}, boost: {boost})"
