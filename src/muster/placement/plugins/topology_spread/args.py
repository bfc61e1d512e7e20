"""Options of PodTopologySpread: constraints for pods that bring none. Checked as kube-scheduler checks them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from muster.api import core, fields
from muster.api.errors import FieldError
from muster.api.raw import JSON, Document, type_name
from muster.placement.plugins.topology_spread.constraints import DO_NOT_SCHEDULE, HOSTNAME, SCHEDULE_ANYWAY, ZONE

SYSTEM, LIST = "System", "List"
_DEFAULTING = (SYSTEM, LIST)
_FIELDS = {"apiVersion", "kind", "defaultConstraints", "defaultingType"}
_POLICIES = ("Honor", "Ignore")
_TEXTS = ("topologyKey", "whenUnsatisfiable", "nodeAffinityPolicy", "nodeTaintsPolicy")
_NUMBERS = ("maxSkew", "minDomains")
_CONSTRAINT_FIELDS = {*_TEXTS, *_NUMBERS, "labelSelector", "matchLabelKeys"}
_INT32 = range(-(2**31), 2**31)

SYSTEM_CONSTRAINTS = (
    core.TopologySpreadConstraint(topology_key=HOSTNAME, when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=3),
    core.TopologySpreadConstraint(topology_key=ZONE, when_unsatisfiable=SCHEDULE_ANYWAY, max_skew=5),
)


@dataclass(frozen=True, slots=True)
class PodTopologySpreadArgs:
    default_constraints: tuple[core.TopologySpreadConstraint, ...] = ()
    """For pods without constraints that a service or a controller selects; without selectors, which those say."""
    defaulting_type: str = SYSTEM

    @property
    def is_system(self) -> bool:
        return self.defaulting_type == SYSTEM

    @property
    def constraints(self) -> tuple[core.TopologySpreadConstraint, ...]:
        """The defaults that apply."""
        return SYSTEM_CONSTRAINTS if self.is_system else self.default_constraints

    @classmethod
    def from_document(cls, document: Mapping[str, JSON]) -> Self | list[FieldError]:
        """All that is wrong with the document, or the options that it says."""
        errors = [fields.forbidden(field, "unknown field") for field in document if field not in _FIELDS]
        defaulting = document.get("defaultingType")
        listed = document.get("defaultConstraints")
        if listed is not None and not isinstance(listed, list):
            errors.append(fields.invalid("defaultConstraints", listed, f"expected an array, found {type_name(listed)}"))
            return errors
        constraints: list[JSON] = listed or []
        chosen = SYSTEM if defaulting in (None, "") else defaulting
        if chosen not in _DEFAULTING:
            errors.append(fields.unsupported("defaultingType", chosen, _DEFAULTING))
        elif chosen == SYSTEM and constraints:
            errors.append(fields.invalid("defaultingType", chosen, "when .defaultConstraints are not empty"))
        for index, constraint in enumerate(constraints):
            errors.extend(_constraint_errors(f"defaultConstraints[{index}]", constraint))
        errors.extend(_repeated(constraints))
        if errors:
            return errors
        return cls(tuple(map(_view, constraints)), chosen)


def _constraint_errors(path: str, constraint: JSON) -> Iterator[FieldError]:
    if not isinstance(constraint, dict):
        yield fields.invalid(path, constraint, f"expected an object, found {type_name(constraint)}")
        return
    for field in constraint:
        if field not in _CONSTRAINT_FIELDS:
            yield fields.forbidden(f"{path}.{field}", "unknown field")
    mistyped = list(_type_errors(path, constraint))
    yield from mistyped
    if not mistyped:
        yield from _value_errors(path, constraint)


def _type_errors(path: str, constraint: Document) -> Iterator[FieldError]:
    for field in _NUMBERS:
        value = constraint.get(field)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value not in _INT32):
            yield fields.invalid(f"{path}.{field}", value, f"expected a 32-bit integer, found {type_name(value)}")
    for field in _TEXTS:
        value = constraint.get(field)
        if value is not None and not isinstance(value, str):
            yield fields.invalid(f"{path}.{field}", value, f"expected a string, found {type_name(value)}")
    keys = constraint.get("matchLabelKeys")
    if keys is not None and not (isinstance(keys, list) and all(isinstance(key, str) for key in keys)):
        yield fields.invalid(f"{path}.matchLabelKeys", keys, "expected an array of strings")


def _value_errors(path: str, constraint: Document) -> Iterator[FieldError]:
    if (constraint.get("maxSkew") or 0) <= 0:
        yield fields.invalid(f"{path}.maxSkew", constraint.get("maxSkew") or 0, "not in valid range (0, inf)")
    key, action = constraint.get("topologyKey"), constraint.get("whenUnsatisfiable")
    if not key:
        yield fields.required(f"{path}.topologyKey", "Required value: can not be empty")
    else:
        yield from fields.qualified_name(f"{path}.topologyKey", key)
    if not action:
        yield fields.required(f"{path}.whenUnsatisfiable", "Required value: can not be empty")
    else:
        yield from fields.one_of(f"{path}.whenUnsatisfiable", action, (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY))
    if constraint.get("labelSelector") is not None:
        message = "constraint must not define a selector, as they deduced for each pod"
        yield fields.forbidden(f"{path}.labelSelector", message)
    yield from fields.positive(f"{path}.minDomains", constraint.get("minDomains"))
    yield from fields.one_of(f"{path}.nodeAffinityPolicy", constraint.get("nodeAffinityPolicy"), _POLICIES)
    yield from fields.one_of(f"{path}.nodeTaintsPolicy", constraint.get("nodeTaintsPolicy"), _POLICIES)


def _repeated(constraints: list[JSON]) -> Iterator[FieldError]:
    seen: list[tuple[JSON, JSON]] = []
    for index, constraint in enumerate(constraints):
        if isinstance(constraint, dict):
            pair = (constraint.get("topologyKey"), constraint.get("whenUnsatisfiable"))
            if pair in seen:
                yield fields.duplicate(f"defaultConstraints[{index}]", f"{{{pair[0]}, {pair[1]}}}")
            seen.append(pair)


def _view(constraint: Document) -> core.TopologySpreadConstraint:
    return core.TopologySpreadConstraint(
        max_skew=constraint.get("maxSkew"),
        min_domains=constraint.get("minDomains"),
        topology_key=constraint["topologyKey"],
        when_unsatisfiable=constraint["whenUnsatisfiable"],
        node_affinity_policy=constraint.get("nodeAffinityPolicy"),
        node_taints_policy=constraint.get("nodeTaintsPolicy"),
    )
