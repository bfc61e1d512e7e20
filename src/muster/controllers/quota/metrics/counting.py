"""Counts what happens: attempts, and what becomes of workloads, from what the store shows, whoever decided it."""

import logging
import platform
from collections.abc import Callable, Iterator
from typing import Final

from muster.api import conditions, kueue, timestamps
from muster.api.meta import Condition, Instant
from muster.api.objects import Object
from muster.controllers.quota.metrics.families import PREFIX, ROLE, QueueCounter, QueueHistogram, Where
from muster.controllers.quota.metrics.standing import Standing
from muster.controllers.quota.metrics.workload_families import Counts, Readiness, Times
from muster.quota.census import Census
from muster.quota.decisions import REPLACED
from muster.quota.engine import Engine, Step
from muster.quota.gates import Gate
from muster.quota.workloads import ADMITTED, EVICTED, FINISHED, PODS_READY, QUOTA_RESERVED, REQUEUED
from muster.runtime.metrics import DURATION_BUCKETS, Counter, Family, Registry
from muster.store.protocol import Change, Event
from muster.version import VERSION

_log = logging.getLogger(__name__)
RECOVERED: Final = "Recovered"
"""Pods that were ready before are so again: that is not how long they took to start."""


class QuotaMetrics:
    """`engine`: of the present run, asked for how things stand."""

    def __init__(self, registry: Registry, engine: Callable[[], Engine]) -> None:
        self._engine = engine
        self._settings = engine().settings
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
        self._recomputations = registry.counter(
            f"{PREFIX}preemption_target_recomputations_total",
            "How often victims were chosen anew because others had claimed them, by what came of it",
            ("cluster_queue", "result", "replica_role"),
        )
        self._preempted = registry.counter(
            f"{PREFIX}preempted_workloads_total",
            "Workloads that were preempted, by the queue for whose workload they made room",
            ("preempting_cluster_queue", "reason", "replica_role"),
        )
        self._skips: dict[str, int] = {}
        self._workloads = WorkloadMetrics(registry, engine)
        self._pods_waited = registry.histogram(
            f"{PREFIX}pod_scheduling_gate_removal_seconds",
            "From when a workload was admitted until a gate of one of its pods was removed",
            ("cluster_queue", "name", "is_group", "replica_role"),
        )
        self._jobs_waited = None
        if Gate.METRIC_FOR_WORKLOAD_CREATION_LATENCY in self._settings.gates:
            self._jobs_waited = registry.histogram(
                f"{PREFIX}workload_creation_latency_seconds",
                "From when a job was made until its workload was",
                ("job_kind", "replica_role"),
            )
        registry.collect(self._told)
        registry.collect(Standing(engine, self._workloads.census, self._workloads.measures).families)

    # Attempts

    def attempted(self, step: Step, seconds: float) -> None:
        result = "success" if step.has_admissions else "inadmissible"
        self._attempts.add(result, ROLE)
        self._attempt_seconds.observe(seconds, result, ROLE)
        self._skips.update(step.skipped_preemptions)
        for queue, outcomes in step.recomputations.items():
            for outcome, count in outcomes.items():
                self._recomputations.add(queue, outcome, ROLE, by=count)

    def preempted(self, by: str, reason: str) -> None:
        self._preempted.add(by, reason, ROLE)

    # What happens to jobs

    def workload_made(self, job: Object, now: Instant) -> None:
        """For the job, just now."""
        if self._jobs_waited is not None and job.meta.creation_timestamp:
            waited = now - timestamps.parse(job.meta.creation_timestamp)
            self._jobs_waited.observe(max(0.0, waited), job.kind.name, ROLE)

    def gate_removed(self, workload: kueue.Workload, gate: str, now: Instant, *, is_group: bool) -> None:
        """From a pod of the workload, just now."""
        admitted = conditions.find(workload.status.conditions, ADMITTED)
        since = _when(admitted)
        if since is not None and workload.status.admission is not None:
            queue = workload.status.admission.cluster_queue
            self._pods_waited.observe(max(0.0, now - since), queue, gate, str(is_group).lower(), ROLE)

    # What the store shows

    def heard(self, event: Event, known: Object | None) -> None:
        """`known`: the object as it was before."""
        found = event.object
        assert found is not None
        is_gone = event.change is Change.DELETED
        try:
            if found.kind is kueue.WORKLOAD:
                self._workloads.changed(found, None if is_gone else found.read(kueue.Workload), known)
            elif found.kind is kueue.LOCAL_QUEUE:
                self._workloads.local_queue_changed(found, is_gone=is_gone)
            elif found.kind is kueue.CLUSTER_QUEUE:
                self._workloads.queue_changed(found.key.name, is_gone=is_gone)
                if is_gone:
                    self._forget(found.key.name)
        except ValueError as error:  # a time that is none
            _log.debug("%s %s is not measured: %s", found.kind.name, found.key, error)

    def _forget(self, queue: str) -> None:
        self._preempted.forget(preempting_cluster_queue=queue)
        self._recomputations.forget(cluster_queue=queue)
        self._pods_waited.forget(cluster_queue=queue)
        self._skips.pop(queue, None)

    def _told(self) -> Iterator[Family]:
        yield Family(
            f"{PREFIX}admission_cycle_preemption_skips",
            "gauge",
            "Workloads that could have preempted in the last attempt, had not another one been first",
            ("cluster_queue", "replica_role"),
            [((queue, ROLE), count) for queue, count in self._skips.items()],
        )
        built = {
            "git_version": VERSION,
            "git_commit": "",
            "build_date": "",
            "go_version": "",
            "compiler": f"{platform.python_implementation()} {platform.python_version()}",
            "platform": f"{platform.system().lower()}/{platform.machine()}",
        }
        help = "What this is: 1, with the version in the labels"
        yield Family(f"{PREFIX}build_info", "gauge", help, tuple(built), [(tuple(built.values()), 1.0)])


class WorkloadMetrics:
    """What becomes of workloads."""

    def __init__(self, registry: Registry, engine: Callable[[], Engine]) -> None:
        settings = engine().settings
        self.census = Census()
        self._engine = engine
        self._queues: set[str] = set()
        self._local_queues: dict[str, bool] = {}  # by `namespace/name`, whether it is measured
        self._selector = settings.metrics.local_queue_selector
        is_local = settings.metrics.local_queues
        self._counts = Counts.over(registry, is_local=is_local)
        self._times = Times.over(registry, is_local=is_local)
        self._readiness = Readiness.over(registry, is_local=is_local) if settings.pods_ready is not None else None
        self._given_back = registry.histogram(
            f"{PREFIX}workload_eviction_latency_seconds",
            "From when a workload was evicted until it gave back its quota",
            ("cluster_queue", "reason", "replica_role"),
        )
        self._replaced = registry.counter(
            f"{PREFIX}replaced_workload_slices_total",
            "Workload slices whose place a larger or smaller one took",
            ("cluster_queue", "replica_role"),
        )
        self._in_cohorts = None
        if Gate.METRICS_FOR_COHORTS in settings.gates:
            self._in_cohorts = Counter(
                f"{PREFIX}cohort_subtree_admitted_workloads_total",
                "Workloads that were admitted in queues below the cohort",
                ("cohort", "priority_class", "replica_role"),
            )
            registry.collect(self._of_cohorts)

    # Queues

    def queue_changed(self, name: str, *, is_gone: bool) -> None:
        """The series of one that is gone end with it: a platform that makes queues all the time keeps no trace of
        them."""
        if not is_gone:
            self._queues.add(name)
            return
        self._queues.discard(name)
        for found in self._per_queue():
            found.forget_queue(name)
        self._given_back.forget(cluster_queue=name)
        self._replaced.forget(cluster_queue=name)
        if self._readiness is not None:
            self._readiness.until_evicted.forget(cluster_queue=name)

    def local_queue_changed(self, found: Object, *, is_gone: bool) -> None:
        key = str(found.key)
        is_measured = not is_gone and self._selector.matches(found.meta.labels or {})
        if self._local_queues.get(key) and not is_measured:
            for metric in self._per_queue():
                metric.forget_local_queue(found.key.name, found.key.namespace)
        if is_gone:
            self._local_queues.pop(key, None)
        else:
            self._local_queues[key] = is_measured

    def measures(self, local_queue: str) -> bool:
        """By `namespace/name`. One that does not exist has no labels."""
        found = self._local_queues.get(local_queue)
        return self._selector.matches({}) if found is None else found

    def _per_queue(self) -> Iterator[QueueCounter | QueueHistogram]:
        yield from self._counts.all()
        yield from self._times.all()
        if self._readiness is not None:
            yield from self._readiness.all()

    def _of_cohorts(self) -> Iterator[Family]:
        """Nobody says when a cohort is gone that others only named: whoever reads sees it."""
        counter, tree = self._in_cohorts, self._engine().state.tree
        assert counter is not None
        tree.settle()
        for name in {labels[0] for labels, _ in counter.items()} - tree.cohorts.keys():
            counter.forget(cohort=name)
        yield Family(counter.name, "counter", counter.help, counter.labels, counter.items())

    # Workloads

    def changed(self, found: Object, new: kueue.Workload | None, known: Object | None) -> None:
        """`new` None: it is gone. What was there before anybody looked has happened before: it is not counted."""
        if new is None:
            self.census.drop(str(found.key))
            return
        self.census.put(new)
        if known is not None:
            self._compare(known.read(kueue.Workload), new)

    def _compare(self, old: kueue.Workload, new: kueue.Workload) -> None:
        before, after = _true(old), _true(new)
        where = self._where(old, new)
        if QUOTA_RESERVED in after and QUOTA_RESERVED not in before:
            self._counts.reserved.add(where)
            _observe(self._times.until_reserved, _waiting_since(new), after[QUOTA_RESERVED], where)
        if ADMITTED in after and ADMITTED not in before:
            self._admit(new, after, where)
        if PODS_READY in after and PODS_READY not in before and after[PODS_READY].reason != RECOVERED:
            self._get_ready(new, after, where)
        if FINISHED in after and FINISHED not in before:
            self._finish(new, after, where)
        if new.status.scheduling_stats != old.status.scheduling_stats:
            self._count_evictions(old, new, where)
        if {EVICTED, QUOTA_RESERVED} <= before.keys() and QUOTA_RESERVED not in after and where.queue:
            since = _when(before[EVICTED])
            until = _when(conditions.find(new.status.conditions, QUOTA_RESERVED))
            if since is not None and until is not None:
                self._given_back.observe(max(0.0, until - since), where.queue, before[EVICTED].reason or "", ROLE)

    def _where(self, old: kueue.Workload, new: kueue.Workload) -> Where:
        queue, name, namespace = _queue_of(new) or _queue_of(old), new.spec.queue_name or "", new.metadata.namespace
        is_measured = self._local_queues.get(f"{namespace}/{name}", False)
        found = new.spec.priority_class_ref
        return Where(
            queue if queue in self._queues else "",
            (name, namespace) if is_measured else None,
            (found.name or "") if found is not None else "",
        )

    def _admit(self, new: kueue.Workload, after: dict[str, Condition], where: Where) -> None:
        self._counts.admitted.add(where)
        _observe(self._times.until_admitted, _waiting_since(new), after[ADMITTED], where)
        _observe(self._times.in_checks, _when(after.get(QUOTA_RESERVED)), after[ADMITTED], where)
        node = self._engine().state.tree.queues.get(where.queue)
        if self._in_cohorts is not None and node is not None:
            for cohort in node.ancestors():
                self._in_cohorts.add(cohort.name, where.priority_class, ROLE)

    def _get_ready(self, new: kueue.Workload, after: dict[str, Condition], where: Where) -> None:
        if self._readiness is not None:
            _observe(self._readiness.until_ready, _waiting_since(new), after[PODS_READY], where)
            _observe(self._readiness.started, _when(after.get(ADMITTED)), after[PODS_READY], where)

    def _finish(self, new: kueue.Workload, after: dict[str, Condition], where: Where) -> None:
        self._counts.finished.add(where)
        if after[FINISHED].reason == REPLACED and where.queue:
            self._replaced.add(where.queue, ROLE)
        since, until = _when(after.get(ADMITTED)), _when(after[FINISHED])
        seconds = float(new.status.accumulated_past_execution_time_seconds or 0)
        if since is not None and until is not None:
            seconds += max(0.0, until - since)
        if seconds or since is not None:
            self._times.executed.observe(seconds, where)

    def _count_evictions(self, old: kueue.Workload, new: kueue.Workload, where: Where) -> None:
        known, ready = _evictions(old), conditions.find(old.status.conditions, PODS_READY)
        for (reason, cause), count in _evictions(new).items():
            more = count - known.get((reason, cause), 0)
            if more <= 0:
                continue
            self._counts.evicted.add(where, reason, cause, by=more)
            if (reason, cause) not in known:
                self._counts.evicted_once.add(where, reason, cause)
            if self._readiness is not None and ready is not None and ready.status == conditions.TRUE:
                since, until = _when(ready), _when(conditions.find(new.status.conditions, EVICTED))
                if since is not None and until is not None and where.queue:
                    self._readiness.until_evicted.observe(max(0.0, until - since), where.queue, reason, cause, ROLE)


def _true(view: kueue.Workload) -> dict[str, Condition]:
    return {found.type: found for found in view.status.conditions if found.status == conditions.TRUE}


def _queue_of(view: kueue.Workload) -> str:
    return view.status.admission.cluster_queue if view.status.admission is not None else ""


def _waiting_since(view: kueue.Workload) -> Instant | None:
    requeued = conditions.find(view.status.conditions, REQUEUED)
    created = view.metadata.creation_timestamp
    return _when(requeued) or (timestamps.parse(created) if created else None)


def _when(condition: Condition | None) -> Instant | None:
    text = condition.last_transition_time if condition is not None else None
    return timestamps.parse(text) if text else None


def _observe(histogram: QueueHistogram, since: Instant | None, reached: Condition, where: Where) -> None:
    until = _when(reached)
    if since is not None and until is not None:
        histogram.observe(until - since, where)


def _evictions(view: kueue.Workload) -> dict[tuple[str, str], int]:
    stats = view.status.scheduling_stats
    listed = stats.evictions if stats is not None else ()
    return {(found.reason or "", found.underlying_cause or ""): found.count or 0 for found in listed}
