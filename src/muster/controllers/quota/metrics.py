"""What quota measures, under Kueue's names: dashboards made for Kueue show the same here.

What happens to workloads is counted from what the store shows, whoever decided it; how things stand is read off the
engine when somebody asks.
"""

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Final

from muster.api import kueue, timestamps
from muster.api.meta import Condition
from muster.quota.amounts import CPU, FlavorResource
from muster.quota.engine import Engine, Step
from muster.quota.shares import share_of
from muster.quota.state import QueueState
from muster.quota.tree import Node
from muster.quota.workloads import ADMITTED, FINISHED, QUOTA_RESERVED, REQUEUED
from muster.runtime.metrics import DURATION_BUCKETS, Counter, Family, Histogram, Registry, Sample

PREFIX: Final = "kueue_"
ROLE: Final = "standalone"
"""Every series carries `replica_role`: here nobody stands by."""
_QUEUE: Final = ("cluster_queue", "priority_class", "replica_role")
_LINE: Final = ("cohort", "cluster_queue", "flavor", "resource", "replica_role")
_MILLI: Final = 1000


class QuotaMetrics:
    def __init__(self, registry: Registry) -> None:
        self._attempts = registry.counter(
            f"{PREFIX}admission_attempts_total",
            "Attempts to admit workloads, by result: at least one was admitted (success) or none (inadmissible)",
            ("result", "replica_role"),
        )
        self._attempt_seconds = registry.histogram(
            f"{PREFIX}admission_attempt_duration_seconds",
            "How long an attempt to admit workloads takes",
            ("result", "replica_role"),
            DURATION_BUCKETS,
        )
        self._reserved = registry.counter(
            f"{PREFIX}quota_reserved_workloads_total", "Workloads for which quota was reserved", _QUEUE
        )
        self._admitted = registry.counter(f"{PREFIX}admitted_workloads_total", "Workloads that were admitted", _QUEUE)
        self._finished = registry.counter(f"{PREFIX}finished_workloads_total", "Workloads that have finished", _QUEUE)
        evicted = ("cluster_queue", "reason", "underlying_cause", "priority_class", "replica_role")
        self._evicted = registry.counter(f"{PREFIX}evicted_workloads_total", "Evictions of workloads", evicted)
        self._evicted_once = registry.counter(
            f"{PREFIX}evicted_workloads_once_total", "Workloads that were evicted for a reason at least once", evicted
        )
        self._preempted = registry.counter(
            f"{PREFIX}preempted_workloads_total",
            "Workloads that were preempted, by the queue for whose workload they made room",
            ("preempting_cluster_queue", "reason", "replica_role"),
        )
        self._until_reserved = registry.histogram(
            f"{PREFIX}quota_reserved_wait_time_seconds",
            "From when a workload was made or put back in the queue until quota was reserved for it",
            _QUEUE,
        )
        self._until_admitted = registry.histogram(
            f"{PREFIX}admission_wait_time_seconds",
            "From when a workload was made or put back in the queue until it was admitted",
            _QUEUE,
        )
        self._in_checks = registry.histogram(
            f"{PREFIX}admission_checks_wait_time_seconds",
            "From when quota was reserved for a workload until it was admitted",
            _QUEUE,
        )
        self._skips: dict[str, int] = {}
        registry.collect(self._skipped)

    # Attempts

    def attempted(self, step: Step, seconds: float) -> None:
        result = "success" if step.has_admissions else "inadmissible"
        self._attempts.add(result, ROLE)
        self._attempt_seconds.observe(seconds, result, ROLE)
        self._skips.update(step.skipped_preemptions)

    def preempted(self, by: str, reason: str) -> None:
        self._preempted.add(by, reason, ROLE)

    # What happens to workloads

    def workload_changed(self, old: kueue.Workload, new: kueue.Workload) -> None:
        before, after = _true(old), _true(new)
        where = (_queue_of(new) or _queue_of(old), _class_of(new), ROLE)
        if QUOTA_RESERVED in after and QUOTA_RESERVED not in before:
            self._reserved.add(*where)
            _observe(self._until_reserved, _waiting_since(new), after[QUOTA_RESERVED], where)
        if ADMITTED in after and ADMITTED not in before:
            self._admitted.add(*where)
            _observe(self._until_admitted, _waiting_since(new), after[ADMITTED], where)
            reserved = after.get(QUOTA_RESERVED)
            _observe(self._in_checks, _when(reserved), after[ADMITTED], where)
        if FINISHED in after and FINISHED not in before:
            self._finished.add(*where)
        if new.status.scheduling_stats != old.status.scheduling_stats:
            self._count_evictions(old, new)

    def _count_evictions(self, old: kueue.Workload, new: kueue.Workload) -> None:
        known, queue = _evictions(old), _queue_of(old) or _queue_of(new)
        for (reason, cause), count in _evictions(new).items():
            more = count - known.get((reason, cause), 0)
            if more > 0:
                self._evicted.add(queue, reason, cause, _class_of(new), ROLE, by=more)
                if (reason, cause) not in known:
                    self._evicted_once.add(queue, reason, cause, _class_of(new), ROLE)

    def queue_removed(self, name: str) -> None:
        """Its series end with it: a platform that makes queues all the time keeps no trace of them."""
        counters: tuple[Counter | Histogram, ...] = (
            self._reserved,
            self._admitted,
            self._finished,
            self._evicted,
            self._evicted_once,
            self._until_reserved,
            self._until_admitted,
            self._in_checks,
        )
        for found in counters:
            found.forget("cluster_queue", name)
        self._preempted.forget("preempting_cluster_queue", name)
        self._skips.pop(name, None)

    def _skipped(self) -> Iterator[Family]:
        yield Family(
            f"{PREFIX}admission_cycle_preemption_skips",
            "gauge",
            "Workloads that could have preempted in the last attempt, had not another one been first",
            ("cluster_queue", "replica_role"),
            [((queue, ROLE), count) for queue, count in self._skips.items()],
        )


def _true(view: kueue.Workload) -> dict[str, Condition]:
    return {found.type: found for found in view.status.conditions if found.status == "True"}


def _queue_of(view: kueue.Workload) -> str:
    return view.status.admission.cluster_queue if view.status.admission is not None else ""


def _class_of(view: kueue.Workload) -> str:
    found = view.spec.priority_class_ref
    return (found.name or "") if found is not None else ""


def _waiting_since(view: kueue.Workload) -> float | None:
    requeued = next((found for found in view.status.conditions if found.type == REQUEUED), None)
    created = view.metadata.creation_timestamp
    return _when(requeued) or (timestamps.parse(created) if created else None)


def _when(condition: Condition | None) -> float | None:
    text = condition.last_transition_time if condition is not None else None
    return timestamps.parse(text) if text else None


def _observe(histogram: Histogram, since: float | None, reached: Condition, where: tuple[str, ...]) -> None:
    until = _when(reached)
    if since is not None and until is not None:
        histogram.observe(max(0.0, until - since), *where)


def _evictions(view: kueue.Workload) -> dict[tuple[str, str], int]:
    stats = view.status.scheduling_stats
    listed = stats.evictions if stats is not None else ()
    return {(found.reason or "", found.underlying_cause or ""): found.count or 0 for found in listed}


# How things stand


def standing(engine: Callable[[], Engine]) -> Iterator[Family]:
    """Of all queues and cohorts, as they are now. What takes long is worked out line by line: the engine may go on in
    between, so each line is asked of the queue as it is then."""

    def queues() -> Iterator[QueueState]:
        engine().state.settle()
        for name in list(engine().state.queues):
            found = engine().state.queues.get(name)
            if found is not None:
                yield found

    yield Family(
        f"{PREFIX}pending_workloads",
        "gauge",
        "Workloads that wait: to be looked at (active), or until something changes that could help (inadmissible)",
        ("cluster_queue", "status", "replica_role"),
        (sample for queue in queues() for sample in _pending(engine(), queue.name)),
    )
    for name, help, count in (
        ("reserving_active_workloads", "Workloads that hold quota", _reserving),
        ("admitted_active_workloads", "Workloads that are admitted and have not finished", _admitted),
    ):
        samples = ((((queue.name, ROLE), count(queue))) for queue in queues())
        yield Family(f"{PREFIX}{name}", "gauge", help, ("cluster_queue", "replica_role"), samples)
    yield Family(
        f"{PREFIX}cluster_queue_status",
        "gauge",
        "1 for the state that the queue is in, 0 for the others",
        ("cluster_queue", "status", "replica_role"),
        (sample for queue in queues() for sample in _states(engine(), queue)),
    )
    yield from _amounts(queues)
    if engine().settings.fair_sharing is not None:
        yield from _shares(engine, queues)


def _pending(engine: Engine, queue: str) -> Iterator[Sample]:
    counts = engine.pending.counts(queue)
    yield (queue, "active", ROLE), counts.active
    yield (queue, "inadmissible", ROLE), counts.inadmissible


def _reserving(queue: QueueState) -> int:
    return len(queue.workloads)


def _admitted(queue: QueueState) -> int:
    return sum(info.is_admitted for info in queue.workloads.values())


def _states(engine: Engine, queue: QueueState) -> Iterator[Sample]:
    now = "terminating" if queue.is_terminating else "active" if engine.state.is_active(queue) else "pending"
    for state in ("pending", "active", "terminating"):
        yield (queue.name, state, ROLE), float(state == now)


def _amounts(queues: Callable[[], Iterable[QueueState]]) -> Iterator[Family]:
    for name, help, read in (
        ("resource_reservation", "What workloads that hold quota use", lambda queue, what: queue.node.used(what)),
        ("resource_usage", "What admitted workloads use", _used),
        ("nominal_quota", "What the queue owns", lambda queue, what: queue.policy.quotas[what].nominal),
        (
            "borrowing_limit",
            "How much more than it owns the queue may use",
            lambda queue, what: queue.policy.quotas[what].borrowing_limit,
        ),
        (
            "lending_limit",
            "How much of what it owns the queue lends",
            lambda queue, what: queue.policy.quotas[what].lending_limit,
        ),
    ):
        yield Family(f"{PREFIX}cluster_queue_{name}", "gauge", help, _LINE, _lines(queues, read))


def _lines(
    queues: Callable[[], Iterable[QueueState]], read: Callable[[QueueState, FlavorResource], int | None]
) -> Iterator[Sample]:
    for queue in queues():
        for what in queue.policy.quotas:
            labels = (queue.policy.cohort, queue.name, what.flavor, what.resource, ROLE)
            yield labels, _in_units(what.resource, read(queue, what))


def _used(queue: QueueState, what: FlavorResource) -> int:
    """Those that hold quota and are not yet admitted are few: they are taken off."""
    waiting = (info for info in queue.workloads.values() if not info.is_admitted)
    return queue.node.used(what) - sum(info.usage.quota.get(what, 0) for info in waiting)


def _in_units(resource: str, amount: int | None) -> float:
    if amount is None:
        return inf
    return amount / _MILLI if resource == CPU else amount


def _shares(engine: Callable[[], Engine], queues: Callable[[], Iterable[QueueState]]) -> Iterator[Family]:
    help = "How much is borrowed, in thousandths of what could be lent, relative to the weight"
    yield Family(
        f"{PREFIX}cluster_queue_weighted_share",
        "gauge",
        help,
        ("cluster_queue", "cohort", "replica_role"),
        (((queue.name, queue.policy.cohort, ROLE), share_of(queue.node).value) for queue in queues()),
    )
    cohorts: list[Node] = list(engine().state.tree.cohorts.values())
    yield Family(
        f"{PREFIX}cohort_weighted_share",
        "gauge",
        help,
        ("cohort", "replica_role"),
        [((node.name, ROLE), share_of(node).value) for node in cohorts],
    )
