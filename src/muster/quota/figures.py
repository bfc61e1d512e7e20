"""What the status of a ClusterQueue, LocalQueue or Cohort says: worked out as figures that can be compared cheaply, and
turned into a document only where they have changed.
"""

from dataclasses import dataclass
from itertools import groupby
from typing import Final

from muster.api import conditions, kueue, raw, timestamps
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.quota.amounts import FlavorResource, shown
from muster.quota.engine import Engine
from muster.quota.fair_admission import is_usage_based
from muster.quota.queues import Queue, Stop
from muster.quota.shares import share_of
from muster.quota.state import Inactive, QueueState, QuotaState
from muster.quota.tallies import Tally
from muster.quota.tree import Node

ACTIVE: Final = "Active"
QUOTA_EXCEEDED: Final = "QuotaExceeded"
"""A condition of ours: more is in use than may be, because quota was taken away."""
NODES_MISSING: Final = "NodesMissing"
"""Another one: a topology has a level that no node has, so nothing can be placed there."""
COHORT_CYCLE: Final = "CohortCycle"
"""A reason of ours: Kueue says nothing there."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a queue is active, and why or why not."""

    is_active: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Line:
    what: FlavorResource
    total: int
    borrowed: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    """Of a ClusterQueue or LocalQueue."""

    verdict: Verdict
    pending: int
    reserving: int
    admitted: int
    reserved: tuple[Line, ...] = ()
    used: tuple[Line, ...] = ()
    share: int | None = None
    excess: str = ""
    """In words, what is used beyond what may be."""
    lack: str = ""
    """In words, which topologies no node is part of."""
    consumed: tuple[tuple[str, str], ...] | None = None
    """Past usage by resource, and when that was last counted: where it decides the order."""
    consumed_at: Instant | None = None


# Cluster queues


def of_queue(engine: Engine, name: str, tally: Tally) -> Figures | None:
    """None while the engine does not know the queue."""
    engine.state.settle()
    queue = engine.state.queues.get(name)
    if queue is None:
        return None
    policy = queue.policy
    counts = engine.pending.counts(name)
    return Figures(
        verdict(engine.state, queue),
        counts.active + counts.inadmissible,
        tally.reserving,
        tally.admitted,
        _lines(policy, tally.reserved, borrows=bool(policy.cohort)),
        _lines(policy, tally.used, borrows=bool(policy.cohort)),
        share=share_of(queue.node).shown if engine.settings.fair_sharing is not None else None,
        excess=_excess(queue.node),
        lack=_lack(engine.state, policy),
    )


def verdict(state: QuotaState, queue: QueueState) -> Verdict:
    problems: list[tuple[str, str]] = [(reason, text) for reason, text in state.inactive(queue)]
    if state.tree.is_in_cycle(queue.name):
        circle = state.tree.circle(queue.name)
        problems.append((COHORT_CYCLE, f"its cohorts form a cycle: {' -> '.join([*circle, circle[0]])}"))
    if not problems:
        return Verdict(True, "Ready", "Can admit new workloads")
    reason, text = problems[0]
    if reason != Inactive.TERMINATING:
        text = f"Can't admit new workloads: {', '.join(text for _, text in problems)}."
    return Verdict(False, reason, text)


def _lines(policy: Queue, amounts: dict[FlavorResource, int], *, borrows: bool) -> tuple[Line, ...]:
    return tuple(
        Line(what, total := amounts.get(what, 0), max(0, total - quota.nominal) if borrows else 0)
        for what, quota in policy.quotas.items()
    )


def _excess(node: Node) -> str:
    over = [(what, missing) for what, used in node.usage.items() if used > 0 and (missing := -node.available(what)) > 0]
    return ", ".join(
        f"{shown(what.resource, missing)} {what.resource} of flavor {what.flavor}" for what, missing in sorted(over)
    )


def _lack(state: QuotaState, policy: Queue) -> str:
    found = ((name, state.topologies.flavor(name)) for name in policy.flavors)
    return "; ".join(
        f"flavor {name}, topology {flavor.name}: {lack}"
        for name, flavor in found
        if flavor is not None and (lack := flavor.lack())
    )


# Local queues


def of_local_queue(engine: Engine, view: kueue.LocalQueue, tally: Tally) -> Figures:
    key = f"{view.metadata.namespace}/{view.metadata.name}"
    queue = engine.state.queues.get(view.spec.cluster_queue)
    ledger = engine.pending.ledger
    consumed, consumed_at = None, None
    if ledger is not None and queue is not None and is_usage_based(queue.policy, engine.settings):
        account = ledger.account(key)
        consumed_at = account.updated if account is not None else None
        consumed = tuple(sorted(ledger.consumed(key).items())) if consumed_at is not None else None
    return Figures(
        local_verdict(engine.state, view, queue),
        engine.pending.local_count(key),
        tally.reserving,
        tally.admitted,
        _lines(queue.policy, tally.reserved, borrows=False) if queue is not None else (),
        _lines(queue.policy, tally.used, borrows=False) if queue is not None else (),
        consumed=consumed,
        consumed_at=consumed_at,
    )


def local_verdict(state: QuotaState, view: kueue.LocalQueue, queue: QueueState | None) -> Verdict:
    if (view.spec.stop_policy or Stop.NONE) != Stop.NONE:
        return Verdict(False, "Stopped", "LocalQueue is stopped")
    if queue is None:
        return Verdict(False, "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue")
    if not state.is_active(queue):
        return Verdict(False, "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue")
    return Verdict(True, "Ready", "Can submit new workloads to localQueue")


# Cohorts


def share_of_cohort(engine: Engine, name: str) -> int | None:
    """None where nobody shares, or the engine does not know the cohort."""
    if engine.settings.fair_sharing is None:
        return None
    engine.state.settle()
    node = engine.state.tree.cohorts.get(name)
    return share_of(node).shown if node is not None else None


# Documents


def write(document: Document, figures: Figures, now: Instant) -> Document:
    """The document with the status that the figures make. What others have put there stays."""
    draft = {**document, "status": raw.copy(document.get("status") or {})}
    status = draft["status"]
    verdict = figures.verdict
    value = conditions.TRUE if verdict.is_active else conditions.FALSE
    _set(draft, ACTIVE, value, verdict.reason, verdict.message, now)
    _write_excess(draft, figures.excess, now)
    _write_lack(draft, figures.lack, now)
    status["pendingWorkloads"] = figures.pending
    status["reservingWorkloads"] = figures.reserving
    status["admittedWorkloads"] = figures.admitted
    with_borrowed = document["kind"] == kueue.CLUSTER_QUEUE.name
    for field, lines in (("flavorsReservation", figures.reserved), ("flavorsUsage", figures.used)):
        status[field] = _by_flavor(lines, with_borrowed=with_borrowed)
    if figures.share is not None:
        status["fairSharing"] = {"weightedShare": figures.share}
    if figures.consumed is not None and figures.consumed_at is not None:
        raw.section(status, "fairSharing")["admissionFairSharingStatus"] = {
            "consumedResources": dict(figures.consumed),
            "lastUpdate": timestamps.to_text(figures.consumed_at),
        }
    return draft


def _write_excess(draft: Document, excess: str, now: Instant) -> None:
    if excess:
        message = f"Nothing is evicted, and nothing more is admitted until usage falls by {excess}"
        _set(draft, QUOTA_EXCEEDED, conditions.TRUE, "UsageAboveQuota", message, now)
    elif conditions.is_true_in(draft, QUOTA_EXCEEDED):
        _set(draft, QUOTA_EXCEEDED, conditions.FALSE, "WithinQuota", "No more is in use than may be", now)


def _write_lack(draft: Document, lack: str, now: Instant) -> None:
    if lack:
        message = f"Nothing can be placed by topology there, until nodes are labelled or the levels change: {lack}"
        _set(draft, NODES_MISSING, conditions.TRUE, "NoNodeForTopology", message, now)
    elif conditions.is_true_in(draft, NODES_MISSING):
        _set(draft, NODES_MISSING, conditions.FALSE, "NodesFound", "Every topology has nodes", now)


def _by_flavor(lines: tuple[Line, ...], *, with_borrowed: bool) -> list[Document]:
    listed: list[Document] = []
    for flavor, found in groupby(lines, key=lambda line: line.what.flavor):
        resources: list[Document] = []
        for line in found:
            resource = line.what.resource
            entry: Document = {"name": resource, "total": shown(resource, line.total)}
            if with_borrowed:
                entry["borrowed"] = shown(resource, line.borrowed)
            resources.append(entry)
        listed.append({"name": flavor, "resources": resources})
    return listed


def _set(draft: Document, type: str, value: str, reason: str, message: str, now: Instant) -> None:
    conditions.set_condition(draft, type, value, reason, message, timestamps.to_text(now))
    found = conditions.find_in(draft, type)
    generation = raw.dig(draft, "metadata", "generation", default=None)
    if found is not None and generation:
        found["observedGeneration"] = generation
