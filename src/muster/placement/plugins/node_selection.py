"""Selectors of nodes, read once for a pod's shape and applied to all nodes as operations on label columns.

The rules are Kubernetes' own: terms are alternatives, the requirements of one term must all hold, a term without any
matches nothing, and one that could not be valid (a bad key, value or count of values) matches nothing either.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from muster.api import core, fields
from muster.api.selectors import Operator, Requirement
from muster.cluster.columns import ABSENT, Codes, NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import NOT_A_NUMBER, ClusterState

_SCRATCH = "required nodes"
NAME_FIELD = "metadata.name"
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """A field of the node equals the value, or does not. `metadata.name` is the one there is; others are empty."""

    key: str
    value: str
    is_negated: bool

    def matches(self, name: str) -> bool:
        return ((name if self.key == NAME_FIELD else "") == self.value) is not self.is_negated


@dataclass(frozen=True, slots=True)
class Term:
    """All of its requirements must hold."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldRequirement, ...] = ()

    def matches(self, node: core.Node) -> bool:
        labels = node.metadata.labels or {}
        return all(wanted.matches(labels) for wanted in self.labels) and all(
            wanted.matches(node.metadata.name) for wanted in self.fields
        )

    def nodes(self, cluster: ClusterState) -> NodeMask:
        mask = cluster.exists[: cluster.width].copy()
        for wanted in self.labels:
            mask &= labelled_so(wanted, cluster)
        for field in self.fields:
            mask &= _field_mask(field, cluster)
        return mask


@dataclass(frozen=True, slots=True)
class Selection:
    """Nodes that have all of `labels` and, where there are `terms`, match at least one. An empty tuple of terms is a
    selector that no node matches; None is no selector."""

    labels: tuple[Requirement, ...] = ()
    terms: tuple[Term, ...] | None = None

    @property
    def is_everything(self) -> bool:
        return not self.labels and self.terms is None

    def matches(self, node: core.Node) -> bool:
        found = node.metadata.labels or {}
        if not all(wanted.matches(found) for wanted in self.labels):
            return False
        return self.terms is None or any(term.matches(node) for term in self.terms)

    def nodes(self, cluster: ClusterState) -> NodeMask:
        mask = cluster.exists[: cluster.width].copy()
        for wanted in self.labels:
            mask &= labelled_so(wanted, cluster)
        if self.terms is not None:
            chosen = cluster.mask()
            for term in self.terms:
                chosen |= term.nodes(cluster)
            mask &= chosen
        return mask


def required(pod: PodInfo) -> Selection:
    """The pod's nodeSelector and required node affinity, compiled once for its shape."""
    scratch = pod.shape.scratch
    found = scratch.get(_SCRATCH)
    if not isinstance(found, Selection):
        affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
        wanted = affinity.required_during_scheduling_ignored_during_execution if affinity else None
        found = scratch[_SCRATCH] = Selection(_exact(pod.spec.node_selector), selector_terms(wanted))
    return found


def selector_terms(selector: core.NodeSelector | None) -> tuple[Term, ...] | None:
    """The terms that can match anything. None where there is no selector at all."""
    if selector is None:
        return None
    compiled = (compile_term(term) for term in selector.node_selector_terms)
    return tuple(term for term in compiled if term is not None)


def compile_term(term: core.NodeSelectorTerm) -> Term | None:
    """None for a term that matches nothing: it is empty, or holds something invalid."""
    if not term.match_expressions and not term.match_fields:
        return None
    labels = [_label_requirement(requirement) for requirement in term.match_expressions]
    named = [_field_requirement(requirement) for requirement in term.match_fields]
    valid_labels = tuple(requirement for requirement in labels if requirement is not None)
    valid_fields = tuple(requirement for requirement in named if requirement is not None)
    if len(valid_labels) < len(labels) or len(valid_fields) < len(named):
        return None
    return Term(valid_labels, valid_fields)


def labelled_so(wanted: Requirement, cluster: ClusterState) -> NodeMask:
    """Nodes whose labels meet the requirement. Slots without a node do not matter."""
    codes = cluster.labelled(wanted.key)
    if codes is None:
        return cluster.mask(wanted.operator in (Operator.NOT_IN, Operator.DOES_NOT_EXIST))
    match wanted.operator:
        case Operator.IN:
            return _coded(codes, wanted.values, cluster)
        case Operator.NOT_IN:
            return ~_coded(codes, wanted.values, cluster)
        case Operator.EXISTS:
            present: NodeMask = codes != ABSENT
            return present
        case Operator.DOES_NOT_EXIST:
            absent: NodeMask = codes == ABSENT
            return absent
        case Operator.GREATER | Operator.LESS:
            return _compared(wanted, codes, cluster)


def _coded(codes: Codes, values: Iterable[str], cluster: ClusterState) -> NodeMask:
    mask: NodeMask | None = None
    for value in values:
        equal: NodeMask = codes == cluster.value_code(value)
        mask = equal if mask is None else np.logical_or(mask, equal, out=mask)
    return cluster.mask() if mask is None else mask


def _compared(wanted: Requirement, codes: Codes, cluster: ClusterState) -> NodeMask:
    """Compares each distinct value once, whatever the number of nodes that have it."""
    numbers, [limit] = cluster.label_numbers(), map(int, wanted.values)
    if wanted.operator is Operator.GREATER:
        holds = numbers > limit
    else:
        holds = (numbers < limit) & (numbers != NOT_A_NUMBER)
    mask: NodeMask = holds[codes] & (codes != ABSENT)
    return mask


def _field_mask(wanted: FieldRequirement, cluster: ClusterState) -> NodeMask:
    if wanted.key != NAME_FIELD:
        return cluster.mask(wanted.matches(""))
    mask = cluster.mask(wanted.is_negated)
    slot = cluster.slots.get(wanted.value)
    if slot is not None:
        mask[slot] = not wanted.is_negated
    return mask


def _exact(selector: Mapping[str, str] | None) -> tuple[Requirement, ...]:
    return tuple(Requirement(key, Operator.IN, frozenset({value})) for key, value in (selector or {}).items())


_NUMBER_OF_VALUES = {
    Operator.IN: range(1, 2**31),
    Operator.NOT_IN: range(1, 2**31),
    Operator.EXISTS: range(1),
    Operator.DOES_NOT_EXIST: range(1),
    Operator.GREATER: range(1, 2),
    Operator.LESS: range(1, 2),
}


def _label_requirement(view: core.NodeSelectorRequirement) -> Requirement | None:
    if view.operator not in _NUMBER_OF_VALUES or not fields.is_qualified_name(view.key):
        return None
    operator = Operator(view.operator)
    if len(view.values) not in _NUMBER_OF_VALUES[operator] or not all(map(fields.is_label_value, view.values)):
        return None
    if operator in (Operator.GREATER, Operator.LESS) and not _is_int64(view.values[0]):
        return None
    return Requirement(view.key, operator, frozenset(view.values))


def _is_int64(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) in _INT64


def _field_requirement(view: core.NodeSelectorRequirement) -> FieldRequirement | None:
    if view.operator not in ("In", "NotIn") or len(view.values) != 1:
        return None
    return FieldRequirement(view.key, view.values[0], is_negated=view.operator == "NotIn")
