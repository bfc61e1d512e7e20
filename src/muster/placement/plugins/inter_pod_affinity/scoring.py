"""Preferred affinity: every pod that a preference holds for adds its weight to the nodes near that pod."""

import numpy as np

from muster.cluster.affinity import TermKind
from muster.cluster.affinity_terms import PodTerms, selection
from muster.cluster.columns import Amounts
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import MAX_SCORE, NodeScores
from muster.placement.plugins.inter_pod_affinity.filtering import domains_of


class Weights:
    """Sums of weights by topology domain, for every topology key that a preference names."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._by_key: dict[str, Amounts] = {}

    @property
    def is_empty(self) -> bool:
        return not self._by_key

    def add(self, key: str, pods: Amounts, weight: int) -> None:
        """`pods`: by domain."""
        if not np.count_nonzero(pods):
            return
        known = self._by_key.get(key)
        if known is None:
            self._by_key[key] = pods * weight
        else:
            known += pods * weight

    def scores(self) -> NodeScores:
        total = np.zeros(self._cluster.width, dtype=np.int64)
        for key, weights in self._by_key.items():
            total += weights.take(domains_of(key, self._cluster).of)
        return total


def weigh(pod: PodInfo, cluster: ClusterState, terms: PodTerms, hard_weight: int) -> Weights:
    """Preferences of the pod for pods on nodes, and theirs for the pod. `hard_weight`: of their required affinity."""
    weights, index = Weights(cluster), cluster.affinity
    for weighted in terms.preferred:
        key = weighted.term.topology_key
        selected = selection((weighted.term,), cluster.namespaces)
        by_slot = cluster.label_sets.counts_by_slot(selected, cluster.width, selected)
        weights.add(key, domains_of(key, cluster).sums(by_slot), weighted.weight)
    for found in index.towards(pod, cluster.namespaces.labels_of(pod.namespace)):
        weight = {TermKind.PREFERRED: found.weight, TermKind.AFFINITY: hard_weight}.get(found.kind)
        if weight and found.counts:
            key = found.term.topology_key
            weights.add(key, index.sums(found, domains_of(key, cluster)), weight)
    return weights


def spread_out(scores: NodeScores) -> NodeScores:
    """From the least score, which becomes 0, to the greatest, which becomes 100."""
    if not scores.size:
        return scores
    least = scores.min()
    span = int(scores.max() - least)
    if not span:
        return np.zeros_like(scores)
    # In floating point as in Kubernetes, in the same order: 29 of 100 is 28 there as well.
    spread: NodeScores = (float(MAX_SCORE) * ((scores - least) / float(span))).astype(np.int64)
    return spread
