"""Soft constraints: the fewer matching pods a node's domains have, the better the node.

The arithmetic is kube-scheduler's to the last bit that can show: floating point sums in the order of the constraints,
rounded half away from zero, then brought to 0..100 in whole numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import numpy.typing as npt

from muster.cluster.columns import ABSENT, Amounts, NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import MAX_SCORE, NodeScores
from muster.placement.plugins.topology_spread.constraints import (
    HOSTNAME,
    Constraint,
    Counted,
    Positions,
    matching_pods,
    texts,
    values_of,
    with_all_keys,
)


@dataclass(frozen=True, slots=True, eq=False)
class Leaning:
    """One soft constraint: matching pods in each domain of the candidates, and how much they weigh."""

    constraint: Constraint
    values: Positions
    counts: Amounts
    """[code] → matching pods on counted nodes of the domain; for host names, whose domains are nodes, [slot]."""
    domains: npt.NDArray[np.intp]
    """Codes of the values that candidates have; none for host names. ABSENT: some have no label and count as one."""
    weight: float
    """Grows with the number of domains: pods in many small domains must not count less than in few large ones."""

    def add_to(self, total: npt.NDArray[np.float64]) -> None:
        share = self.counts * self.weight
        share += self.constraint.max_skew - 1  # waters differences down: the more skew is fine, the less they matter
        if self.constraint.topology_key == HOSTNAME:
            share[self.values == ABSENT] = 0.0
            total += share
        else:
            share[ABSENT] = 0.0
            total += share[self.values]


class SoftState:
    """How the pods that a pod's soft constraints select are spread over the domains of the nodes that may take it."""

    __slots__ = ("constraints", "ignored", "leanings")

    def __init__(
        self,
        constraints: Sequence[Constraint],
        pod: PodInfo,
        cluster: ClusterState,
        feasible: NodeMask,
        *,
        needs_all_keys: bool,
    ) -> None:
        """`needs_all_keys`: nodes that lack a label for one of the topologies count for none, and get the least."""
        self.constraints = constraints
        values = [values_of(constraint.topology_key, cluster) for constraint in constraints]
        labelled = with_all_keys(values, cluster) if needs_all_keys else cluster.exists[: cluster.width]
        candidates = np.flatnonzero(feasible & labelled)
        ignored = feasible & ~labelled
        self.ignored = ignored if ignored.any() else None
        counted = Counted(pod, cluster, among=labelled)
        self.leanings = [
            _leaning(constraint, codes, candidates, counted.nodes(constraint), pod.namespace, cluster)
            for constraint, codes in zip(constraints, values, strict=True)
        ]

    def scores(self) -> NodeScores:
        """[slot] → the more matching pods around, the more: `normalized` turns it round."""
        total = np.zeros(len(self.leanings[0].values), dtype=np.float64)
        for leaning in self.leanings:
            leaning.add_to(total)
        whole = np.trunc(total)
        rounded: NodeScores = (whole + (total - whole >= 0.5)).astype(np.int64)
        if self.ignored is not None:
            rounded[self.ignored] = 0
        return rounded

    def normalized(self, scores: NodeScores, slots: npt.NDArray[np.intp]) -> NodeScores:
        ignored = self.ignored[slots] if self.ignored is not None else None
        rated = scores if ignored is None else scores[~ignored]
        if not rated.size:
            return np.zeros_like(scores)
        highest, lowest = int(rated.max()), int(rated.min())
        if highest == 0:
            result = np.full_like(scores, MAX_SCORE)
        else:
            result = MAX_SCORE * (highest + lowest - scores) // highest
        if ignored is not None:
            result[ignored] = 0
        return result

    def pod_counts(self, cluster: ClusterState) -> list[dict[str, int]]:
        """By constraint: matching pods by topology value of the candidates; empty for host names."""
        return [
            {
                value: int(leaning.counts[code])
                for code, value in {**texts(leaning.domains.tolist(), cluster), **_nameless(leaning)}.items()
            }
            for leaning in self.leanings
        ]

    @property
    def weights(self) -> list[float]:
        return [leaning.weight for leaning in self.leanings]


def _leaning(
    constraint: Constraint,
    values: Positions,
    candidates: npt.NDArray[np.intp],
    counted: NodeMask,
    namespace: str,
    cluster: ClusterState,
) -> Leaning:
    pods = matching_pods(constraint, namespace, cluster)
    if constraint.topology_key == HOSTNAME:
        nothing = np.zeros(0, dtype=np.intp)
        return Leaning(constraint, values, pods, nothing, _weight(len(candidates)))
    # A node without the label is in the domain of the empty value, with those that have it so, as in Go's maps.
    domain_of = values
    empty = cluster.label_values.get("")
    if empty is not None:
        domain_of = np.where(values == ABSENT, empty, values)
    places = max(int(domain_of.max(initial=ABSENT)), int(values.max(initial=ABSENT))) + 2
    slots = np.flatnonzero(counted)
    here = domain_of[slots] % places  # ABSENT becomes the last place
    counts = np.bincount(here, weights=pods[slots], minlength=places).astype(np.int64)
    is_domain = np.zeros(places, dtype=np.bool_)
    is_domain[domain_of[candidates]] = True
    domains = np.flatnonzero(is_domain)
    domains[domains == places - 1] = ABSENT
    return Leaning(constraint, values, counts, domains, _weight(len(domains)))


def _weight(domains: int) -> float:
    return log(domains + 2)


def _nameless(leaning: Leaning) -> dict[int, str]:
    return {ABSENT: ""} if ABSENT in leaning.domains else {}
