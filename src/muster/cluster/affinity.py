"""`AffinityIndex`: which terms of inter-pod affinity the pods on nodes have, and how many pods with each are where.

Thousands of pods share few terms. A pod that is to be placed asks which terms select it; only those that name one of
its labels are looked at, and the answer is remembered for all pods with its labels.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import TypeAlias

from muster.api.selectors import Operator
from muster.cluster.affinity_terms import NO_TERMS, AffinityTerm, PodTerms, terms_of
from muster.cluster.columns import Amounts, Codes
from muster.cluster.domains import Domains
from muster.cluster.pods import PodInfo

_REMEMBERED_CELLS = 1 << 22  # 32 MiB of sums, whatever the number of domains
_REMEMBERED_PODS = 4096
_FEW_EMPTY = 256

_Labels: TypeAlias = frozenset[tuple[str, str]]


class TermKind(Enum):
    AFFINITY = "required affinity"
    ANTI_AFFINITY = "required anti-affinity"
    PREFERRED = "preferred affinity or anti-affinity"


class TermCount:
    """One term, and how many pods that have it are on which slot."""

    __slots__ = ("_domains", "_sums", "counts", "kind", "term", "weight")

    def __init__(self, kind: TermKind, term: AffinityTerm, weight: int) -> None:
        self.kind = kind
        self.term = term
        self.weight = weight
        """Of a preferred term; negative for anti-affinity."""
        self.counts: dict[int, int] = {}
        """By slot, those with none left out."""
        self._domains: Domains | None = None
        self._sums: Amounts | None = None

    def add(self, slot: int, change: int) -> None:
        count = self.counts.get(slot, 0) + change
        if count:
            self.counts[slot] = count
        else:
            del self.counts[slot]
        if self._sums is not None and self._domains is not None:
            domain = self._domains.of[slot] if slot < len(self._domains.of) else self._domains.count
            if domain != self._domains.count:
                self._sums[domain] += change

    def sums(self, domains: Domains) -> Amounts:
        """[domain] → pods with the term. Kept true as pods come and go: do not write, do not keep."""
        if self._sums is None or self._domains is not domains:
            self._domains, self._sums = domains, domains.sparse_sums(self.counts)
        return self._sums

    def forget_sums(self) -> None:
        self._domains = self._sums = None


_Key: TypeAlias = tuple[TermKind, int, AffinityTerm]


class AffinityIndex:
    """A `PodObserver`."""

    def __init__(self) -> None:
        self.version = 0
        """Grows when a term gets its first pod: pods that no term concerned before may be concerned now."""
        self._terms: dict[_Key, TermCount] = {}
        self._of_pods: dict[PodTerms, tuple[TermCount, ...]] = {}
        self._by_label: dict[tuple[str, str], list[TermCount]] = {}
        """Terms by a label that a pod must have to be selected: any pod that they select has one of those."""
        self._any_label: list[TermCount] = []
        self._live = 0
        self._towards: dict[tuple[str, _Labels, _Labels], tuple[TermCount, ...]] = {}
        self._domains: dict[str, Domains] = {}
        self._domains_version = -1
        self._summed: dict[TermCount, int] = {}
        self._summed_cells = 0

    def __iter__(self) -> Iterator[TermCount]:
        return (found for found in self._terms.values() if found.counts)

    @property
    def has_terms(self) -> bool:
        """Whether any pod has a term. If none has, the labels of a pod do not matter to where it may go."""
        return self._live > 0

    def pod_assigned(self, pod: PodInfo, slot: int) -> None:
        terms = terms_of(pod)
        if terms is NO_TERMS:
            return
        for found in self._counts_of(terms):
            if not found.counts:
                self._live += 1
                self.version += 1
            found.add(slot, 1)

    def pod_released(self, pod: PodInfo, slot: int) -> None:
        terms = terms_of(pod)
        if terms is NO_TERMS:
            return
        for found in self._counts_of(terms):
            found.add(slot, -1)
            if not found.counts:
                self._live -= 1
        empty = len(self._terms) - self._live
        if empty > _FEW_EMPTY and empty > self._live:
            self._drop_empty()

    def towards(self, pod: PodInfo, namespace_labels: Mapping[str, str]) -> Sequence[TermCount]:
        """Terms that select the pod. Some may be left without pods."""
        if not self._live:
            return ()
        key = (pod.namespace, frozenset(pod.labels.items()), frozenset(namespace_labels.items()))
        found = self._towards.get(key)
        if found is None:
            if len(self._towards) >= _REMEMBERED_PODS:
                self._towards.clear()
            found = self._towards[key] = tuple(self._find(pod, namespace_labels))
        return found

    def domains(self, key: str, version: int, codes: Codes | None, width: int) -> Domains:
        """The domains of a topology key. `version`: of the nodes; `codes`: of the label's values by slot."""
        if version != self._domains_version:
            self._domains.clear()
            self._domains_version = version
        found = self._domains.get(key)
        if found is None:
            found = self._domains[key] = Domains(codes, width)
        return found

    def sums(self, found: TermCount, domains: Domains) -> Amounts:
        """As `TermCount.sums`; those asked for longest ago are forgotten."""
        self._summed_cells -= self._summed.pop(found, 0)
        self._summed[found] = domains.count
        self._summed_cells += domains.count
        while self._summed_cells > _REMEMBERED_CELLS and len(self._summed) > 1:
            oldest = next(iter(self._summed))
            self._summed_cells -= self._summed.pop(oldest)
            oldest.forget_sums()
        return found.sums(domains)

    def _find(self, pod: PodInfo, namespace_labels: Mapping[str, str]) -> Iterator[TermCount]:
        by_label = self._by_label
        candidates = dict.fromkeys(found for label in pod.labels.items() for found in by_label.get(label, ()))
        for found in (*self._any_label, *candidates):
            if found.term.selects(pod.namespace, pod.labels, namespace_labels):
                yield found

    def _counts_of(self, terms: PodTerms) -> tuple[TermCount, ...]:
        found = self._of_pods.get(terms)
        if found is None:
            found = self._of_pods[terms] = (
                *(self._count(TermKind.AFFINITY, term, 0) for term in terms.affinity),
                *(self._count(TermKind.ANTI_AFFINITY, term, 0) for term in terms.anti_affinity),
                *(self._count(TermKind.PREFERRED, weighted.term, weighted.weight) for weighted in terms.preferred),
            )
        return found

    def _count(self, kind: TermKind, term: AffinityTerm, weight: int) -> TermCount:
        key = (kind, weight, term)
        found = self._terms.get(key)
        if found is None:
            found = self._terms[key] = TermCount(kind, term, weight)
            self._enter(found)
            self._towards.clear()
        return found

    def _enter(self, found: TermCount) -> None:
        listed = [r for r in found.term.selector.requirements if r.operator is Operator.IN]
        if not listed:
            self._any_label.append(found)
            return
        narrowest = min(listed, key=lambda requirement: len(requirement.values))
        for value in narrowest.values:
            self._by_label.setdefault((narrowest.key, value), []).append(found)

    def _drop_empty(self) -> None:
        """Terms that name one job (its uid, its name) would be kept for ever otherwise."""
        for found in self._terms.values():
            if not found.counts:
                self._summed_cells -= self._summed.pop(found, 0)
        self._terms = {key: found for key, found in self._terms.items() if found.counts}
        self._of_pods.clear()
        self._towards.clear()
        self._by_label.clear()
        self._any_label.clear()
        for found in self._terms.values():
            self._enter(found)
