"""Checks of PriorityClass."""

from collections.abc import Iterator

from muster.api import fields
from muster.api.errors import FieldError
from muster.api.scheduling.views import PriorityClass

HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_POLICIES = frozenset({"PreemptLowerPriority", "Never"})


def validate_priority_class(found: PriorityClass) -> list[FieldError]:
    return list(_priority_class(found))


def _priority_class(found: PriorityClass) -> Iterator[FieldError]:
    name = found.metadata.name
    if name.startswith("system-"):
        if SYSTEM_CLASSES.get(name) != found.value:
            yield fields.forbidden(
                "metadata.name",
                "priority class names with 'system-' prefix are reserved for system use only",
            )
    elif found.value > HIGHEST_USER_PRIORITY:
        yield fields.forbidden("value", f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}")
    yield from fields.one_of("preemptionPolicy", found.preemption_policy, _POLICIES)


def validate_priority_class_update(old: PriorityClass, new: PriorityClass) -> list[FieldError]:
    problems: list[FieldError] = []
    if old.value != new.value:
        problems.append(fields.forbidden("value", "may not be changed in an update."))
    problems.extend(fields.immutable("preemptionPolicy", old.preemption_policy, new.preemption_policy))
    return problems
