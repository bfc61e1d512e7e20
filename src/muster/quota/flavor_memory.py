"""What flavor assignment works out once and keeps until a queue or a flavor changes: the resource groups of a queue in
the form in which they are searched, and which flavors' nodes can take which pods."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.api import kueue
from muster.quota import flavor_fitting as fitting
from muster.quota.amounts import PODS, FlavorResource
from muster.quota.assignments import Attempt, FlavorChoice, Mode
from muster.quota.queues import Group, Queue
from muster.quota.workloads import PodSetTotals


@dataclass(slots=True, eq=False)
class FlavorPlan:
    """One flavor in one resource group of one queue."""

    name: str
    whats: Mapping[str, FlavorResource]
    """By resource of the group."""
    fits: Attempt
    """The attempt in which everything fits, without borrowing: by far the most common."""
    _choices: dict[int, FlavorChoice] = field(default_factory=dict)

    def fitting_choice(self, tried_index: int) -> FlavorChoice:
        found = self._choices.get(tried_index)
        if found is None:
            found = self._choices[tried_index] = FlavorChoice(self.name, Mode.FIT, 0, tried_index)
        return found


@dataclass(slots=True, eq=False)
class GroupPlan:
    resources: frozenset[str]
    flavors: tuple[FlavorPlan, ...]


@dataclass(slots=True, eq=False)
class QueuePlan:
    policy: Queue
    groups: tuple[GroupPlan, ...]
    by_resource: Mapping[str, GroupPlan]
    counts_pods: bool


def _queue_plan(policy: Queue) -> QueuePlan:
    groups = tuple(_group_plan(group) for group in policy.groups)
    # The first group counts, should two of them (which no valid queue has) name a resource.
    by_resource = {resource: group for group in reversed(groups) for resource in group.resources}
    return QueuePlan(policy, groups, by_resource, PODS in by_resource)


def _group_plan(group: Group) -> GroupPlan:
    flavors = tuple(
        FlavorPlan(
            name, {resource: FlavorResource(name, resource) for resource in group.resources}, Attempt(name, Mode.FIT)
        )
        for name in group.flavors
    )
    return GroupPlan(group.resources, flavors)


@dataclass(slots=True, eq=False)
class _Verdicts:
    """By scheduling key of a pod set, why the flavor's nodes cannot take it."""

    flavor: kueue.ResourceFlavor
    mismatches: dict[object, str | None] = field(default_factory=dict)


class FlavorMemory:
    """For whoever makes assigners again and again, one for each cycle."""

    def __init__(self) -> None:
        self._plans: dict[str, QueuePlan] = {}
        self._verdicts: dict[str, _Verdicts] = {}

    def plan(self, policy: Queue) -> QueuePlan:
        found = self._plans.get(policy.name)
        if found is None or found.policy is not policy:
            found = self._plans[policy.name] = _queue_plan(policy)
        return found

    def mismatch(self, flavor: kueue.ResourceFlavor, pods: PodSetTotals) -> str | None:
        """Why pods of the pod set could not run on the flavor's nodes."""
        name = flavor.metadata.name
        known = self._verdicts.get(name)
        if known is None or known.flavor is not flavor:
            known = self._verdicts[name] = _Verdicts(flavor)
        spec = pods.spec.template.spec
        key = fitting.scheduling_key(spec)
        if key not in known.mismatches:
            known.mismatches[key] = fitting.mismatch(flavor, spec)
        return known.mismatches[key]
