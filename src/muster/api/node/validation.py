"""Checks of RuntimeClass."""

from collections.abc import Iterator

from muster.api import core, fields
from muster.api.errors import FieldError
from muster.api.node.views import RuntimeClass


def validate_runtime_class(found: RuntimeClass) -> list[FieldError]:
    return list(_runtime_class(found))


def _runtime_class(found: RuntimeClass) -> Iterator[FieldError]:
    if not found.handler:
        yield fields.required("handler")
    else:
        yield from fields.dns_label("handler", found.handler)
    if found.overhead is not None:
        yield from core.validate_resource_list("overhead.podFixed", found.overhead.pod_fixed)
    if found.scheduling is not None:
        yield from fields.labels("scheduling.nodeSelector", found.scheduling.node_selector)
        yield from core.validate_tolerations("scheduling.tolerations", found.scheduling.tolerations)


def validate_runtime_class_update(old: RuntimeClass, new: RuntimeClass) -> list[FieldError]:
    return list(fields.immutable("handler", old.handler, new.handler))
