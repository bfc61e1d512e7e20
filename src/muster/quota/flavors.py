"""Flavor assignment: for every pod set of a workload, a flavor for each resource, or why there is none.

Flavors are tried in the order of the queue's resource groups, from where the last search ended. All resources of a
group come from one flavor, and pod sets of one group are decided together. Nothing is changed but `info.scan`, which
is dropped when it is out of date.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from muster.quota import flavor_fitting as fitting
from muster.quota import topology_requests
from muster.quota.amounts import PODS, FlavorResource
from muster.quota.assignments import (
    Assignment,
    Attempt,
    Degree,
    FlavorChoice,
    Mode,
    NoFitReason,
    PodSetAssignment,
)
from muster.quota.flavor_fitting import Judge, Oracle, Possibility, ResourceFit
from muster.quota.flavor_memory import FlavorMemory, FlavorPlan, GroupPlan, QueuePlan
from muster.quota.gates import Gate, Gates
from muster.quota.queues import Queue
from muster.quota.state import QueueState, QuotaState
from muster.quota.topology_requests import net_topology_usage
from muster.quota.workloads import PodSetTotals, ScanPosition, Usage, WorkloadInfo

__all__ = [
    "FlavorAssigner",
    "FlavorMemory",
    "Oracle",
    "Pins",
    "Possibility",
    "is_outdated",
    "net_topology_usage",
    "only_choice",
    "total_requests",
]

UNKNOWN_SHAPE: Final = "unknown"
_SEVERITY: Final = {reason: number for number, reason in enumerate(NoFitReason)}


@dataclass(frozen=True, slots=True)
class Pins:
    """Flavors that a workload was given before, [pod set][resource]: no others are tried."""

    flavors: Mapping[str, Mapping[str, str]]

    @classmethod
    def of(cls, assignment: Assignment) -> Self:
        return cls(
            {
                pods.name: {resource: choice.flavor for resource, choice in pods.flavors.items()}
                for pods in assignment.pod_sets
            }
        )


def is_outdated(scan: ScanPosition, *, generation: int, cycle: int, shape: str, gates: Gates) -> bool:
    """Whether the search must start over: the workload has changed, or there may be room where there was none. A record
    of the last cycle stands all the same: or else, where room comes and goes all the time, the last flavors would
    never be tried."""
    if Gate.FLAVOR_FUNGIBILITY_PRESERVE_SCAN_PROGRESS in gates:
        if scan.shape != shape and UNKNOWN_SHAPE not in (scan.shape, shape):
            return True
        if scan.cycle >= cycle - 1:
            return False
    return generation > scan.generation


def total_requests(
    assignment: Assignment, info: WorkloadInfo, replaced: WorkloadInfo | None = None
) -> dict[FlavorResource, int]:
    """What the pods of the workload ask for, as far as it is given them, beyond what the replaced slice has. Without
    `pods`, which no pod asks for."""
    found: dict[FlavorResource, int] = {}
    had = {pods.name: pods.count for pods in replaced.pod_sets} if replaced is not None else {}
    for asked, given in zip(info.pod_sets, assignment.pod_sets, strict=False):
        # A slice is given room for all its pods or for none, so only a workload by itself goes by what it is given.
        count = asked.count - had[asked.name] if asked.name in had else given.count
        for resource, value in asked.for_count(count).items():
            choice = given.flavors.get(resource)
            if choice is not None and resource != PODS:
                what = FlavorResource(choice.flavor, resource)
                found[what] = found.get(what, 0) + value
    return found


def only_choice(info: WorkloadInfo, policy: Queue) -> dict[FlavorResource, int] | None:
    """What it would be given, if anything: there is one flavor for all that it asks for. None where there are several,
    or none."""
    found: dict[FlavorResource, int] = {}
    for pods in info.pod_sets:
        for resource, value in pods.requests.items():
            group = policy.by_resource.get(resource)
            if group is None or len(group.flavors) != 1:
                return None
            what = FlavorResource(group.flavors[0], resource)
            found[what] = found.get(what, 0) + value
    return None if PODS in policy.by_resource else found


# One search


@dataclass(slots=True, eq=False)
class _Search:
    """What one search knows, and what it has given out so far."""

    queue: QueueState
    plan: QueuePlan
    judge: Judge
    scan: ScanPosition | None
    allowed: frozenset[str] | None
    pins: Pins | None
    replaced: Mapping[str, PodSetTotals]
    """By name: pod sets of the slice whose place the workload takes."""
    usage: dict[FlavorResource, int] = field(default_factory=dict)
    borrowing: int = 0

    def start(self, pod_set: int, resource: str, flavors: int) -> int:
        """The index of the flavor to begin with."""
        if self.scan is None or pod_set >= len(self.scan.tried):
            return 0
        start = self.scan.tried[pod_set].get(resource, -1) + 1
        return start if start < flavors else 0


@dataclass(slots=True, eq=False)
class _Member:
    """A pod set of the workload, with what is asked for it in this search."""

    number: int
    totals: PodSetTotals
    count: int
    requests: dict[str, int]


@dataclass(slots=True, eq=False)
class _Scan:
    """What came of one resource group. Without choices there is no way."""

    group: GroupPlan
    attempts: list[Attempt] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    choices: Mapping[str, FlavorChoice] = field(default_factory=dict)

    def note(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)
        self.reasons += attempt.reasons


class _Tried:
    """One flavor against all the requests for its resource group."""

    __slots__ = ("fitness", "fits", "flavor")

    def __init__(self, flavor: FlavorPlan) -> None:
        self.flavor = flavor
        self.fitness = fitting.BEST
        self.fits: dict[str, ResourceFit] = {}

    def attempt(self) -> Attempt:
        if self.fitness is fitting.BEST:
            return self.flavor.fits
        degree, borrow = self.fitness
        failed = [fit for fit in self.fits.values() if fit.reason]
        reason = NoFitReason.NONE
        if degree is Degree.NO_FIT:
            reason = max((fit.no_fit_reason for fit in failed), key=_SEVERITY.__getitem__)
        return Attempt(
            self.flavor.name,
            degree.mode,
            borrow,
            fitting.POSSIBILITIES.get(degree, ""),
            reason,
            tuple(dict.fromkeys(fit.reason for fit in failed)),
            tuple(fit.shortfall for fit in failed if fit.shortfall is not None),
        )

    def choices(self, tried_index: int) -> dict[str, FlavorChoice]:
        flavor = self.flavor
        return {
            resource: flavor.fitting_choice(tried_index)
            if fit is fitting.FITS
            else FlavorChoice(flavor.name, fit.fitness.degree.mode, fit.fitness.borrow, tried_index)
            for resource, fit in self.fits.items()
        }


class FlavorAssigner:
    """Against the state as it is when asked."""

    def __init__(self, state: QuotaState, oracle: Oracle, memory: FlavorMemory | None = None) -> None:
        self._state = state
        self._oracle = oracle
        self._memory = memory or FlavorMemory()
        gates = state.settings.gates
        self._is_fungible = Gate.FLAVOR_FUNGIBILITY in gates
        self._has_topologies = Gate.TOPOLOGY_AWARE_SCHEDULING in gates
        self._has_variants = Gate.CONCURRENT_ADMISSION in gates
        self._has_slices = Gate.ELASTIC_JOBS_VIA_WORKLOAD_SLICES in gates
        self._ignores_undeclared = state.settings.ignores_undeclared and Gate.QUOTA_CHECK_STRATEGY in gates

    def assign(
        self,
        info: WorkloadInfo,
        queue: QueueState,
        *,
        counts: Sequence[int] | None = None,
        replaced: WorkloadInfo | None = None,
        pinned: Pins | None = None,
        cycle: int = 0,
    ) -> Assignment:
        """`counts`: of each pod set, where not all its pods are to be given room. `replaced`: the slice whose place
        the workload takes, which holds quota in the same queue; only what goes beyond it is asked for. A workload
        that holds quota keeps its flavors: only its topology is looked at."""
        replaced = replaced if self._has_slices else None
        if info.has_reservation:
            assignment = _as_given(info)
        else:
            self._drop_outdated(info, queue, cycle)
            assignment = self._search(self._begin(info, queue, replaced, pinned), info, counts)
            assignment.scan = _position(assignment, info, queue, cycle)
        if self._has_topologies and assignment.mode is not Mode.NO_FIT:
            topology_requests.place(self._state, queue, info, assignment, replaced)
            if assignment.places:
                taken = net_topology_usage(info, assignment, replaced)
                assignment.usage = Usage(assignment.usage.quota, taken)
        return assignment

    def _drop_outdated(self, info: WorkloadInfo, queue: QueueState, cycle: int) -> None:
        scan, gates = info.scan, self._state.settings.gates
        if scan is not None and is_outdated(
            scan, generation=queue.generation, cycle=cycle, shape=info.shape, gates=gates
        ):
            info.scan = None

    def _begin(
        self, info: WorkloadInfo, queue: QueueState, replaced: WorkloadInfo | None, pins: Pins | None
    ) -> _Search:
        return _Search(
            queue,
            self._memory.plan(queue.policy),
            fitting.judge(queue, info, self._oracle, self._state.settings),
            info.scan if self._is_fungible else None,
            info.allowed_flavors if self._has_variants or info.is_part else None,
            pins,
            {pods.name: pods for pods in replaced.pod_sets} if replaced is not None else {},
        )

    def _search(self, search: _Search, info: WorkloadInfo, counts: Sequence[int] | None) -> Assignment:
        found: dict[int, PodSetAssignment] = {}
        for members in _grouped(info, search.plan, counts):
            if not self._decide(search, members, found):
                break
        pod_sets = [found[number] for number in sorted(found)]
        return Assignment(pod_sets, search.borrowing, Usage(search.usage))

    def _decide(self, search: _Search, members: list[_Member], found: dict[int, PodSetAssignment]) -> bool:
        """Of pod sets that go together. False: there is no way, and the rest need not be looked at."""
        total = members[0].requests if len(members) == 1 else _summed(members)
        scans: list[_Scan] = []
        choices: dict[str, FlavorChoice] = {}
        reasons: list[str] = []
        failure = NoFitReason.NONE
        for resource in sorted(total) if len(total) > 1 else total:
            if resource in choices:
                continue
            group = search.plan.by_resource.get(resource)
            if group is None:
                if not total[resource] or self._ignores_undeclared or search.queue.policy.ignores_undeclared:
                    continue
                reasons, failure = [f"resource {resource} unavailable in ClusterQueue"], NoFitReason.NO_FLAVOR
                break
            scan = self._scan(search, members, group, resource, total)
            scans.append(scan)
            if not scan.choices:
                reasons, failure = scan.reasons, _resolved(search.plan, total, scans)
                break
            choices.update(scan.choices)
            reasons += scan.reasons
        attempts = scans[0].attempts if len(scans) == 1 else [attempt for scan in scans for attempt in scan.attempts]
        if failure is not NoFitReason.NONE:
            choices = {}
        for member in members:
            given = _given(search, member, choices)
            given.reasons, given.attempts, given.no_fit_reason = list(reasons), attempts, failure
            found[member.number] = given
        if len(members) > 1 and self._has_topologies:
            self._infer(search.queue, members, choices, found)
        return failure is NoFitReason.NONE

    def _infer(
        self,
        queue: QueueState,
        members: list[_Member],
        choices: Mapping[str, FlavorChoice],
        found: Mapping[int, PodSetAssignment],
    ) -> None:
        """A leader that asks for nothing that has a place still goes where its workers go."""
        placed = {
            resource: choice
            for resource, choice in choices.items()
            if topology_requests.has_topology(self._state, choice.flavor)
        }
        for member in members:
            flavors = found[member.number].flavors
            if flavors.keys().isdisjoint(placed) and topology_requests.is_requested(
                self._state, queue, member.totals.spec
            ):
                flavors.update(placed)

    def _scan(
        self, search: _Search, members: list[_Member], group: GroupPlan, resource: str, total: Mapping[str, int]
    ) -> _Scan:
        """Tries the flavors of one group until one is good enough."""
        scan = _Scan(group)
        names = group.resources & total.keys()
        wanted = [(name, total[name]) for name in (sorted(names) if len(names) > 1 else names)]
        policy, count = search.plan.policy, len(group.flavors)
        best: _Tried | None = None
        fitness = fitting.WORST
        index = search.start(members[0].number, resource, count)
        while index < count:
            flavor = group.flavors[index]
            refusal = self._refusal(search, members, group, flavor.name, resource)
            if refusal is not None:
                no_flavor = NoFitReason.NO_FLAVOR
                scan.note(Attempt(flavor.name, Mode.NO_FIT, no_fit_reason=no_flavor, reasons=(refusal,)))
            else:
                tried = self._try(search, members, flavor, wanted)
                scan.note(tried.attempt())
                is_enough = tried.fitness.degree is Degree.FIT
                is_improved = tried.fitness.degree > fitness.degree
                if self._is_fungible:
                    is_enough = not fitting.goes_on(tried.fitness, policy)
                    is_improved = is_enough or fitting.is_better(tried.fitness, fitness, policy.preference)
                if is_improved:
                    best, fitness = tried, tried.fitness
                if is_enough:
                    break
            index += 1
        if best is not None:
            scan.choices = best.choices(index if index < count - 1 and self._is_fungible else -1)
            if fitness.degree is Degree.FIT:
                scan.reasons = []
        return scan

    def _refusal(
        self, search: _Search, members: list[_Member], group: GroupPlan, name: str, resource: str
    ) -> str | None:
        """Why the flavor is out of the question, whatever its quota."""
        if search.pins is not None:
            pinned = search.pins.flavors.get(members[0].totals.name, {}).get(resource)
            if pinned is not None and pinned != name:
                return f"skipping flavor {name} as it is not found in the nomination mapping for resource {resource}"
        if search.allowed is not None and name not in search.allowed:
            return f"flavor {name} is not among the flavors that the workload allows"
        flavor = self._state.flavors.get(name)
        if flavor is None:
            return f"flavor {name} not found"
        for member in members:
            if self._has_topologies:
                refusal = topology_requests.refusal(self._state, search.queue, flavor, member.totals, group.resources)
                if refusal is not None:
                    return refusal
            mismatch = self._memory.mismatch(flavor, member.totals)
            if mismatch is not None:
                return mismatch
        return None

    def _try(
        self, search: _Search, members: list[_Member], flavor: FlavorPlan, wanted: list[tuple[str, int]]
    ) -> _Tried:
        tried = _Tried(flavor)
        preference = search.plan.policy.preference
        for resource, value in wanted:
            what = flavor.whats[resource]
            fit = _other_slice(search, members, what) if search.replaced else None
            if fit is None:
                more = value - (_held(search, members, resource) if search.replaced else 0)
                is_open = tried.fitness.degree is not Degree.NO_FIT
                fit = search.judge.fit(what, search.usage.get(what, 0), more, asks_oracle=is_open)
            tried.fits[resource] = fit
            if fit is not fitting.FITS and fitting.is_better(tried.fitness, fit.fitness, preference):
                tried.fitness = fit.fitness
        return tried


def _grouped(info: WorkloadInfo, plan: QueuePlan, counts: Sequence[int] | None) -> list[list[_Member]]:
    """Pod sets of one group together, in the order of the first of each."""
    groups: dict[object, list[_Member]] = {}
    for number, totals in enumerate(info.pod_sets):
        count = totals.count if counts is None else counts[number]
        requests = totals.for_count(count)
        if plan.counts_pods:
            requests[PODS] = count
        asked = totals.spec.topology_request
        group = asked.pod_set_group_name if asked is not None else None
        groups.setdefault(number if group is None else group, []).append(_Member(number, totals, count, requests))
    return list(groups.values())


def _summed(members: list[_Member]) -> dict[str, int]:
    total: dict[str, int] = {}
    for member in members:
        for resource, value in member.requests.items():
            total[resource] = total.get(resource, 0) + value
    return total


def _given(search: _Search, member: _Member, choices: Mapping[str, FlavorChoice]) -> PodSetAssignment:
    """Takes what the pod set gets, beyond what the replaced slice has, from what the next ones can have."""
    flavors: dict[str, FlavorChoice] = {}
    had = search.replaced.get(member.totals.name) if search.replaced else None
    usage = search.usage
    for resource, value in member.requests.items():
        choice = choices.get(resource)
        if choice is None:
            continue
        flavors[resource] = choice
        what = FlavorResource(choice.flavor, resource)
        usage[what] = usage.get(what, 0) + value - (had.requests.get(resource, 0) if had is not None else 0)
        search.borrowing = max(search.borrowing, choice.borrow)
    return PodSetAssignment(member.totals.name, member.count, member.requests, flavors)


def _held(search: _Search, members: list[_Member], resource: str) -> int:
    """By the replaced slice."""
    held = (search.replaced.get(member.totals.name) for member in members)
    return sum(pods.requests.get(resource, 0) for pods in held if pods is not None)


def _other_slice(search: _Search, members: list[_Member], what: FlavorResource) -> ResourceFit | None:
    """The replaced slice has another flavor: its pods go on running there, and those that join them must too."""
    for member in members:
        had = search.replaced.get(member.totals.name)
        original = had.flavors.get(what.resource) if had is not None and what.resource in member.requests else None
        if original is not None and original != what.flavor:
            reason = f"could not assign {what.flavor} flavor since the original workload is assigned: {original}"
            return ResourceFit(fitting.WORST, reason, NoFitReason.NO_FLAVOR)
    return None


def _resolved(plan: QueuePlan, total: Mapping[str, int], scans: list[_Scan]) -> NoFitReason:
    """Of each resource group the mildest reason, since one flavor would be enough; of all groups the gravest. A group
    that was not reached is judged by what was found of its flavors for others."""
    tried = {id(scan.group): scan.attempts for scan in scans}
    every = [attempt for scan in scans for attempt in scan.attempts]
    found = NoFitReason.NONE
    for group in plan.groups:
        if group.resources.isdisjoint(total):
            continue
        names = {flavor.name for flavor in group.flavors}
        attempts = tried.get(id(group)) or [attempt for attempt in every if attempt.flavor in names]
        mildest = min((one.no_fit_reason for one in attempts), key=_SEVERITY.__getitem__, default=NoFitReason.NONE)
        found = max(found, mildest, key=_SEVERITY.__getitem__)
    return found or NoFitReason.NO_FLAVOR


def _as_given(info: WorkloadInfo) -> Assignment:
    """It holds quota: what it was given fits."""
    return Assignment(
        [
            PodSetAssignment(
                pods.name,
                pods.count,
                pods.requests,
                {resource: FlavorChoice(flavor, Mode.FIT) for resource, flavor in pods.flavors.items()},
                topology=pods.topology,
                delayed_topology=pods.delayed_topology,
            )
            for pods in info.pod_sets
        ]
    )


def _position(assignment: Assignment, info: WorkloadInfo, queue: QueueState, cycle: int) -> ScanPosition:
    tried = [
        {resource: choice.tried_index for resource, choice in pods.flavors.items()} for pods in assignment.pod_sets
    ]
    scan = ScanPosition(tried, queue.generation, cycle, UNKNOWN_SHAPE)
    if scan.has_untried:
        scan.shape = info.shape
    return scan
