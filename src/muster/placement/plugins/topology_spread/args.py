"""Options of PodTopologySpread: constraints for pods that bring none. Checked as kube-scheduler checks them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from muster.api import core, fields, raw
from muster.api.errors import FieldError
from muster.placement.plugins.resource_args import Reader
from muster.placement.plugins.topology_spread.constraints import DO_NOT_SCHEDULE, HOSTNAME, SCHEDULE_ANYWAY, ZONE

SYSTEM, LIST = "System", "List"
_DEFAULTING = (SYSTEM, LIST)
_POLICIES = ("Honor", "Ignore")
_CONSTRAINT = (
    "maxSkew",
    "topologyKey",
    "whenUnsatisfiable",
    "labelSelector",
    "minDomains",
    "nodeAffinityPolicy",
    "nodeTaintsPolicy",
    "matchLabelKeys",
)
_LARGEST = 2**31 - 1

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
    def from_document(cls, document: Mapping[str, raw.JSON]) -> Self | list[FieldError]:
        """The options that the document says, or all that is wrong with it."""
        read = Reader(document, ("defaultConstraints", "defaultingType"), "PodTopologySpreadArgs")
        defaulting = read.text("defaultingType", document.get("defaultingType")) or SYSTEM
        listed = document.get("defaultConstraints")
        constraints = tuple(
            _constraint(read, path, found) for path, found in read.entries("defaultConstraints", listed, _CONSTRAINT)
        )
        if defaulting not in _DEFAULTING:
            read.errors.append(fields.unsupported("defaultingType", defaulting, _DEFAULTING))
        elif defaulting == SYSTEM and constraints:
            message = f"when .defaultConstraints are not empty; say {LIST} to use those"
            read.errors.append(fields.invalid("defaultingType", defaulting, message))
        seen = set()
        for index, found in enumerate(constraints):
            pair = (found.topology_key, found.when_unsatisfiable)
            if pair in seen:
                read.errors.append(fields.duplicate(f"defaultConstraints[{index}]", f"{{{', '.join(pair)}}}"))
            seen.add(pair)
        return read.errors or cls(constraints, defaulting)


def _constraint(read: Reader, path: str, found: Mapping[str, raw.JSON]) -> core.TopologySpreadConstraint:
    constraint = core.TopologySpreadConstraint(
        max_skew=read.number(f"{path}.maxSkew", found.get("maxSkew")),
        min_domains=read.number(f"{path}.minDomains", found["minDomains"]) if "minDomains" in found else None,
        topology_key=read.text(f"{path}.topologyKey", found.get("topologyKey")),
        when_unsatisfiable=read.text(f"{path}.whenUnsatisfiable", found.get("whenUnsatisfiable")),
        node_affinity_policy=read.text(f"{path}.nodeAffinityPolicy", found.get("nodeAffinityPolicy")) or None,
        node_taints_policy=read.text(f"{path}.nodeTaintsPolicy", found.get("nodeTaintsPolicy")) or None,
    )
    named = {error.path for error in read.errors}
    if path not in named:
        read.errors += [error for error in _constraint_errors(path, constraint) if error.path not in named]
    if found.get("labelSelector") is not None:
        message = "constraint must not define a selector, as they deduced for each pod"
        read.errors.append(fields.forbidden(f"{path}.labelSelector", message))
    return constraint


def _constraint_errors(path: str, constraint: core.TopologySpreadConstraint) -> Iterator[FieldError]:
    if not 0 < (constraint.max_skew or 0) <= _LARGEST:
        yield fields.invalid(f"{path}.maxSkew", constraint.max_skew, "not in valid range (0, inf)")
    if not constraint.topology_key:
        yield fields.required(f"{path}.topologyKey", "Required value: can not be empty")
    else:
        yield from fields.qualified_name(f"{path}.topologyKey", constraint.topology_key)
    if not constraint.when_unsatisfiable:
        yield fields.required(f"{path}.whenUnsatisfiable", "Required value: can not be empty")
    else:
        actions = (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY)
        yield from fields.one_of(f"{path}.whenUnsatisfiable", constraint.when_unsatisfiable, actions)
    yield from fields.positive(f"{path}.minDomains", constraint.min_domains)
    yield from fields.one_of(f"{path}.nodeAffinityPolicy", constraint.node_affinity_policy, _POLICIES)
    yield from fields.one_of(f"{path}.nodeTaintsPolicy", constraint.node_taints_policy, _POLICIES)
