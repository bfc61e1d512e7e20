"""Checks of Node and Namespace."""

from collections.abc import Iterator

from muster.api import fields
from muster.api.core.validation.constraints import TAINT_EFFECTS
from muster.api.core.validation.resources import validate_resource_list
from muster.api.core.views import Namespace, Node, Taint
from muster.api.errors import FieldError


def validate_node(node: Node) -> list[FieldError]:
    return [
        *validate_taints("spec.taints", node.spec.taints),
        *validate_resource_list("status.capacity", node.status.capacity),
        *validate_resource_list("status.allocatable", node.status.allocatable),
    ]


def validate_node_update(old: Node, new: Node) -> list[FieldError]:
    problems: list[FieldError] = []
    if old.spec.provider_id and new.spec.provider_id != old.spec.provider_id:
        problems.append(
            fields.forbidden("spec.providerID", 'node updates may not change providerID except from "" to valid')
        )
    if old.spec.pod_cidr and new.spec.pod_cidr != old.spec.pod_cidr:
        problems.append(
            fields.forbidden("spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid')
        )
    return problems


def validate_taints(path: str, taints: tuple[Taint, ...]) -> Iterator[FieldError]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        at = f"{path}[{index}]"
        yield from fields.qualified_name(f"{at}.key", taint.key)
        yield from fields.label_value(f"{at}.value", taint.value or "")
        if not taint.effect:
            yield fields.required(f"{at}.effect")
        else:
            yield from fields.one_of(f"{at}.effect", taint.effect, TAINT_EFFECTS)
        if (taint.key, taint.effect) in seen:
            yield fields.duplicate(at, f"{taint.key}:{taint.effect}")
        seen.add((taint.key, taint.effect))


def validate_namespace(namespace: Namespace) -> list[FieldError]:
    problems = list(fields.dns_label("metadata.name", namespace.metadata.name))
    for index, finalizer in enumerate(namespace.spec.finalizers):
        problems.extend(fields.qualified_name(f"spec.finalizers[{index}]", finalizer))
    return problems
