"""Terms of inter-pod affinity, read once for all pods of a shape and namespace.

A term names pods (by namespaces and labels) and a topology key: two nodes with the same value for that label are in one
domain, and pods in one domain are near each other. `matchLabelKeys` and `mismatchLabelKeys` do not appear here: the
API server has put what they mean into the label selector when the pod was created.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from muster.api import core, fields, selectors
from muster.api.meta import LabelSelector as LabelSelectorView
from muster.api.selectors import LabelSelector
from muster.cluster.namespaces import Namespaces
from muster.cluster.pods import PodInfo

_SCRATCH = "affinity terms"
_NAME_PATTERN = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = re.compile(f"({_NAME_PATTERN})?")
_LONGEST = 63


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    namespaces: frozenset[str]
    namespace_selector: LabelSelector
    """Namespaces besides those listed; selects nothing where the term has no such selector."""
    selector: LabelSelector
    topology_key: str

    def selects(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        return (
            namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)
        ) and self.selector.matches(labels)


@dataclass(frozen=True, slots=True)
class WeightedTerm:
    term: AffinityTerm
    weight: int
    """Negative for anti-affinity."""


@dataclass(frozen=True, slots=True, eq=False)
class PodTerms:
    """All terms of a pod. Compared by identity: there is one object for each shape and namespace."""

    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred: tuple[WeightedTerm, ...] = ()
    has_preferences: bool = False
    """Whether the pod states any, also where they make no sense."""
    error: str | None = None
    """What is wrong with a selector, in Kubernetes' words. The list that it stands in is empty."""


NO_TERMS = PodTerms()


@dataclass(frozen=True, slots=True)
class PodSelection:
    """Pods that every one of some terms selects, the namespaces worked out. Hashable: equal ones select the same."""

    parts: tuple[tuple[frozenset[str] | None, LabelSelector], ...]
    """Of each term: its namespaces (None: all) and its label selector."""

    def __call__(self, namespace: str, labels: Mapping[str, str], _is_terminating: bool = False) -> bool:
        for namespaces, selector in self.parts:
            if (namespaces is not None and namespace not in namespaces) or not selector.matches(labels):
                return False
        return True


def selection(terms: Sequence[AffinityTerm], namespaces: Namespaces) -> PodSelection:
    return PodSelection(tuple((_namespaces(term, namespaces), term.selector) for term in terms))


def _namespaces(term: AffinityTerm, namespaces: Namespaces) -> frozenset[str] | None:
    selector = term.namespace_selector
    if selector.nothing:
        return term.namespaces
    if not selector.requirements:
        return None
    return term.namespaces | namespaces.selected(selector)


def terms_of(pod: PodInfo) -> PodTerms:
    affinity = pod.shape.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_TERMS
    known = pod.shape.scratch.setdefault(_SCRATCH, {})
    assert isinstance(known, dict)
    found = known.get(pod.namespace)
    if found is None:
        found = known[pod.namespace] = parse(affinity, pod.namespace)
    assert isinstance(found, PodTerms)
    return found


def parse(affinity: core.Affinity, namespace: str) -> PodTerms:
    """The terms of a pod of the namespace; a list with a term that makes no sense counts as empty."""
    towards = affinity.pod_affinity or core.PodAffinity()
    away = affinity.pod_anti_affinity or core.PodAntiAffinity()
    errors: list[str] = []

    def required(name: str, listed: Sequence[core.PodAffinityTerm]) -> tuple[AffinityTerm, ...]:
        try:
            return tuple(_term(term, namespace) for term in listed)
        except ValueError as error:
            errors.append(f"{name}: {error}")
            return ()

    def preferred(name: str, listed: Sequence[core.WeightedPodAffinityTerm], sign: int) -> Iterator[WeightedTerm]:
        terms = required(name, [weighted.pod_affinity_term for weighted in listed])
        return (
            WeightedTerm(term, sign * (weighted.weight or 0)) for term, weighted in zip(terms, listed, strict=False)
        )

    return PodTerms(
        required("requiredAffinityTerms", towards.required_during_scheduling_ignored_during_execution),
        required("requiredAntiAffinityTerms", away.required_during_scheduling_ignored_during_execution),
        (
            *preferred("preferredAffinityTerms", towards.preferred_during_scheduling_ignored_during_execution, 1),
            *preferred("preferredAntiAffinityTerms", away.preferred_during_scheduling_ignored_during_execution, -1),
        ),
        bool(
            towards.preferred_during_scheduling_ignored_during_execution
            or away.preferred_during_scheduling_ignored_during_execution
        ),
        _joined(errors) if errors else None,
    )


def _term(term: core.PodAffinityTerm, namespace: str) -> AffinityTerm:
    """Raises ValueError for a selector that cannot be read."""
    selector, by_labels = _selector(term.label_selector), _selector(term.namespace_selector)
    own = () if term.namespaces or term.namespace_selector is not None else (namespace,)
    return AffinityTerm(frozenset((*term.namespaces, *own)), by_labels, selector, term.topology_key)


def _selector(view: LabelSelectorView | None) -> LabelSelector:
    wrong = selector_error(view)
    if wrong is not None:
        raise ValueError(wrong)
    return selectors.from_view(view)


def selector_error(view: LabelSelectorView | None) -> str | None:
    """What keeps a label selector from being used, in the words of Kubernetes' own parser; None where nothing does."""
    if view is None:
        return None
    for key, value in sorted((view.match_labels or {}).items()):
        wrong = [*_key_errors(key), *_value_errors(key, [value])]
        if wrong:
            return _joined(wrong)
    for expression in view.match_expressions:
        operator, values = expression.operator, expression.values
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            return f'"{operator}" is not a valid label selector operator'
        wrong = _key_errors(expression.key)
        if operator in ("In", "NotIn") and not values:
            wrong.append("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty")
        if operator in ("Exists", "DoesNotExist") and values:
            listed = ",".join(f'"{value}"' for value in values)
            wrong.append(f"values: Invalid value: [{listed}]: values set must be empty for exists and does not exist")
        wrong += _value_errors(expression.key, values)
        if wrong:
            return _joined(wrong)
    return None


def _key_errors(key: str) -> list[str]:
    if fields.is_qualified_name(key):
        return []
    rule = f"{fields.QUALIFIED_NAME_RULE} (regex used for the name part is '{_NAME_PATTERN}')"
    return [f'key: Invalid value: "{key}": {rule}']


def _value_errors(key: str, values: Sequence[str]) -> list[str]:
    return [
        f'values[{position}][{key}]: Invalid value: "{value}": {_value_rule(value)}'
        for position, value in enumerate(values)
        if not fields.is_label_value(value)
    ]


def _value_rule(value: str) -> str:
    broken = [f"must be no more than {_LONGEST} bytes"] if len(value.encode()) > _LONGEST else []
    if not _VALUE.fullmatch(value):
        pattern = fields.LABEL_VALUE_RULE.removesuffix(")")
        broken.append(f"{pattern}, regex used for validation is '({_NAME_PATTERN})?')")
    return "; ".join(broken)


def _joined(wrong: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(wrong))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"
