"""Required affinity and anti-affinity as counts of pods by topology domain, for one class of pods.

Three counts decide: pods that all of the pod's affinity terms select, pods that one of its anti-affinity terms selects,
and pods with an anti-affinity term that selects the pod. Each is kept by topology key; a pod that comes or goes
changes one number in each, and masks are made again only when a number became or ceased to be zero.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from muster.cluster.affinity import TermKind
from muster.cluster.affinity_terms import AffinityTerm, PodTerms, selection, terms_of
from muster.cluster.columns import Amounts, NodeMask
from muster.cluster.domains import Domains
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import Rejection

REASON_AFFINITY = "node(s) didn't match pod affinity rules"
REASON_ANTI_AFFINITY = "node(s) didn't match pod anti-affinity rules"
REASON_EXISTING = "node(s) didn't satisfy existing pods anti-affinity rules"


def domains_of(key: str, cluster: ClusterState) -> Domains:
    return cluster.affinity.domains(key, cluster.nodes_version, cluster.labelled(key), cluster.width)


class DomainCounts:
    """Pods by domain of one topology key. Pods on nodes without the label are not counted."""

    __slots__ = ("counts", "domains", "total")

    def __init__(self, domains: Domains) -> None:
        self.domains = domains
        self.counts: Amounts = domains.zeros()
        self.total = 0

    def add_all(self, sums: Amounts) -> None:
        self.counts += sums
        self.total += int(sums.sum())

    def add(self, slot: int, change: int) -> bool:
        """Whether the domain has become, or ceased to be, one without pods."""
        domain = self.domains.of[slot]
        if domain == self.domains.count:
            return False
        before = int(self.counts[domain])
        self.counts[domain] = before + change
        self.total += change
        return (before == 0) != (before + change == 0)

    def near(self) -> NodeMask:
        """Nodes of the domains with pods."""
        near: NodeMask = (self.counts > 0)[self.domains.of]
        return near


class FilterState:
    """What PreFilter finds out for a pod, and follows pods from then on."""

    def __init__(self, pod: PodInfo, cluster: ClusterState, terms: PodTerms) -> None:
        self._pod, self._cluster = pod, cluster
        self._namespace_labels = cluster.namespaces.labels_of(pod.namespace)
        self._affinity = selection(terms.affinity, cluster.namespaces) if terms.affinity else None
        self._affinity_keys = Counter(term.topology_key for term in terms.affinity)
        self._selects_itself = self._affinity is not None and self._affinity(pod.namespace, pod.labels)
        self._anti_affinity = [
            (selection((term,), cluster.namespaces), term.topology_key) for term in terms.anti_affinity
        ]
        self.near: dict[str, DomainCounts] = {}
        """By topology key: pods that all affinity terms select, once for each term with the key."""
        self.hated: dict[str, DomainCounts] = {}
        """By topology key: pods that an anti-affinity term with the key selects, once for each such term."""
        self.hating: dict[str, DomainCounts] = {}
        """By topology key: pods on nodes, once for each of their anti-affinity terms that selects the pod."""
        self._hating_keys: dict[PodTerms, tuple[str, ...]] = {}
        self._rejections: tuple[Rejection, ...] | None = None
        self._count()

    @property
    def is_needed(self) -> bool:
        """Whether any node can be ruled out, as things are."""
        return bool(self._affinity or self._anti_affinity or any(counts.total for counts in self.hating.values()))

    def follow(self, other: PodInfo, slot: int, change: int) -> None:
        """Another pod came to the slot (`change` 1), or left it (-1)."""
        changed = False
        if self._affinity is not None and self._affinity(other.namespace, other.labels):
            for key, terms in self._affinity_keys.items():
                changed |= self.near[key].add(slot, change * terms)
        for selected, key in self._anti_affinity:
            if selected(other.namespace, other.labels):
                changed |= self.hated[key].add(slot, change)
        for key in self._keys_of_hating(terms_of(other)):
            changed |= self._at(self.hating, key).add(slot, change)
        if changed:
            self._rejections = None

    def rejections(self) -> Sequence[Rejection]:
        """A node is in one of them at most: the first that holds, in Kubernetes' order. Masks are not to be written."""
        if self._rejections is None:
            self._rejections = tuple(self._reject())
        return self._rejections

    def _count(self) -> None:
        cluster, width = self._cluster, self._cluster.width
        if self._affinity is not None:
            by_slot = cluster.label_sets.counts_by_slot(self._affinity, width, self._affinity)
            for key, terms in self._affinity_keys.items():
                counts = self._at(self.near, key)
                counts.add_all(counts.domains.sums(by_slot) * terms)
        for selected, key in self._anti_affinity:
            counts = self._at(self.hated, key)
            counts.add_all(counts.domains.sums(cluster.label_sets.counts_by_slot(selected, width, selected)))
        for found in cluster.affinity.towards(self._pod, self._namespace_labels):
            if found.kind is TermKind.ANTI_AFFINITY and found.counts:
                counts = self._at(self.hating, found.term.topology_key)
                counts.add_all(cluster.affinity.sums(found, counts.domains))

    def _at(self, counts: dict[str, DomainCounts], key: str) -> DomainCounts:
        found = counts.get(key)
        if found is None:
            found = counts[key] = DomainCounts(domains_of(key, self._cluster))
        return found

    def _keys_of_hating(self, terms: PodTerms) -> tuple[str, ...]:
        if not terms.anti_affinity:
            return ()
        keys = self._hating_keys.get(terms)
        if keys is None:
            keys = self._hating_keys[terms] = tuple(
                term.topology_key for term in terms.anti_affinity if self._is_selected_by(term)
            )
        return keys

    def _is_selected_by(self, term: AffinityTerm) -> bool:
        return term.selects(self._pod.namespace, self._pod.labels, self._namespace_labels)

    def _reject(self) -> Iterable[Rejection]:
        left = self._cluster.exists[: self._cluster.width].copy()
        for reason, ruled_out, is_unresolvable in (
            (REASON_AFFINITY, self._far(), True),
            (REASON_ANTI_AFFINITY, _near_any(self.hated.values()), False),
            (REASON_EXISTING, _near_any(self.hating.values()), False),
        ):
            if ruled_out is None:
                continue
            rejected = ruled_out & left
            if rejected.any():
                left ^= rejected
                rejected.flags.writeable = False
                yield Rejection(reason, rejected, is_unresolvable)

    def _far(self) -> NodeMask | None:
        """Nodes that the affinity terms rule out: those that lack a topology key, and those of domains where no pod is
        that they select. Were the latter all nodes, the first pod of a group that wants to be together would wait for
        ever: a pod that its own terms select may go anywhere while they select no other."""
        if self._affinity is None:
            return None
        is_first = self._selects_itself and not any(counts.total for counts in self.near.values())
        far = self._cluster.mask()
        for counts in self.near.values():
            far |= counts.domains.outside if is_first else ~counts.near()
        return far


def _near_any(counts: Iterable[DomainCounts]) -> NodeMask | None:
    union: NodeMask | None = None
    for found in counts:
        if found.total:
            near = found.near()
            union = near if union is None else np.logical_or(union, near, out=union)
    return union
