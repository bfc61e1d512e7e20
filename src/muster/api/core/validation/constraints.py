"""Checks of what a pod says about where it may run."""

from collections.abc import Iterator

from muster.api import fields
from muster.api.core.views import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    PodSchedulingGate,
    Toleration,
    TopologySpreadConstraint,
)
from muster.api.errors import FieldError
from muster.api.metadata import validate_label_selector

TAINT_EFFECTS = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})
_TOLERATION_OPERATORS = frozenset({"Equal", "Exists"})
_NODE_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"})
_UNSATISFIABLE = frozenset({"DoNotSchedule", "ScheduleAnyway"})
_POLICIES = frozenset({"Honor", "Ignore"})


def validate_tolerations(path: str, tolerations: tuple[Toleration, ...]) -> Iterator[FieldError]:
    for index, toleration in enumerate(tolerations):
        at = f"{path}[{index}]"
        if toleration.key:
            yield from fields.qualified_name(f"{at}.key", toleration.key)
        elif toleration.operator != "Exists":
            yield fields.invalid(
                f"{at}.operator",
                toleration.operator or "",
                'operator must be Exists when `key` is empty, which means "match all values and all keys"',
            )
        if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
            yield fields.invalid(
                f"{at}.effect",
                toleration.effect or "",
                "effect must be 'NoExecute' when `tolerationSeconds` is set",
            )
        yield from _toleration_value(at, toleration)
        if toleration.effect:
            yield from fields.one_of(f"{at}.effect", toleration.effect, TAINT_EFFECTS)


def _toleration_value(path: str, toleration: Toleration) -> Iterator[FieldError]:
    operator, value = toleration.operator or "Equal", toleration.value or ""
    if operator not in _TOLERATION_OPERATORS:
        yield fields.unsupported(f"{path}.operator", operator, _TOLERATION_OPERATORS)
    elif operator == "Exists" and value:
        yield fields.invalid(f"{path}.operator", value, "value must be empty when `operator` is 'Exists'")
    elif not fields.is_label_value(value):
        yield fields.invalid(f"{path}.operator", value, fields.LABEL_VALUE_RULE)


def validate_affinity(path: str, affinity: Affinity | None) -> Iterator[FieldError]:
    if affinity is None:
        return
    if affinity.node_affinity is not None:
        yield from _node_affinity(f"{path}.nodeAffinity", affinity.node_affinity)
    if affinity.pod_affinity is not None:
        yield from _pod_affinity(f"{path}.podAffinity", affinity.pod_affinity)
    if affinity.pod_anti_affinity is not None:
        yield from _pod_affinity(f"{path}.podAntiAffinity", affinity.pod_anti_affinity)


def _node_affinity(path: str, affinity: NodeAffinity) -> Iterator[FieldError]:
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is not None:
        yield from validate_node_selector(f"{path}.requiredDuringSchedulingIgnoredDuringExecution", required)
    for index, term in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        at = f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        yield from _weight(f"{at}.weight", term.weight)
        yield from _node_term(f"{at}.preference", term.preference)


def validate_node_selector(path: str, selector: NodeSelector) -> Iterator[FieldError]:
    if not selector.node_selector_terms:
        yield fields.required(f"{path}.nodeSelectorTerms", "Required value: must have at least one node selector term")
    for index, term in enumerate(selector.node_selector_terms):
        yield from _node_term(f"{path}.nodeSelectorTerms[{index}]", term)


def _node_term(path: str, term: NodeSelectorTerm) -> Iterator[FieldError]:
    for index, requirement in enumerate(term.match_expressions):
        yield from _node_requirement(f"{path}.matchExpressions[{index}]", requirement)
    for index, requirement in enumerate(term.match_fields):
        yield from _node_field(f"{path}.matchFields[{index}]", requirement)


def _node_requirement(path: str, requirement: NodeSelectorRequirement) -> Iterator[FieldError]:
    yield from fields.qualified_name(f"{path}.key", requirement.key)
    operator, values = requirement.operator, requirement.values
    if operator not in _NODE_OPERATORS:
        yield fields.unsupported(f"{path}.operator", operator, _NODE_OPERATORS)
    elif operator in ("In", "NotIn") and not values:
        yield fields.required(f"{path}.values", "Required value: must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist") and values:
        yield fields.forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif operator in ("Gt", "Lt") and len(values) != 1:
        yield fields.required(
            f"{path}.values", "Required value: must be specified single value when `operator` is 'Lt' or 'Gt'"
        )
    elif operator in ("Gt", "Lt") and not values[0].removeprefix("-").isdecimal():
        yield fields.invalid(f"{path}.values[0]", values[0], "for 'Gt', 'Lt' operators, the value must be an integer")


def _node_field(path: str, requirement: NodeSelectorRequirement) -> Iterator[FieldError]:
    yield from fields.one_of(f"{path}.key", requirement.key, {"metadata.name"})
    yield from fields.one_of(f"{path}.operator", requirement.operator, {"In", "NotIn"})
    if len(requirement.values) != 1:
        yield fields.required(
            f"{path}.values",
            "Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        )
    for index, value in enumerate(requirement.values):
        yield from fields.dns_subdomain(f"{path}.values[{index}]", value)


def _pod_affinity(path: str, affinity: PodAffinity | PodAntiAffinity) -> Iterator[FieldError]:
    for index, term in enumerate(affinity.required_during_scheduling_ignored_during_execution):
        yield from _pod_term(f"{path}.requiredDuringSchedulingIgnoredDuringExecution[{index}]", term)
    for index, weighted in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        at = f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        yield from _weight(f"{at}.weight", weighted.weight)
        yield from _pod_term(f"{at}.podAffinityTerm", weighted.pod_affinity_term)


def _weight(path: str, weight: int | None) -> Iterator[FieldError]:
    if weight is None or not 1 <= weight <= 100:
        yield fields.invalid(path, weight or 0, "must be in the range 1-100")


def _pod_term(path: str, term: PodAffinityTerm) -> Iterator[FieldError]:
    yield from _topology_key(f"{path}.topologyKey", term.topology_key)
    yield from validate_label_selector(f"{path}.labelSelector", term.label_selector)
    yield from validate_label_selector(f"{path}.namespaceSelector", term.namespace_selector)
    for index, namespace in enumerate(term.namespaces):
        yield from fields.dns_label(f"{path}.namespaces[{index}]", namespace)
    for name, keys in (("matchLabelKeys", term.match_label_keys), ("mismatchLabelKeys", term.mismatch_label_keys)):
        yield from _label_keys(f"{path}.{name}", keys, has_selector=term.label_selector is not None)
    for index, key in enumerate(term.match_label_keys):
        if key in term.mismatch_label_keys:
            yield fields.invalid(
                f"{path}.matchLabelKeys[{index}]", key, "exists in both matchLabelKeys and mismatchLabelKeys"
            )


def _topology_key(path: str, key: str) -> Iterator[FieldError]:
    if not key:
        yield fields.required(path, "Required value: can not be empty")
    else:
        yield from fields.qualified_name(path, key)


def _label_keys(path: str, keys: tuple[str, ...], *, has_selector: bool) -> Iterator[FieldError]:
    if keys and not has_selector:
        yield fields.forbidden(path, "must not be specified when labelSelector is not set")
    for index, key in enumerate(keys):
        yield from fields.qualified_name(f"{path}[{index}]", key)


def validate_spread(path: str, constraints: tuple[TopologySpreadConstraint, ...]) -> Iterator[FieldError]:
    seen: set[tuple[str, str]] = set()
    for index, constraint in enumerate(constraints):
        at = f"{path}[{index}]"
        if constraint.max_skew is None or constraint.max_skew <= 0:
            yield fields.invalid(f"{at}.maxSkew", constraint.max_skew or 0, "must be greater than zero")
        yield from _topology_key(f"{at}.topologyKey", constraint.topology_key)
        yield from fields.one_of(f"{at}.whenUnsatisfiable", constraint.when_unsatisfiable, _UNSATISFIABLE)
        pair = (constraint.topology_key, constraint.when_unsatisfiable)
        if pair in seen:
            yield fields.duplicate(f"{at}.{{topologyKey, whenUnsatisfiable}}", f"{{{', '.join(pair)}}}")
        seen.add(pair)
        yield from fields.positive(f"{at}.minDomains", constraint.min_domains)
        if constraint.min_domains is not None and constraint.when_unsatisfiable == "ScheduleAnyway":
            yield fields.invalid(
                f"{at}.minDomains",
                constraint.min_domains,
                "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
            )
        yield from fields.one_of(f"{at}.nodeAffinityPolicy", constraint.node_affinity_policy, _POLICIES)
        yield from fields.one_of(f"{at}.nodeTaintsPolicy", constraint.node_taints_policy, _POLICIES)
        yield from validate_label_selector(f"{at}.labelSelector", constraint.label_selector)
        yield from _label_keys(
            f"{at}.matchLabelKeys", constraint.match_label_keys, has_selector=constraint.label_selector is not None
        )


def validate_gates(path: str, gates: tuple[PodSchedulingGate, ...]) -> Iterator[FieldError]:
    for index, gate in enumerate(gates):
        if gate.name:
            yield from fields.qualified_name(f"{path}[{index}].name", gate.name)
        else:
            yield fields.required(f"{path}[{index}].name")
    yield from fields.unique(path, [gate.name for gate in gates], "name")
