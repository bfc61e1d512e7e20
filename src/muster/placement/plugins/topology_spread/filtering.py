"""Hard constraints: how many matching pods each domain has, and which nodes one more pod would make too uneven.

Counts are vectors over the codes of label values, and a node reads its own by one `take`. They follow single pods that
come and go, so that placing many like pods counts the cluster once.
"""

from collections.abc import Sequence

import numpy as np

from muster.cluster.columns import ABSENT, Amounts, NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import Rejection
from muster.placement.plugins.topology_spread.constraints import (
    Constraint,
    Counted,
    Positions,
    matching_pods,
    texts,
    values_of,
    with_all_keys,
)

TOO_UNEVEN = "node(s) didn't match pod topology spread constraints"
NO_LABEL = f"{TOO_UNEVEN} (missing required label)"
NO_DOMAIN = 2**31 - 1


class Spread:
    """One hard constraint: its domains, and the pods that it counts in each."""

    __slots__ = ("constraint", "counted", "counts", "domains", "own", "unlabelled", "values")

    def __init__(
        self, constraint: Constraint, pod: PodInfo, values: Positions, counted: NodeMask, pods: Amounts
    ) -> None:
        self.constraint = constraint
        self.own = int(constraint.selector.matches(pod.labels))
        """What the pod itself would add to the domain it goes to."""
        self.values = values
        self.counted = counted
        unlabelled: NodeMask = values == ABSENT
        self.unlabelled = unlabelled if unlabelled.any() else None
        slots = np.flatnonzero(counted)
        here = values[slots]
        places = int(values.max(initial=ABSENT)) + 2  # one more than there are codes: the last is that of ABSENT
        self.counts: Amounts = np.bincount(here, weights=pods[slots], minlength=places).astype(np.int64)
        """[code] → matching pods on counted nodes of the domain; zero for values that are no domain."""
        is_domain = np.zeros(places, dtype=np.bool_)
        is_domain[here] = True
        self.domains = np.flatnonzero(is_domain)
        """Codes of the values that counted nodes have."""

    @property
    def least(self) -> int:
        """Pods in the emptiest domain. With fewer domains than the constraint wants, one that is yet to come is."""
        if len(self.domains) < self.constraint.min_domains:
            return 0
        return int(self.counts[self.domains].min(initial=NO_DOMAIN))

    def too_uneven(self) -> NodeMask | None:
        """Nodes in domains that have too many already; None where no domain has."""
        full = self.counts > self.constraint.max_skew + self.least - self.own
        full[ABSENT] = False
        if not full.any():
            return None
        nodes: NodeMask = full[self.values]
        return nodes


class HardState:
    """How the pods that a pod's hard constraints select are spread."""

    __slots__ = ("constraints", "spreads")

    def __init__(self, constraints: Sequence[Constraint], pod: PodInfo, cluster: ClusterState) -> None:
        self.constraints = constraints
        values = [values_of(constraint.topology_key, cluster) for constraint in constraints]
        counted = Counted(pod, cluster, among=with_all_keys(values, cluster))
        self.spreads = [
            Spread(constraint, pod, codes, counted.nodes(constraint), matching_pods(constraint, pod.namespace, cluster))
            for constraint, codes in zip(constraints, values, strict=True)
        ]

    def change(self, other: PodInfo, slot: int, by: int) -> None:
        """`other`, of the same namespace and not terminating, came to the node or left it."""
        for spread in self.spreads:
            if spread.counted[slot] and spread.constraint.counts(other.labels):
                spread.counts[spread.values[slot]] += by

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
            {value: int(spread.counts[code]) for code, value in texts(spread.domains.tolist(), cluster).items()}
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
