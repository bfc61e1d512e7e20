"""Soft constraints: the fewer matching pods a node's domains have, the better the node.

The arithmetic is kube-scheduler's to the last bit that can show: floating point sums in the order of the constraints,
rounded half away from zero, then brought to 0..100 in whole numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import numpy.typing as npt

from muster.cluster.columns import ABSENT, NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import MAX_SCORE, NodeScores
from muster.placement.plugins.topology_spread.constraints import (
    HOSTNAME,
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


@dataclass(frozen=True, slots=True, eq=False)
class Leaning:
    """One soft constraint: matching pods in each domain of the candidates, and how much they weigh."""

    constraint: Constraint
    places: Places
    counts: npt.NDArray[np.float64]
    """[place] → matching pods on counted nodes of the domain; for host names, whose domains are nodes, [slot]."""
    domains: npt.NDArray[np.intp]
    """Places of the candidates; none for host names."""
    weight: float
    """Grows with the number of domains: pods in many small domains must not count less than in few large ones."""

    def share(self) -> npt.NDArray[np.float64]:
        """[slot] → what the constraint adds to the score. Nothing for nodes without the label."""
        found = self.counts * self.weight
        found += self.constraint.max_skew - 1  # waters differences down: the more skew is fine, the less they matter
        if self.constraint.topology_key == HOSTNAME:
            found[self.places == NOWHERE] = 0.0
            return found
        found[NOWHERE] = 0.0
        return found.take(self.places)


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
        places = [places_of(constraint.topology_key, cluster) for constraint in constraints]
        labelled = with_all_keys(places, cluster) if needs_all_keys else cluster.exists[: cluster.width]
        candidates = feasible & labelled
        ignored = feasible & ~labelled
        self.ignored = ignored if ignored.any() else None
        counted = Counted(pod, cluster, among=labelled)
        self.leanings = [
            _leaning(constraint, found, candidates, counted.nodes(constraint), pod.namespace, cluster)
            for constraint, found in zip(constraints, places, strict=True)
        ]

    def scores(self) -> NodeScores:
        """[slot] → the more matching pods around, the more: `normalized` turns it round."""
        first, *others = self.leanings
        total = first.share()
        for leaning in others:
            total += leaning.share()
        # Half away from zero, as Go rounds. Adding a half could itself round up only below one half, where no score
        # but 0 is, and beyond 2**52.
        total += 0.5
        rounded: NodeScores = np.floor(total, out=total).astype(np.int64)
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
            {value: int(leaning.counts[place]) for place, value in texts(leaning.domains.tolist(), cluster).items()}
            for leaning in self.leanings
        ]

    @property
    def weights(self) -> list[float]:
        return [leaning.weight for leaning in self.leanings]


def _leaning(
    constraint: Constraint,
    places: Places,
    candidates: NodeMask,
    counted: NodeMask,
    namespace: str,
    cluster: ClusterState,
) -> Leaning:
    pods = matching_pods(constraint, namespace, cluster)
    if constraint.topology_key == HOSTNAME:
        nothing = np.zeros(0, dtype=np.intp)
        return Leaning(constraint, places, pods.astype(np.float64), nothing, _weight(int(candidates.sum())))
    counts, domains = sums(places, counted, pods), occupied(places, candidates)
    empty = cluster.label_values.get("", ABSENT) - ABSENT
    if empty != NOWHERE and empty < len(counts):
        # Nodes without the label are one domain with those whose value is empty: Go's maps do not tell them apart.
        counts[[NOWHERE, empty]] = counts[NOWHERE] + counts[empty]
        if empty in domains:
            domains = domains[domains != NOWHERE]
    return Leaning(constraint, places, counts, domains, _weight(len(domains)))


def _weight(domains: int) -> float:
    return log(domains + 2)
