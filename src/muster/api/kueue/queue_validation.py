"""What cluster queues, local queues and cohorts must look like.

Checks of one object alone. Whether flavors, cohorts and checks exist is not checked: they may be made later.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from muster.api import fields, quantity
from muster.api.errors import FieldError
from muster.api.kueue.queue_views import (
    AdmissionChecksStrategy,
    AdmissionScope,
    ClusterQueue,
    ClusterQueuePreemption,
    ClusterQueueSpec,
    Cohort,
    FairSharing,
    FlavorFungibility,
    LocalQueue,
    ResourceGroup,
    ResourceQuota,
)
from muster.api.metadata import validate_label_selector
from muster.api.scalars import QuantityText

MAX_GROUPS = 16
MAX_IN_GROUP = 64
MAX_IN_ALL_GROUPS = 256
MAX_QUOTAS_IN_GROUP = 512
MAX_CHECKS = 64
MAX_CONCURRENT_FLAVORS = 16
SMALLEST_WEIGHT = quantity.parse("1n")  # at or below this, shares would no longer be exact

_CHECKS = "spec.admissionChecksStrategy.admissionChecks"
STOP_POLICIES = ("None", "Hold", "HoldAndDrain")
QUEUEING_STRATEGIES = ("StrictFIFO", "BestEffortFIFO")
FUNGIBILITY_POLICIES = ("MayStopSearch", "TryNextFlavor")
FUNGIBILITY_PREFERENCES = ("BorrowingOverPreemption", "PreemptionOverBorrowing")
WITHIN_CLUSTER_QUEUE = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
RECLAIM_WITHIN_COHORT = ("Never", "LowerPriority", "Any")
BORROW_WITHIN_COHORT = ("Never", "LowerPriority")
ADMISSION_MODES = ("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing")
MIGRATION_MODES = ("RetainFirstAdmission", "TryPreferredFlavors")


@dataclass(frozen=True, slots=True)
class _Rules:
    """What differs between the quotas of a cluster queue and those of a cohort."""

    owner: str  # the field that must be set for limits to mean anything
    has_owner: bool
    lends_own_only: bool  # a cohort lends what its whole subtree has, so its limit may exceed its own quota


def validate_cluster_queue(queue: ClusterQueue) -> list[FieldError]:
    return list(_cluster_queue(queue.spec))


def _cluster_queue(spec: ClusterQueueSpec) -> Iterator[FieldError]:
    if spec.cohort_name:
        yield from fields.dns_subdomain("spec.cohortName", spec.cohort_name)
    rules = _Rules("cohort", bool(spec.cohort_name), lends_own_only=True)
    yield from _resource_groups("spec.resourceGroups", spec.resource_groups, rules)
    yield from fields.one_of("spec.queueingStrategy", spec.queueing_strategy, QUEUEING_STRATEGIES)
    yield from validate_label_selector("spec.namespaceSelector", spec.namespace_selector)
    yield from _fungibility("spec.flavorFungibility", spec.flavor_fungibility)
    yield from _preemption("spec.preemption", spec.preemption)
    yield from _checks(_CHECKS, spec.admission_checks_strategy)
    yield from fields.one_of("spec.stopPolicy", spec.stop_policy, STOP_POLICIES)
    yield from _weight("spec.fairSharing.weight", spec.fair_sharing)
    yield from _admission_scope("spec.admissionScope.admissionMode", spec.admission_scope)
    yield from _concurrent_admission("spec.concurrentAdmissionPolicy", spec)


def _flavors(spec: ClusterQueueSpec) -> list[str]:
    return [flavor.name for group in spec.resource_groups for flavor in group.flavors]


def validate_new_cluster_queue(queue: ClusterQueue) -> list[FieldError]:
    return list(_on_flavors(queue.spec, {}))


def validate_cluster_queue_update(old: ClusterQueue, new: ClusterQueue) -> list[FieldError]:
    path = "spec.concurrentAdmissionPolicy"
    before = old.spec.admission_checks_strategy
    kept = {rule.name: rule.on_flavors for rule in before.admission_checks} if before is not None else {}
    return [
        *fields.immutable(path, old.spec.concurrent_admission_policy, new.spec.concurrent_admission_policy),
        *_on_flavors(new.spec, kept),
    ]


def validate_cohort(cohort: Cohort) -> list[FieldError]:
    return list(_cohort(cohort))


def _cohort(cohort: Cohort) -> Iterator[FieldError]:
    parent = cohort.spec.parent_name
    if parent:
        yield from fields.dns_subdomain("spec.parentName", parent)
        if parent == cohort.metadata.name:
            yield fields.invalid("spec.parentName", parent, "a cohort cannot be its own parent")
    rules = _Rules("parent", bool(parent), lends_own_only=False)
    yield from _resource_groups("spec.resourceGroups", cohort.spec.resource_groups, rules)
    yield from _weight("spec.fairSharing.weight", cohort.spec.fair_sharing)


def validate_local_queue(queue: LocalQueue) -> list[FieldError]:
    return list(_local_queue(queue))


def _local_queue(queue: LocalQueue) -> Iterator[FieldError]:
    yield from fields.dns_subdomain("spec.clusterQueue", queue.spec.cluster_queue)
    yield from fields.one_of("spec.stopPolicy", queue.spec.stop_policy, STOP_POLICIES)
    yield from _weight("spec.fairSharing.weight", queue.spec.fair_sharing)


def validate_local_queue_update(old: LocalQueue, new: LocalQueue) -> list[FieldError]:
    return list(fields.immutable("spec.clusterQueue", old.spec.cluster_queue, new.spec.cluster_queue))


def _resource_groups(path: str, groups: tuple[ResourceGroup, ...], rules: _Rules) -> Iterator[FieldError]:
    yield from fields.at_most(path, groups, MAX_GROUPS)
    resources = [(f"{path}[{g}].coveredResources[{i}]", name) for g, group in enumerate(groups)
                 for i, name in enumerate(group.covered_resources)]  # fmt: skip
    flavors = [(f"{path}[{g}].flavors[{i}].name", flavor.name) for g, group in enumerate(groups)
               for i, flavor in enumerate(group.flavors)]  # fmt: skip
    yield from _each_once(resources)
    yield from _each_once(flavors)
    if len(resources) > MAX_IN_ALL_GROUPS:
        yield fields.invalid(
            path, len(resources), f"all groups together may cover at most {MAX_IN_ALL_GROUPS} resources"
        )
    if len(flavors) > MAX_IN_ALL_GROUPS:
        yield fields.invalid(path, len(flavors), f"all groups together may have at most {MAX_IN_ALL_GROUPS} flavors")
    for index, group in enumerate(groups):
        yield from _resource_group(f"{path}[{index}]", group, rules)


def _each_once(places: list[tuple[str, str]]) -> Iterator[FieldError]:
    """A resource or a flavor is in one group at most: otherwise two quotas would claim the same usage."""
    seen: set[str] = set()
    for path, name in places:
        if name in seen:
            yield fields.duplicate(path, name)
        seen.add(name)


def _resource_group(path: str, group: ResourceGroup, rules: _Rules) -> Iterator[FieldError]:
    for field, items in (("coveredResources", group.covered_resources), ("flavors", group.flavors)):
        if not items:
            yield fields.required(f"{path}.{field}")
        yield from fields.at_most(f"{path}.{field}", items, MAX_IN_GROUP)
    for index, name in enumerate(group.covered_resources):
        yield from fields.qualified_name(f"{path}.coveredResources[{index}]", name)
    pairs = len(group.covered_resources) * len(group.flavors)
    if pairs > MAX_QUOTAS_IN_GROUP:
        yield fields.invalid(path, pairs, f"flavors times resources may be at most {MAX_QUOTAS_IN_GROUP} in a group")
    for index, flavor in enumerate(group.flavors):
        at = f"{path}.flavors[{index}]"
        yield from fields.dns_subdomain(f"{at}.name", flavor.name)
        if len(flavor.resources) != len(group.covered_resources):
            yield fields.invalid(
                f"{at}.resources",
                len(flavor.resources),
                "flavors must have the same number of resources as the coveredResources",
            )
        for position, quota in enumerate(flavor.resources):
            where = f"{at}.resources[{position}]"
            covered = group.covered_resources[position : position + 1]
            if covered and quota.name != covered[0]:
                yield fields.invalid(
                    f"{where}.name", quota.name, f'must match the name in coveredResources: "{covered[0]}"'
                )
            yield from _quota(where, quota, rules)


def _quota(path: str, quota: ResourceQuota, rules: _Rules) -> Iterator[FieldError]:
    if quota.nominal_quota is None:
        yield fields.required(f"{path}.nominalQuota")
    yield from fields.amount(f"{path}.nominalQuota", quota.nominal_quota)
    for field, limit in (("borrowingLimit", quota.borrowing_limit), ("lendingLimit", quota.lending_limit)):
        yield from fields.amount(f"{path}.{field}", limit)
        if limit is not None and not rules.has_owner:
            yield fields.invalid(f"{path}.{field}", limit, f"{field} must be nil when {rules.owner} is empty")
    if rules.lends_own_only and _exceeds(quota.lending_limit, quota.nominal_quota):
        yield fields.invalid(
            f"{path}.lendingLimit", quota.lending_limit, "lendingLimit must be less than or equal to the nominalQuota"
        )


def _exceeds(left: QuantityText | None, right: QuantityText | None) -> bool:
    """False where either is absent or no quantity: that is an error of its own."""
    if left is None or right is None:
        return False
    try:
        return quantity.parse(left) > quantity.parse(right)
    except quantity.BadQuantity:
        return False


def _fungibility(path: str, fungibility: FlavorFungibility | None) -> Iterator[FieldError]:
    if fungibility is None:
        return
    yield from fields.one_of(f"{path}.whenCanBorrow", fungibility.when_can_borrow, FUNGIBILITY_POLICIES)
    yield from fields.one_of(f"{path}.whenCanPreempt", fungibility.when_can_preempt, FUNGIBILITY_POLICIES)
    yield from fields.one_of(f"{path}.preference", fungibility.preference, FUNGIBILITY_PREFERENCES)
    policies = (fungibility.when_can_borrow, fungibility.when_can_preempt)
    if fungibility.preference and policies != ("TryNextFlavor", "TryNextFlavor"):
        yield fields.invalid(
            f"{path}.preference",
            fungibility.preference,
            "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
        )


def _preemption(path: str, preemption: ClusterQueuePreemption | None) -> Iterator[FieldError]:
    if preemption is None:
        return
    yield from fields.one_of(f"{path}.withinClusterQueue", preemption.within_cluster_queue, WITHIN_CLUSTER_QUEUE)
    yield from fields.one_of(f"{path}.reclaimWithinCohort", preemption.reclaim_within_cohort, RECLAIM_WITHIN_COHORT)
    borrowing = preemption.borrow_within_cohort
    if borrowing is None:
        return
    yield from fields.one_of(f"{path}.borrowWithinCohort.policy", borrowing.policy, BORROW_WITHIN_COHORT)
    if preemption.reclaim_within_cohort in (None, "Never") and borrowing.policy not in (None, "Never"):
        yield fields.invalid(
            path, borrowing.policy, "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never cannot be combined"
        )


def _checks(path: str, strategy: AdmissionChecksStrategy | None) -> Iterator[FieldError]:
    if strategy is None:
        return
    rules = strategy.admission_checks
    if not rules:
        yield fields.required(path)
    yield from fields.at_most(path, rules, MAX_CHECKS)
    yield from fields.unique(path, [rule.name for rule in rules], "name")
    for index, rule in enumerate(rules):
        at = f"{path}[{index}]"
        yield from fields.dns_subdomain(f"{at}.name", rule.name)
        yield from fields.at_most(f"{at}.onFlavors", rule.on_flavors, MAX_IN_GROUP)


def _on_flavors(spec: ClusterQueueSpec, kept: Mapping[str, tuple[str, ...]]) -> Iterator[FieldError]:
    """Checks for flavors that the queue does not have. `kept`: by check, those that were there before. A flavor may
    leave a queue without its checks being in the way."""
    strategy, flavors = spec.admission_checks_strategy, _flavors(spec)
    for index, rule in enumerate(strategy.admission_checks if strategy is not None else ()):
        if kept.get(rule.name) == rule.on_flavors:
            continue
        for position, flavor in enumerate(rule.on_flavors):
            if flavor not in flavors:
                yield fields.not_found(f"{_CHECKS}[{index}].onFlavors[{position}]", flavor)


def _weight(path: str, sharing: FairSharing | None) -> Iterator[FieldError]:
    if sharing is None or sharing.weight is None:
        return
    found = list(fields.amount(path, sharing.weight))
    yield from found
    if not found and quantity.ZERO < quantity.parse(sharing.weight) <= SMALLEST_WEIGHT:
        yield fields.invalid(path, sharing.weight, "must be zero or greater than 1e-9")


def _admission_scope(path: str, scope: AdmissionScope | None) -> Iterator[FieldError]:
    if scope is None:
        return
    if not scope.admission_mode:
        yield fields.required(path)
    else:
        yield from fields.one_of(path, scope.admission_mode, ADMISSION_MODES)


def _concurrent_admission(path: str, spec: ClusterQueueSpec) -> Iterator[FieldError]:
    policy = spec.concurrent_admission_policy
    if policy is None:
        return
    if len(spec.resource_groups) != 1:
        yield fields.invalid(
            "spec.resourceGroups", len(spec.resource_groups), f"{path} needs exactly one resource group"
        )
    elif len(spec.resource_groups[0].flavors) > MAX_CONCURRENT_FLAVORS:
        yield fields.too_many(
            "spec.resourceGroups[0].flavors", len(spec.resource_groups[0].flavors), MAX_CONCURRENT_FLAVORS
        )
    if spec.queueing_strategy == "StrictFIFO":
        yield fields.invalid("spec.queueingStrategy", "StrictFIFO", f"cannot be combined with {path}")
    if policy.migration is None:
        return
    yield from fields.one_of(f"{path}.migration.mode", policy.migration.mode, MIGRATION_MODES)
    constraints = policy.migration.constraints
    last = constraints.last_acceptable_flavor_name if constraints else None
    if last and last not in _flavors(spec):
        yield fields.not_found(f"{path}.migration.constraints.lastAcceptableFlavorName", last)
