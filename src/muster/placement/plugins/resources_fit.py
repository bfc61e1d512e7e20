"""NodeResourcesFit: keeps pods off nodes that have too little of what they ask for, and scores the others by how much
of their resources is used."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np

from muster.api.core.requests import is_native
from muster.cluster.amounts import GPU_MILLI, LARGEST_AMOUNT, UNSAID, requests_in
from muster.cluster.columns import PODS, Amounts, NodeMask
from muster.cluster.groups import Group
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import (
    AtOneNode,
    Code,
    Filter,
    NodeScores,
    Placement,
    PlacementScore,
    PreFilter,
    Prepared,
    PreScore,
    Reads,
    Rejection,
    Score,
    Status,
    Wake,
    Wakes,
)
from muster.placement.plugins import resource_hints, resource_scores
from muster.placement.plugins.resource_args import MOST_ALLOCATED, NodeResourcesFitArgs, ScoringStrategy
from muster.placement.plugins.resource_scores import Asking, is_scalar

_FIRST = ("cpu", "memory", "ephemeral-storage")
_DEFAULTS = NodeResourcesFitArgs()
NO_RESOURCES = Prepared(Status(Code.ERROR, ("resources not found",)))

Request: TypeAlias = tuple[tuple[str, int], ...]
"""What must be there, in the order in which its lack is reported."""


@dataclass(frozen=True, slots=True)
class ResourceGates:
    """Abilities that Kubernetes lets one switch off, because its nodes may be older than its scheduler."""

    pod_level_resources: bool = True
    """`spec.resources` counts instead of the containers' sum."""
    in_place_resize: bool = True
    """Pods on nodes may be given less, which can make room for others."""
    resize_preemption: bool = True
    """A pod whose growth was deferred is judged again, as if it were not on its node."""


_ALL_GATES = ResourceGates()


class Shortage(NamedTuple):
    """A resource of which a node has too little, in the columns' units."""

    resource: str
    reason: str
    requested: int
    used: int
    capacity: int
    is_unresolvable: bool
    """The node would have too little if it were empty."""


class NodeResourcesFit:
    name: ClassVar[str] = "NodeResourcesFit"
    reads: ClassVar[Reads] = Reads.NODE_PODS

    def __init__(self, args: NodeResourcesFitArgs = _DEFAULTS, gates: ResourceGates = _ALL_GATES) -> None:
        strategy = args.scoring_strategy
        self._args, self._gates = args, gates
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._rating = resource_scores.rating_of(strategy)
        self._placement_rating = resource_scores.rating_of(ScoringStrategy(MOST_ALLOCATED))
        # What follows from a specification is kept with it, for this very configuration.
        self._request_key = f"{self.name} request {args} {gates}"
        self._asking_key = f"{self.name} asking {args} {gates}"

    # Filter

    def pre_filter(self, pod: PodInfo, cluster: ClusterState) -> Prepared:
        return Prepared(state=self._request(pod))

    def filter(self, pod: PodInfo, cluster: ClusterState, state: object) -> Sequence[Rejection]:
        width, rejections = cluster.width, []
        for resource, amount in self._request(pod):
            row = cluster.resources.get(resource)
            if row is None:
                rejections.append(Rejection(reason_of(resource), cluster.mask(True), resource != PODS))
                continue
            allocatable = cluster.allocatable[row, :width]
            used = self._used_by_others(pod, cluster, resource, cluster.used[row, :width])
            short: NodeMask = allocatable - used < amount
            if short.any():
                rejections += _rejections(resource, short, allocatable < amount)
        return rejections

    def fits_at(self, pod: PodInfo, cluster: ClusterState, state: object, node: int) -> bool:
        rows, allocatable, used = cluster.resources, cluster.allocatable, cluster.used
        for resource, amount in self._request(pod):
            row = rows.get(resource)
            if row is None or allocatable.item(row, node) - used.item(row, node) < amount:
                break
        else:
            return True
        return self._own_slot(pod, cluster) == node and not self.shortages(pod, cluster, node)

    def shortages(self, pod: PodInfo, cluster: ClusterState, node: int) -> list[Shortage]:
        """What the node lacks for the pod, in numbers."""
        own = cluster.pods[pod.uid][0].needs if self._own_slot(pod, cluster) == node else {}
        found = []
        for resource, amount in self._request(pod):
            row = cluster.resources.get(resource)
            capacity = 0 if row is None else cluster.allocatable.item(row, node)
            used = 0 if row is None else cluster.used.item(row, node) - own.get(resource, 0)
            if capacity - used < amount:
                is_unresolvable = resource != PODS and amount > capacity
                found.append(Shortage(resource, reason_of(resource), amount, used, capacity, is_unresolvable))
        return found

    def _request(self, pod: PodInfo) -> Request:
        scratch = pod.shape.scratch
        found = scratch.get(self._request_key)
        if isinstance(found, tuple):
            return found
        request = scratch[self._request_key] = tuple(self._checked(self.requests(pod)))
        return request

    def requests(self, pod: PodInfo) -> Mapping[str, int]:
        """What the pod asks for by its specification, whatever it holds by now."""
        if self._gates.pod_level_resources or pod.spec.resources is None:
            return pod.shape.needs
        return requests_in(pod.spec, pod_level=False)

    def _checked(self, requests: Mapping[str, int]) -> Iterator[tuple[str, int]]:
        yield PODS, 1
        for resource in _FIRST:
            if requests.get(resource):
                yield resource, requests[resource]
        for resource, amount in requests.items():
            # Shares of a GPU are no node's to count: `GpuShares` looks at single devices.
            if amount and is_scalar(resource) and resource != GPU_MILLI and not self._is_ignored(resource):
                yield resource, amount

    def _is_ignored(self, resource: str) -> bool:
        if is_native(resource):
            return False
        return resource in self._ignored or resource.partition("/")[0] in self._ignored_groups

    def _own_slot(self, pod: PodInfo, cluster: ClusterState) -> int | None:
        """Where the pod is already, if it is to be judged as though it were not."""
        if not pod.has_deferred_resize or not self._gates.resize_preemption:
            return None
        node = cluster.node_of(pod.uid)
        return None if node is None else cluster.slots.get(node)

    def _used_by_others(self, pod: PodInfo, cluster: ClusterState, resource: str, used: Amounts) -> Amounts:
        slot = self._own_slot(pod, cluster)
        if slot is None:
            return used
        others = used.copy()
        others[slot] -= cluster.pods[pod.uid][0].needs.get(resource, 0)
        return others

    # Score

    def pre_score(self, pod: PodInfo, cluster: ClusterState, feasible: NodeMask) -> Prepared:
        if not self._args.scoring_strategy.resources:
            return NO_RESOURCES
        return Prepared(state=self._asking(pod))

    def score(self, pod: PodInfo, cluster: ClusterState, state: object) -> NodeScores:
        return resource_scores.score(self._rating, self._asking(pod), cluster)

    def score_at(self, pod: PodInfo, cluster: ClusterState, state: object, node: int) -> int:
        return resource_scores.score_at(self._rating, self._asking(pod), cluster, node)

    def score_placement(
        self, group: Group, cluster: ClusterState, placement: Placement, proposed: Sequence[tuple[PodInfo, str]]
    ) -> int:
        """How full the placement is with the group, its nodes taken as one: the fuller the better."""
        wanted: dict[str, int] = {}
        to_come: dict[str, int] = {}
        for pod, _ in proposed:
            # Members that are assumed on their nodes by now count there.
            sums = (wanted, to_come) if cluster.node_of(pod.uid) is None else (wanted,)
            for resource, amount in self.scored_requests(pod).items():
                for total in sums:
                    total[resource] = min(total.get(resource, 0) + amount, LARGEST_AMOUNT)
        asked = resource_scores.asking(wanted, self._args.scoring_strategy.resources, nonzero=True)
        asked = tuple(resource._replace(amount=to_come.get(resource.name, 0)) for resource in asked)
        return resource_scores.score_of_many(self._placement_rating, asked, cluster, placement.nodes)

    def scored_requests(self, pod: PodInfo) -> Mapping[str, int]:
        """What the pod is taken to use where scores count: containers that ask for no cpu or memory use some."""
        return requests_in(pod.spec, unsaid=UNSAID, pod_level=self._gates.pod_level_resources)

    def _asking(self, pod: PodInfo) -> Asking:
        scratch = pod.shape.scratch
        found = scratch.get(self._asking_key)
        if isinstance(found, tuple):
            return found
        resources = self._args.scoring_strategy.resources
        asked = scratch[self._asking_key] = resource_scores.asking(self.scored_requests(pod), resources, nonzero=True)
        return asked

    # Wake

    def wakes(self) -> Sequence[Wake]:
        gates = self._gates
        return resource_hints.wakes(self.requests, resizes=gates.in_place_resize, deferred=gates.resize_preemption)


def reason_of(resource: str) -> str:
    return "Too many pods" if resource == PODS else f"Insufficient {resource}"


def _rejections(resource: str, short: NodeMask, beyond: NodeMask) -> Iterator[Rejection]:
    """Nodes that are short, told apart by whether evicting pods could help."""
    if resource == PODS or not (beyond & short).any():
        yield Rejection(reason_of(resource), short)
        return
    resolvable: NodeMask = short & np.logical_not(beyond)
    if resolvable.any():
        yield Rejection(reason_of(resource), resolvable)
    yield Rejection(reason_of(resource), short & beyond, is_unresolvable=True)


_PLUGIN = NodeResourcesFit()
_pre_filter: PreFilter = _PLUGIN
_filter: Filter = _PLUGIN
_pre_score: PreScore = _PLUGIN
_score: Score = _PLUGIN
_at_one_node: AtOneNode = _PLUGIN
_placement_score: PlacementScore = _PLUGIN
_wakes: Wakes = _PLUGIN
