"""Which hosts may take the pods at all: by their taints, by nodeSelector and by node affinity; and which they prefer.

Asked for once for each way in which pods choose their nodes, and then remembered until a node changes. Only hosts are
asked: a leaf that is a rack has no taints and no labels of its own.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.api import core
from muster.api.selectors import Operator, Requirement
from muster.cluster.columns import ABSENT, Amounts, NodeMask
from muster.cluster.domains import Positions
from muster.cluster.state import ClusterState
from muster.quota.topology.requests import PlacementRequest
from muster.quota.topology.tree import Tree

NODE_SELECTOR: Final = "nodeSelector"
AFFINITY: Final = "affinity"
_DO_NOT_SCHEDULE: Final = frozenset({"NoSchedule", "NoExecute"})
_NAME_FIELD: Final = "metadata.name"
_REMEMBERED: Final = 512


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts:
    """[leaf] → what keeps the pods off it: a place in `reasons`, 0 for nothing."""

    reasons: tuple[str, ...]
    why: Amounts
    allowed: NodeMask | None
    """None: all."""
    preference: Amounts | None
    """[leaf] → the weights of the preferences that it meets. None: there are none."""


class LeafFilters:
    def __init__(self, tree: Tree, cluster: ClusterState, tolerations: tuple[core.Toleration, ...]) -> None:
        """`tolerations`: of the flavor, which every pod on it has."""
        self._tree = tree
        self._cluster = cluster
        self._tolerations = tolerations
        self._slots: Positions = tree.slots[tree.first_slot[:-1]]
        self._known: dict[Hashable, Verdicts] = {}

    def verdicts(self, request: PlacementRequest, *, with_preferences: bool) -> Verdicts:
        selector = tuple(sorted(request.node_selector.items())) if request.node_selector else ()
        key = (request.tolerations, selector, request.affinity, with_preferences)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[key] = self._judge(request, with_preferences)
        return found

    def _judge(self, request: PlacementRequest, with_preferences: bool) -> Verdicts:
        reasons, why = ["", NODE_SELECTOR, AFFINITY], np.zeros(self._tree.leaf_count, dtype=np.int64)
        if not self._tree.is_by_host:
            return Verdicts(tuple(reasons), why, None, None)
        affinity = request.affinity
        required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
        if required is not None:
            why[~self._any_term(required.node_selector_terms)] = reasons.index(AFFINITY)
        for key, value in (request.node_selector or {}).items():
            wanted = Requirement(key, Operator.IN, frozenset({value}))
            why[~self._labelled(wanted)] = reasons.index(NODE_SELECTOR)
        self._judge_taints((*request.tolerations, *self._tolerations), reasons, why)
        preferred = affinity.preferred_during_scheduling_ignored_during_execution if affinity else ()
        preference = self._preference(preferred) if preferred and with_preferences else None
        return Verdicts(tuple(reasons), why, None if not why.any() else why == 0, preference)

    def _judge_taints(self, tolerations: tuple[core.Toleration, ...], reasons: list[str], why: Amounts) -> None:
        codes = self._cluster.taint_code[self._slots]
        for code in np.unique(codes).tolist():
            taint = _untolerated(self._cluster.taint_sets[code], tolerations)
            if taint is not None:
                reason = f'taint "{_shown(taint)}"'
                if reason not in reasons:
                    reasons.append(reason)
                why[codes == code] = reasons.index(reason)

    def _preference(self, preferred: Iterable[core.PreferredSchedulingTerm]) -> Amounts:
        total = np.zeros(self._tree.leaf_count, dtype=np.int64)
        for one in preferred:
            total[self._any_term((one.preference,))] += one.weight or 0
        return total

    def _any_term(self, terms: Iterable[core.NodeSelectorTerm]) -> NodeMask:
        matching: NodeMask = np.zeros(self._tree.leaf_count, dtype=np.bool_)
        for term in terms:
            matching |= self._term(term)
        return matching

    def _term(self, term: core.NodeSelectorTerm) -> NodeMask:
        """All of its requirements hold. One without any matches nothing."""
        matching = np.full(self._tree.leaf_count, bool(term.match_expressions or term.match_fields))
        for expression in term.match_expressions:
            if expression.operator not in set(Operator):
                return np.zeros_like(matching)
            matching &= self._labelled(
                Requirement(expression.key, Operator(expression.operator), frozenset(expression.values))
            )
        for field in term.match_fields:
            matching &= self._named(field)
        return matching

    def _labelled(self, wanted: Requirement) -> NodeMask:
        """Asks each distinct value once, whatever the number of hosts that have it."""
        codes = self._cluster.labelled(wanted.key)
        if codes is None:
            return np.full(self._tree.leaf_count, wanted.matches({}))
        distinct, inverse = np.unique(codes[self._slots], return_inverse=True)
        texts = self._cluster.label_values
        if wanted.operator is Operator.IN:
            matching = np.isin(distinct, [texts.get(value, ABSENT - 1) for value in wanted.values])
        else:
            by_code = {code: text for text, code in texts.items()}
            values = [{wanted.key: by_code[code]} if code != ABSENT else {} for code in distinct.tolist()]
            matching = np.array([wanted.matches(value) for value in values], dtype=np.bool_)
        mask: NodeMask = matching[inverse]
        return mask

    def _named(self, wanted: core.NodeSelectorRequirement) -> NodeMask:
        if wanted.key != _NAME_FIELD or wanted.operator not in ("In", "NotIn"):
            return np.zeros(self._tree.leaf_count, dtype=np.bool_)
        slots = [slot for slot in map(self._cluster.slots.get, wanted.values) if slot is not None]
        mask: NodeMask = np.isin(self._slots, slots, invert=wanted.operator == "NotIn")
        return mask


def _untolerated(taints: Iterable[core.Taint], tolerations: tuple[core.Toleration, ...]) -> core.Taint | None:
    """The first taint that keeps pods off and that none of them tolerates."""
    for taint in taints:
        if taint.effect in _DO_NOT_SCHEDULE and not any(_tolerates(one, taint) for one in tolerations):
            return taint
    return None


def _tolerates(toleration: core.Toleration, taint: core.Taint) -> bool:
    if (toleration.effect or taint.effect) != taint.effect or (toleration.key or taint.key) != taint.key:
        return False
    if (toleration.operator or "Equal") == "Equal":
        return (toleration.value or "") == (taint.value or "")
    return toleration.operator == "Exists"


def _shown(taint: core.Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
