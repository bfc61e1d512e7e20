"""NodeAffinity: the nodes that a pod's nodeSelector and node affinity allow, and those that it would rather have."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from muster.api import core
from muster.api.errors import FieldError
from muster.api.meta import Resource
from muster.api.raw import Document
from muster.api.reading import read
from muster.cluster.columns import NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import (
    SKIP,
    Action,
    Code,
    Filter,
    Hint,
    NodeScores,
    Normalize,
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
from muster.placement.plugins import changes
from muster.placement.plugins.node_selection import NAME_FIELD, Selection, Term, compile_term, required, selector_terms
from muster.placement.plugins.scores import default_normalize_score

REASON = "node(s) didn't match Pod's node affinity/selector"
REASON_ENFORCED = "node(s) didn't match scheduler-enforced node affinity"
REASON_CONFLICT = "pod affinity terms conflict"
_CONFLICT = Status(Code.UNRESOLVABLE, (REASON_CONFLICT,))


@dataclass(frozen=True, slots=True)
class NodeAffinityArgs:
    added_affinity: core.NodeAffinity | None = None
    """Holds for every pod of the profile, besides the pod's own."""

    @classmethod
    def from_document(cls, document: Document) -> Self | list[FieldError]:
        errors = [
            FieldError(name, "FieldValueForbidden", "unknown field; NodeAffinity has addedAffinity")
            for name in document
            if name not in ("apiVersion", "kind", "addedAffinity")
        ]
        if document.get("addedAffinity") is None:
            return errors or cls()
        affinity = read(core.NodeAffinity, document["addedAffinity"], "addedAffinity")
        if isinstance(affinity, list):
            return [*errors, *affinity]
        for error in core.validate_affinity("", core.Affinity(node_affinity=affinity)):
            path = error.path.replace(".nodeAffinity", "addedAffinity", 1)
            errors.append(FieldError(path, error.reason, error.message))
        return errors or cls(affinity)


@dataclass(frozen=True, slots=True)
class _Preference:
    term: Term
    weight: int


class NodeAffinity:
    name: ClassVar[str] = "NodeAffinity"
    reads: ClassVar[Reads] = Reads.NODES

    def __init__(self, args: NodeAffinityArgs | None = None, *, resize_preemption: bool = False) -> None:
        """`resize_preemption`: pods that wait for a resize on their own node are not judged again."""
        self._skips_resizes = resize_preemption
        added = args.added_affinity if args else None
        enforced = added.required_during_scheduling_ignored_during_execution if added else None
        self._enforced = Selection(terms=selector_terms(enforced))
        self._added = _preferences(added)

    # Filtering

    def pre_filter(self, pod: PodInfo, cluster: ClusterState) -> Prepared:
        if self._says_nothing(pod):
            return Prepared(SKIP)
        names = _pinned(pod.spec.affinity)
        if names is None:
            return Prepared()
        if not names:
            return Prepared(_CONFLICT)
        mask = cluster.mask()
        mask[[cluster.slots[name] for name in names if name in cluster.slots]] = True
        return Prepared(nodes=mask)

    def filter(self, pod: PodInfo, cluster: ClusterState, state: object) -> Sequence[Rejection]:
        if self._says_nothing(pod):
            return ()
        rejections: list[Rejection] = []
        left = cluster.exists[: cluster.width]
        if not self._enforced.is_everything:
            allowed = self._enforced.nodes(cluster)
            rejections.append(Rejection(REASON_ENFORCED, ~allowed, is_unresolvable=True))
            left = left & allowed
        own = required(pod)
        if not own.is_everything:
            rejections.append(Rejection(REASON, left & ~own.nodes(cluster), is_unresolvable=True))
        return rejections

    def _says_nothing(self, pod: PodInfo) -> bool:
        if self._skips_resizes and pod.has_deferred_resize:
            return True
        return self._enforced.is_everything and required(pod).is_everything

    # Scoring

    def pre_score(self, pod: PodInfo, cluster: ClusterState, feasible: NodeMask) -> Prepared:
        preferences = self._preferred(pod)
        return Prepared(state=self._weigh(preferences, cluster)) if preferences else Prepared(SKIP)

    def score(self, pod: PodInfo, cluster: ClusterState, state: object) -> NodeScores:
        """The weights of all preferences that a node meets, added up."""
        return state if isinstance(state, np.ndarray) else self._weigh(self._preferred(pod), cluster)

    def normalize(self, scores: NodeScores, feasible: npt.NDArray[np.intp], state: object) -> NodeScores:
        return default_normalize_score(scores)

    def _preferred(self, pod: PodInfo) -> Sequence[_Preference]:
        scratch = pod.shape.scratch
        found = scratch.get(self.name)
        if not isinstance(found, tuple):
            affinity = pod.spec.affinity
            found = scratch[self.name] = _preferences(affinity.node_affinity if affinity else None)
        return (*self._added, *found)

    def _weigh(self, preferences: Iterable[_Preference], cluster: ClusterState) -> NodeScores:
        scores = np.zeros(cluster.width, dtype=np.int64)
        for preference in preferences:
            scores[preference.term.nodes(cluster)] += preference.weight
        return scores

    # Waking

    def wakes(self) -> Sequence[Wake]:
        return (Wake("Node", frozenset({Action.ADD, Action.UPDATE_NODE_LABEL}), self.after_node_change),)

    def after_node_change(
        self, pod: PodInfo, old: Resource | None, new: Resource | None, _cluster: ClusterState
    ) -> Hint:
        before, node = changes.after(core.Node, old, new)
        was_allowed = before is not None and self._allows(pod, before)
        return Hint.QUEUE if self._allows(pod, node) and not was_allowed else Hint.SKIP

    def _allows(self, pod: PodInfo, node: core.Node) -> bool:
        return self._enforced.matches(node) and required(pod).matches(node)


def _preferences(affinity: core.NodeAffinity | None) -> tuple[_Preference, ...]:
    listed = affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
    compiled = ((compile_term(preferred.preference), preferred.weight or 0) for preferred in listed)
    return tuple(_Preference(term, weight) for term, weight in compiled if term is not None and weight)


def _pinned(affinity: core.Affinity | None) -> set[str] | None:
    """The only nodes worth looking at: those that the terms name, where every term names some. None: any node."""
    node_affinity = affinity.node_affinity if affinity else None
    selector = node_affinity.required_during_scheduling_ignored_during_execution if node_affinity else None
    if selector is None or not selector.node_selector_terms:
        return None
    names: set[str] = set()
    for term in selector.node_selector_terms:
        wanted = [
            set(requirement.values)
            for requirement in term.match_fields
            if requirement.key == NAME_FIELD and requirement.operator == "In"
        ]
        if not wanted:
            return None
        names |= set.intersection(*wanted)
    return names


_: Filter = NodeAffinity()
_pre_filter: PreFilter = NodeAffinity()
_pre_score: PreScore = NodeAffinity()
_score: Score = NodeAffinity()
_normalize: Normalize = NodeAffinity()
_wakes: Wakes = NodeAffinity()
