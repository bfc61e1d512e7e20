"""The decision about an allocation, complete: from it and its pods to everything that should be done.

It runs once. Until all of its pods have nodes it may be taken back into the queue, and its pods be made again; from
then on a pod that has gone is one that has ended. Whatever was done of an earlier plan, the next starts from what is
there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.api import conditions, core, muster, timestamps, volcano
from muster.api.documents import child
from muster.api.meta import Instant
from muster.api.muster.names import (
    BEGUN,
    PREEMPTING,
    QUEUE_PRIORITY,
    TERMINATED,
    EndReason,
    Phase,
    ResourcePhase,
)
from muster.api.muster.views import AllocatedResource
from muster.api.raw import Document
from muster.jobs.allocations import making, reading


@dataclass(frozen=True, slots=True)
class Seen:
    allocation: muster.Allocation
    document: Document
    """The allocation as stored."""
    pods: Sequence[core.Pod]
    """All that it controls; and those that have gone since it was last looked at, as they were in the end."""
    gone: frozenset[str] = frozenset()
    """The uids of these."""
    group: volcano.PodGroup | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    created: Sequence[int] = ()
    """Ranks."""
    ended: Sequence[core.Pod] = ()
    """To delete."""
    group_created: Document | None = None
    is_group_deleted: bool = False
    reranked: Sequence[core.Pod] = ()
    """Pods that wait for a node, and do not say yet how urgent the allocation is now."""
    status: Document | None = None
    """What to merge into the status; None: it is as it should be."""
    again_after: float | None = None
    """Seconds after which time alone may call for more."""


def plan(seen: Seen, now: Instant) -> Plan:
    allocation = seen.allocation
    if allocation.metadata.deletion_timestamp is not None:
        return Plan()  # its pods go with it
    if allocation.status.phase == Phase.TERMINATED:
        left = [pod for pod in _present(seen) if _is_live(pod) and pod.metadata.deletion_timestamp is None]
        return Plan(ended=left, is_group_deleted=seen.group is not None)
    by_rank = _by_rank(seen)
    if _has_begun(allocation, by_rank):
        return _begun(seen, by_rank, now)
    return _held(seen, now) if allocation.spec.suspend else _beginning(seen, by_rank, now)


def _present(seen: Seen) -> list[core.Pod]:
    return [pod for pod in seen.pods if pod.metadata.uid not in seen.gone]


def _by_rank(seen: Seen) -> Mapping[int, core.Pod]:
    """What is there comes before what was."""
    pods = sorted(seen.pods, key=lambda pod: pod.metadata.uid not in seen.gone)
    return {rank: pod for pod in pods if (rank := reading.rank_of(pod)) is not None}


def _has_begun(allocation: muster.Allocation, by_rank: Mapping[int, core.Pod]) -> bool:
    """Latched in its status. One that has ended early has begun, too; but not one that we took back."""
    if allocation.status.phase in BEGUN:
        return True
    wanted = range(allocation.spec.pods or 1)
    if any(rank in by_rank and by_rank[rank].status.phase in reading.FINISHED for rank in wanted):
        return True
    return all(rank in by_rank and by_rank[rank].spec.node_name for rank in wanted)


# Before it runs


def _held(seen: Seen, now: Instant) -> Plan:
    """It waits for quota. Pods that have no nodes yet have run nothing: they can be made again."""
    present = _present(seen)
    phase = Phase.PENDING if present else Phase.QUEUED
    return Plan(
        ended=[pod for pod in present if pod.metadata.deletion_timestamp is None],
        is_group_deleted=seen.group is not None,
        status=_difference(seen, _Status(phase, (), present, now)),
    )


def _beginning(seen: Seen, by_rank: Mapping[int, core.Pod], now: Instant) -> Plan:
    allocation = seen.allocation
    count, present = allocation.spec.pods or 1, _present(seen)
    there = {reading.rank_of(pod) for pod in present}
    missing = [rank for rank in range(count) if rank not in there]
    surplus = [
        pod
        for pod in present
        if (rank := reading.rank_of(pod)) is None or rank >= count
        if pod.metadata.deletion_timestamp is None
    ]
    resources = _resources(seen, by_rank, now, has_begun=False)
    needs_group = making.is_gang(allocation) and seen.group is None
    return Plan(
        created=missing,
        ended=surplus,
        group_created=making.make_group(allocation) if needs_group else None,
        reranked=[pod for pod in present if _is_misranked(pod, making.urgency(allocation))],
        status=_difference(seen, _Status(Phase.PENDING, resources, present, now)),
    )


def _is_misranked(pod: core.Pod, wanted: Mapping[str, str]) -> bool:
    said = (pod.metadata.annotations or {}).get(QUEUE_PRIORITY)
    return not pod.spec.node_name and said != wanted.get(QUEUE_PRIORITY)


# While it runs, and its end


def _begun(seen: Seen, by_rank: Mapping[int, core.Pod], now: Instant) -> Plan:
    allocation = seen.allocation
    resources = _resources(seen, by_rank, now, has_begun=True)
    present = _present(seen)
    live = [pod for pod in present if _is_live(pod)]
    is_over = all(resource.phase == ResourcePhase.TERMINATED for resource in resources) and not live
    status = _Status(
        Phase.TERMINATED if is_over else _phase(allocation, resources),
        resources,
        present,
        now,
        is_preempted=bool(allocation.spec.suspend),
    )
    has_failed = any(map(reading.has_failed, resources))
    ended = [
        pod
        for pod in present
        # Without a node when another has failed: of a gang that has lost a member the rest will never be placed.
        if reading.is_hopeless(pod) or (has_failed and not pod.spec.node_name)
        if pod.metadata.deletion_timestamp is None
    ]
    left = _seconds_left(allocation, now) if allocation.spec.suspend and not is_over else None
    if left is not None and left <= 0:
        ended = [pod for pod in live if pod.metadata.deletion_timestamp is None]
    return Plan(
        ended=ended,
        is_group_deleted=is_over and seen.group is not None,
        status=_difference(seen, status),
        again_after=left if left is not None and left > 0 else None,
    )


def _is_live(pod: core.Pod) -> bool:
    return pod.status.phase not in reading.FINISHED


def _seconds_left(allocation: muster.Allocation, now: Instant) -> float:
    """Until it is made to stop. Whoever cannot be asked is not given time."""
    if not allocation.spec.is_preemptible:
        return 0.0
    asked = conditions.find(allocation.status.conditions, PREEMPTING)
    since = now
    if asked is not None and asked.status == conditions.TRUE and asked.last_transition_time:
        since = timestamps.parse(asked.last_transition_time)
    return since + (allocation.spec.preemption_timeout_seconds or 0) - now


def _phase(allocation: muster.Allocation, resources: Sequence[AllocatedResource]) -> Phase:
    """As far as all of it has come; what has ended has come as far as can be."""
    order = [Phase.ASSIGNED, Phase.STARTING, Phase.RUNNING]
    steps = {
        ResourcePhase.STARTING: Phase.STARTING,
        ResourcePhase.RUNNING: Phase.RUNNING,
        ResourcePhase.TERMINATED: Phase.RUNNING,
    }
    found = min(
        (order.index(steps.get(ResourcePhase(resource.phase or "Pending"), Phase.ASSIGNED)) for resource in resources),
        default=0,
    )
    before = order.index(Phase(allocation.status.phase)) if allocation.status.phase in order else 0
    return order[max(found, before)]


# Its status


@dataclass(frozen=True, slots=True)
class _Status:
    phase: Phase
    resources: Sequence[AllocatedResource]
    pods: Sequence[core.Pod]
    now: Instant
    is_preempted: bool = False


def _resources(
    seen: Seen, by_rank: Mapping[int, core.Pod], now: Instant, *, has_begun: bool
) -> list[AllocatedResource]:
    allocation, at = seen.allocation, timestamps.to_text(now)
    before = {resource.rank: resource for resource in allocation.status.resources} if has_begun else {}
    return [
        reading.entry(
            allocation.metadata.name, rank, by_rank.get(rank), before.get(rank), at, has_begun=has_begun
        )
        for rank in range(allocation.spec.pods or 1)
    ]  # fmt: skip


def _difference(seen: Seen, wanted: _Status) -> Document | None:
    """What of the status is not as it should be."""
    present, at = child(seen.document, "status"), timestamps.to_text(wanted.now)
    live = [pod for pod in wanted.pods if _is_live(pod)]
    made: Document = {
        "phase": wanted.phase,
        "active": len(live),
        "podsReady": sum(reading.is_ready(pod) and pod.metadata.deletion_timestamp is None for pod in live),
        "resources": [_entry(resource) for resource in wanted.resources],
        "conditions": _conditions(present, wanted, at),
    }
    if wanted.phase in (Phase.STARTING, Phase.RUNNING, Phase.TERMINATED):
        made["startTime"] = present.get("startTime") or at
    if wanted.phase is Phase.TERMINATED:
        made["completionTime"] = present.get("completionTime") or at
    changed = {name: value for name, value in made.items() if (present.get(name) or _EMPTY.get(name)) != value}
    return changed or None


_EMPTY: Mapping[str, object] = {"active": 0, "podsReady": 0, "resources": [], "conditions": []}


def _entry(resource: AllocatedResource) -> Document:
    fields: Document = {
        "name": resource.name,
        "uid": resource.uid,
        "rank": resource.rank,
        "node": resource.node,
        "address": resource.address,
        "phase": resource.phase,
        "exitCode": resource.exit_code,
        "reason": resource.reason,
        "message": resource.message,
        "startedAt": resource.started_at,
        "finishedAt": resource.finished_at,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _conditions(present: Document, wanted: _Status, at: str) -> list[Document]:
    document: Document = {"status": {"conditions": [dict(entry) for entry in present.get("conditions") or ()]}}
    if wanted.is_preempted:
        message = "its quota is needed elsewhere"
        conditions.set_condition(document, PREEMPTING, conditions.TRUE, "Suspended", message, at)
    elif conditions.is_true_in(document, PREEMPTING):
        conditions.set_condition(document, PREEMPTING, conditions.FALSE, "Resumed", "it may go on", at)
    if wanted.phase is Phase.TERMINATED:
        reason, message = _told(wanted.resources)
        conditions.set_condition(document, TERMINATED, conditions.TRUE, reason, message, at)
    listed: list[Document] = document["status"]["conditions"]
    return listed


def _told(resources: Sequence[AllocatedResource]) -> tuple[str, str]:
    bad = next((resource for resource in resources if resource.exit_code != 0), None)
    if bad is None:
        return EndReason.COMPLETED, "all pods ended well"
    why = bad.message or (f"exit code {bad.exit_code}" if bad.exit_code is not None else "no exit code")
    return bad.reason or EndReason.FAILED, f"{bad.name}: {why}"
