"""Hard constraints: how many matching pods each domain has, and which nodes one more pod would make too uneven.

Counts follow single pods that come and go, so that placing many like pods counts the cluster once.
"""

from collections.abc import Sequence

import numpy as np

from muster.cluster.columns import Amounts, NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import Rejection
from muster.placement.plugins.topology_spread.constraints import (
    NOWHERE,
    Constraint,
    Counted,
    Places,
    matching_pods,
    occupied,
    places_of,
    sums,
    texts,
    with_all_keys,
)

TOO_UNEVEN = "node(s) didn't match pod topology spread constraints"
NO_LABEL = f"{TOO_UNEVEN} (missing required label)"
NO_DOMAIN = 2**31 - 1


class Spread:
    """One hard constraint: its domains, and the pods that it counts in each."""

    __slots__ = ("constraint", "counted", "counts", "domains", "own", "places", "unlabelled")

    def __init__(self, constraint: Constraint, pod: PodInfo, places: Places, counted: NodeMask, pods: Amounts) -> None:
        self.constraint = constraint
        self.own = int(constraint.selector.matches(pod.labels))
        """What the pod itself would add to the domain it goes to."""
        self.places = places
        self.counted = counted
        self.counts: Amounts = sums(places, counted, pods).astype(np.int64)
        """[place] → matching pods on counted nodes of the domain; none at places that are no domain."""
        self.domains = occupied(places, counted)
        """Places of counted nodes."""
        unlabelled: NodeMask = places == NOWHERE
        self.unlabelled = unlabelled if unlabelled.any() else None

    @property
    def least(self) -> int:
        """Pods in the emptiest domain. With fewer domains than the constraint wants, one that is yet to come is."""
        if len(self.domains) < self.constraint.min_domains:
            return 0
        return int(self.counts.take(self.domains).min(initial=NO_DOMAIN))

    def too_uneven(self) -> NodeMask | None:
        """Nodes in domains that have too many already; None where no domain has."""
        full = self.counts > self.constraint.max_skew + self.least - self.own
        if not full.any():
            return None
        nodes: NodeMask = full.take(self.places)
        return nodes


class HardState:
    """How the pods that a pod's hard constraints select are spread."""

    __slots__ = ("constraints", "spreads")

    def __init__(self, constraints: Sequence[Constraint], pod: PodInfo, cluster: ClusterState) -> None:
        self.constraints = constraints
        places = [places_of(constraint.topology_key, cluster) for constraint in constraints]
        counted = Counted(pod, cluster, among=with_all_keys(places, cluster))
        self.spreads = [
            Spread(constraint, pod, found, counted.nodes(constraint), matching_pods(constraint, pod.namespace, cluster))
            for constraint, found in zip(constraints, places, strict=True)
        ]

    def change(self, other: PodInfo, slot: int, by: int) -> None:
        """`other`, of the same namespace and not terminating, came to the node or left it."""
        for spread in self.spreads:
            if spread.counted[slot] and spread.constraint.counts(other.labels):
                spread.counts[spread.places[slot]] += by

    def rejections(self) -> list[Rejection]:
        """A node is told the first thing that is wrong with it, constraint by constraint: where pods that could be
        evicted make it too uneven, a label that it lacks for a later constraint does not count."""
        unlabelled: NodeMask | None = None
        uneven: NodeMask | None = None
        for spread in self.spreads:
            unlabelled = _joined(unlabelled, spread.unlabelled, unless=uneven)
            uneven = _joined(uneven, spread.too_uneven(), unless=unlabelled)
        found = []
        if unlabelled is not None:
            found.append(Rejection(NO_LABEL, unlabelled, is_unresolvable=True))
        if uneven is not None:
            found.append(Rejection(TOO_UNEVEN, uneven))
        return found

    def matches(self, cluster: ClusterState) -> list[dict[str, int]]:
        """By constraint: matching pods by topology value."""
        return [
            {value: int(spread.counts[place]) for place, value in texts(spread.domains.tolist(), cluster).items()}
            for spread in self.spreads
        ]

    def critical_paths(self, cluster: ClusterState) -> list[list[tuple[str, int]]]:
        """By constraint: the two emptiest domains with their matching pods; `("", NO_DOMAIN)` where there is none."""
        paths = []
        for found in self.matches(cluster):
            least = sorted(found.items(), key=lambda item: (item[1], item[0]))[:2]
            paths.append([*least, *[("", NO_DOMAIN)] * (2 - len(least))])
        return paths


def _joined(mask: NodeMask | None, more: NodeMask | None, unless: NodeMask | None) -> NodeMask | None:
    if more is None:
        return mask
    if unless is not None:
        more = more & ~unless
    return more if mask is None else mask | more
