"""A ClusterQueue as the engine reads it: quotas in numbers, policies as words of a closed set."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Final

from muster.api import kueue, quantity
from muster.api.kueue import names
from muster.api.meta import ObjectMeta
from muster.api.selectors import LabelSelector, from_view
from muster.quota.amounts import FlavorResource, amount
from muster.quota.tree import ONE, Quota


class Strategy(StrEnum):
    STRICT = "StrictFIFO"
    BEST_EFFORT = "BestEffortFIFO"


class Fungibility(StrEnum):
    MAY_STOP = "MayStopSearch"
    TRY_NEXT = "TryNextFlavor"


class Preference(StrEnum):
    BORROWING = "BorrowingOverPreemption"
    PREEMPTION = "PreemptionOverBorrowing"


class Victims(StrEnum):
    """Whom a workload may preempt."""

    NEVER = "Never"
    LOWER = "LowerPriority"
    LOWER_OR_NEWER = "LowerOrNewerEqualPriority"
    ANY = "Any"
    UNSAID = ""
    """Nobody, in a queue that was not defaulted; Kueue then still asks what preemption could do."""


class Stop(StrEnum):
    NONE = "None"
    HOLD = "Hold"
    DRAIN = "HoldAndDrain"


UNDECLARED_ANNOTATION: Final = "muster.dev/undeclared-resources"
PROBLEM_ANNOTATION: Final = "muster.dev/problem"
"""Of a ClusterQueue: why it cannot admit anything, in words; whoever made it knows what is wrong."""
RULES_ANNOTATION: Final = "muster.dev/rules"
VOLCANO_RULES: Final = "volcano"
"""Of a ClusterQueue: see `Queue.has_volcano_rules`."""
USAGE_BASED: Final = "UsageBasedAdmissionFairSharing"
_INT32: Final = 2**31


@dataclass(frozen=True, slots=True)
class Group:
    """Resources that come from one flavor, and the flavors in the order in which they are tried."""

    resources: frozenset[str]
    flavors: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Queue:
    name: str
    cohort: str
    strategy: Strategy
    selector: LabelSelector
    when_can_borrow: Fungibility
    when_can_preempt: Fungibility
    preference: Preference
    within_queue: Victims
    reclaim_within_cohort: Victims
    borrow_within_cohort: Victims
    max_priority_threshold: int | None
    groups: tuple[Group, ...]
    quotas: Mapping[FlavorResource, Quota]
    checks: Mapping[str, frozenset[str] | None]
    """By name, the flavors that the check is asked for; None: whatever the flavor."""
    stop: Stop
    weight: Fraction
    is_usage_based: bool
    """Past usage of the local queues decides whose workload comes first."""
    ignores_undeclared: bool
    """Resources that it does not cover are free here: without any that it does, it admits everything."""
    is_reclaimable: bool
    """Other queues may take back what it has borrowed."""
    has_volcano_rules: bool
    """Of its siblings the one comes first that has least of what it owns. And whether a workload takes back its queue's
    own is judged by what it lacks, not by all that it asks for: of other things it may borrow what is free."""
    priority: int
    problem: str
    """Why it admits nothing, where it was made so."""
    concurrent: kueue.ConcurrentAdmissionPolicy | None
    by_resource: Mapping[str, Group]

    @property
    def flavors(self) -> list[str]:
        return [flavor for group in self.groups for flavor in group.flavors]

    @property
    def may_preempt(self) -> bool:
        nobody = (Victims.NEVER, Victims.UNSAID)
        return self.within_queue not in nobody or self.reclaim_within_cohort not in nobody

    @property
    def may_preempt_while_borrowing(self) -> bool:
        return self.borrow_within_cohort is not Victims.NEVER

    def checks_for(self, flavors: frozenset[str] | None) -> frozenset[str]:
        """Those asked of a workload on these flavors; None: before its flavors are known, those for every flavor."""
        if flavors is None:
            everything = frozenset(self.flavors)
            return frozenset(name for name, on in self.checks.items() if on is None or on >= everything)
        return frozenset(name for name, on in self.checks.items() if on is None or on & flavors)


def read_queue(view: kueue.ClusterQueue) -> Queue:
    spec, annotations = view.spec, view.metadata.annotations or {}
    fungibility = spec.flavor_fungibility or kueue.FlavorFungibility()
    preemption = spec.preemption or kueue.ClusterQueuePreemption()
    borrow = preemption.borrow_within_cohort or kueue.BorrowWithinCohort()
    groups = tuple(
        Group(frozenset(group.covered_resources), tuple(flavor.name for flavor in group.flavors))
        for group in spec.resource_groups
    )
    return Queue(
        name=view.metadata.name,
        cohort=spec.cohort_name or "",
        strategy=Strategy(spec.queueing_strategy or Strategy.BEST_EFFORT),
        selector=from_view(spec.namespace_selector),
        when_can_borrow=Fungibility(fungibility.when_can_borrow or Fungibility.MAY_STOP),
        when_can_preempt=Fungibility(fungibility.when_can_preempt or Fungibility.TRY_NEXT),
        preference=Preference(fungibility.preference or Preference.BORROWING),
        within_queue=Victims(preemption.within_cluster_queue or Victims.NEVER),
        reclaim_within_cohort=_reclaim(spec.preemption),
        borrow_within_cohort=Victims(borrow.policy or Victims.NEVER),
        max_priority_threshold=borrow.max_priority_threshold,
        groups=groups,
        quotas=read_quotas(spec.resource_groups),
        checks=_checks(spec.admission_checks_strategy),
        stop=Stop(spec.stop_policy or Stop.NONE),
        weight=read_weight(spec.fair_sharing),
        is_usage_based=spec.admission_scope is not None and spec.admission_scope.admission_mode == USAGE_BASED,
        ignores_undeclared=annotations.get(UNDECLARED_ANNOTATION) == "free",
        is_reclaimable=annotations.get(names.RECLAIMABLE_ANNOTATION) != "false",
        has_volcano_rules=annotations.get(RULES_ANNOTATION) == VOLCANO_RULES,
        priority=read_priority(view.metadata),
        problem=annotations.get(PROBLEM_ANNOTATION, ""),
        concurrent=spec.concurrent_admission_policy,
        by_resource={resource: group for group in reversed(groups) for resource in group.resources},
    )


def _reclaim(preemption: kueue.ClusterQueuePreemption | None) -> Victims:
    return Victims.NEVER if preemption is None else Victims(preemption.reclaim_within_cohort or Victims.UNSAID)


def read_quotas(groups: tuple[kueue.ResourceGroup, ...]) -> dict[FlavorResource, Quota]:
    quotas: dict[FlavorResource, Quota] = {}
    for group in groups:
        for flavor in group.flavors:
            for quota in flavor.resources:
                quotas[FlavorResource(flavor.name, quota.name)] = Quota(
                    amount(quota.name, quota.nominal_quota or "0"),
                    None if quota.borrowing_limit is None else amount(quota.name, quota.borrowing_limit),
                    None if quota.lending_limit is None else amount(quota.name, quota.lending_limit),
                )
    return quotas


def read_weight(sharing: kueue.FairSharing | None) -> Fraction:
    if sharing is None or sharing.weight is None:
        return ONE
    return Fraction(quantity.parse(sharing.weight).nano, quantity.NANO)


def read_priority(metadata: ObjectMeta) -> int:
    """Of a queue or cohort. What is no number, or beyond 32 bits, is as if nothing had been said."""
    text = (metadata.annotations or {}).get(names.QUEUE_PRIORITY_ANNOTATION, "")
    digits = text.removeprefix("-")
    value = int(text) if digits.isascii() and digits.isdigit() and len(digits) <= 10 else 0
    return value if -_INT32 <= value < _INT32 else 0


def _checks(strategy: kueue.AdmissionChecksStrategy | None) -> dict[str, frozenset[str] | None]:
    if strategy is None:
        return {}
    return {rule.name: frozenset(rule.on_flavors) or None for rule in strategy.admission_checks}
