"""Quota in every committed state: what workloads hold, and what queues and cohorts may have, from the objects alone."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from muster.api import conditions, kueue
from muster.api.objects import Key, Object
from muster.quota.amounts import FlavorResource, amount
from muster.runtime.clock import Clock
from muster.sim.invariants import place_of
from muster.sim.ledger import Place, Recent, Violation

Amounts: TypeAlias = Mapping[FlavorResource, int]
Held: TypeAlias = Mapping[str, Amounts]
"""By queue, what is reserved there."""
_ALL = ""  # settings are remembered together: a queue may move while its neighbours stay
_GOING = (None, "", "None")


def holdings(workload: kueue.Workload) -> tuple[str, Amounts] | None:
    """The queue, and the quota that the workload holds there: no more than for the pods that are left of it. Some may
    have been over before it was admitted."""
    status = workload.status
    if status.admission is None or not conditions.is_true(status.conditions, "QuotaReserved"):
        return None
    if conditions.is_true(status.conditions, "Finished"):
        return None
    done = {found.name: found.count or 0 for found in status.reclaimable_pods}
    left = {pods.name: (pods.count or 0) - done.get(pods.name, 0) for pods in workload.spec.pod_sets}
    held: Counter[FlavorResource] = Counter()
    for assigned in status.admission.pod_set_assignments:
        count = assigned.count or 0
        used = min(count, left.get(assigned.name, count))
        for resource, text in (assigned.resource_usage or {}).items():
            flavor = (assigned.flavors or {}).get(resource)
            if flavor and count:
                held[FlavorResource(flavor, resource)] += amount(resource, text) * used // count
    return status.admission.cluster_queue, held


class Quota:
    """Nothing is admitted that queues and cohorts have no quota for, with what they may borrow and others lend; and
    nothing by a queue that is stopped. Looked at when quota is reserved: an administrator may take away what is in
    use. What he has changed within the last two minutes may not have been heard of."""

    name = "quota"
    kinds = frozenset({kueue.WORKLOAD, kueue.CLUSTER_QUEUE, kueue.COHORT})

    def __init__(self, clock: Clock) -> None:
        self.held: dict[str, Counter[FlavorResource]] = {}
        """By queue."""
        self._by_workload: dict[str, tuple[str, Amounts]] = {}  # by uid
        self._queues: Recent[Mapping[str, kueue.ClusterQueue]] = Recent(clock)
        self._cohorts: Recent[Mapping[str, kueue.Cohort]] = Recent(clock)
        self._latest_queues: dict[str, kueue.ClusterQueue] = {}
        self._latest_cohorts: dict[str, kueue.Cohort] = {}
        self._reserved: list[Object] = []
        self._cohorts.put(_ALL, {})

    def heard(self, old: Object | None, new: Object | None) -> None:
        found = new or old
        assert found is not None
        if found.kind is kueue.CLUSTER_QUEUE:
            self._queue_changed(found.key.name, new)
        elif found.kind is kueue.COHORT:
            self._cohort_changed(found.key.name, new)
        else:
            self._workload_changed(found, new)

    def _queue_changed(self, name: str, new: Object | None) -> None:
        known, view = self._latest_queues.get(name), new.read(kueue.ClusterQueue) if new is not None else None
        if view is not None and (known is None or known.spec != view.spec):
            self._latest_queues = {**self._latest_queues, name: view}
            self._queues.put(_ALL, self._latest_queues)

    def _cohort_changed(self, name: str, new: Object | None) -> None:
        known, view = self._latest_cohorts.get(name), new.read(kueue.Cohort) if new is not None else None
        if view is not None and (known is None or known.spec != view.spec):
            self._latest_cohorts = {**self._latest_cohorts, name: view}
            self._cohorts.put(_ALL, self._latest_cohorts)

    def _workload_changed(self, found: Object, new: Object | None) -> None:
        before = self._by_workload.pop(found.uid, None)
        held = holdings(new.read(kueue.Workload)) if new is not None else None
        if before is not None:
            self.held[before[0]].subtract(before[1])
        if held is not None and new is not None:
            self._by_workload[new.uid] = held
            self.held.setdefault(held[0], Counter()).update(held[1])
            if before is None:
                self._reserved.append(new)

    def broken(self) -> Violation | None:
        reserved, self._reserved = self._reserved, []
        for workload in reserved:
            if workload.uid in self._by_workload:
                queue, wanted = self._by_workload[workload.uid]
                problem = self._problem(queue, list(wanted))
                if problem:
                    about = (place_of(workload), Place(kueue.CLUSTER_QUEUE.resource, Key("", queue)))
                    return Violation(self.name, problem, about)
        return None

    def _problem(self, queue: str, wanted: Sequence[FlavorResource]) -> str:
        """What is wrong with it under the settings as they are; empty where it was right under some that may have been
        believed."""
        problems = []
        for queues, cohorts in product(reversed(self._queues.all(_ALL)), reversed(self._cohorts.all(_ALL))):
            problem = _Settings(queues, cohorts).problem(queue, wanted, self.held)
            if not problem:
                return ""
            problems.append(problem)
        return problems[0] if problems else f"there is no queue {queue}"


@dataclass(frozen=True, slots=True)
class _Limits:
    """Of one flavor-resource, at one queue or cohort. None: without limit."""

    nominal: int = 0
    borrowing: int | None = None
    lending: int | None = None


@dataclass(frozen=True, slots=True)
class _Settings:
    """Queues and cohorts, as they were at one time."""

    queues: Mapping[str, kueue.ClusterQueue]
    cohorts: Mapping[str, kueue.Cohort]

    def problem(self, queue: str, wanted: Sequence[FlavorResource], held: Held) -> str:
        found = self.queues.get(queue)
        if found is None:
            return f"there is no queue {queue}"
        if found.spec.stop_policy not in _GOING:
            return f"queue {queue} is stopped, and has admitted a workload"
        for what in wanted:
            if not found.spec.resource_groups:
                continue  # it takes everything
            problem = self._beyond(queue, what, held)
            if problem:
                return problem
        return ""

    def _beyond(self, queue: str, what: FlavorResource, held: Held) -> str:
        limits = _limits(self.queues[queue].spec.resource_groups, what)
        parent = self.queues[queue].spec.cohort_name or ""
        used = held.get(queue, Counter())[what]
        most = self._most(limits, limits.nominal, parent)
        if most is not None and used > most:
            return f"queue {queue} may use {most} {what.resource} of {what.flavor}, and has reserved {used}"
        for cohort in self._above(queue):
            limits, owned = self._cohort_limits(cohort, what), self._owned(cohort, what)
            most, used = self._most(limits, owned, self._parent(cohort)), self._used(cohort, what, held)
            if most is not None and used > most:
                return f"cohort {cohort} may use {most} {what.resource} of {what.flavor}, and has reserved {used}"
        return ""

    @staticmethod
    def _most(limits: _Limits, owned: int, parent: str) -> int | None:
        if not parent:
            return owned
        return None if limits.borrowing is None else owned + limits.borrowing

    def _above(self, queue: str) -> Iterator[str]:
        cohort = self.queues[queue].spec.cohort_name or ""
        while cohort:
            yield cohort
            cohort = self._parent(cohort)

    def _parent(self, cohort: str) -> str:
        found = self.cohorts.get(cohort)
        return (found.spec.parent_name or "") if found is not None else ""

    def _members(self, cohort: str) -> Iterator[str]:
        return (name for name, queue in self.queues.items() if queue.spec.cohort_name == cohort)

    def _children(self, cohort: str) -> Iterator[str]:
        return (name for name in self.cohorts if self._parent(name) == cohort)

    def _cohort_limits(self, cohort: str, what: FlavorResource) -> _Limits:
        found = self.cohorts.get(cohort)
        return _limits(found.spec.resource_groups, what) if found is not None else _Limits()

    def _owned(self, cohort: str, what: FlavorResource) -> int:
        """Its own, and what those below it lend."""
        lent = 0
        for name in self._members(cohort):
            limits = _limits(self.queues[name].spec.resource_groups, what)
            lent += limits.nominal - _kept(limits, limits.nominal)
        for name in self._children(cohort):
            owned = self._owned(name, what)
            lent += owned - _kept(self._cohort_limits(name, what), owned)
        return self._cohort_limits(cohort, what).nominal + lent

    def _used(self, cohort: str, what: FlavorResource, held: Held) -> int:
        """By those below it, beyond what each of them keeps for itself."""
        used = 0
        for name in self._members(cohort):
            limits = _limits(self.queues[name].spec.resource_groups, what)
            used += max(0, held.get(name, Counter())[what] - _kept(limits, limits.nominal))
        for name in self._children(cohort):
            kept = _kept(self._cohort_limits(name, what), self._owned(name, what))
            used += max(0, self._used(name, what, held) - kept)
        return used


def _kept(limits: _Limits, owned: int) -> int:
    """What is never lent."""
    return 0 if limits.lending is None else max(0, owned - limits.lending)


def _limits(groups: Iterable[kueue.ResourceGroup], what: FlavorResource) -> _Limits:
    for group in groups:
        for flavor in group.flavors:
            for found in flavor.resources:
                if (flavor.name, found.name) == what:
                    return _Limits(
                        amount(what.resource, found.nominal_quota or 0),
                        _optional(what.resource, found.borrowing_limit),
                        _optional(what.resource, found.lending_limit),
                    )
    return _Limits()


def _optional(resource: str, text: str | int | float | None) -> int | None:
    return None if text is None else amount(resource, text)
