"""The priority of a workload, from the classes that its job and its pods name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from muster.api import kueue, scheduling
from muster.api.documents import child, text
from muster.api.raw import Document
from muster.quota.marks import NEVER

BUILT_IN: Final[Mapping[str, int]] = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class MissingClass(LookupError):
    """A priority class that is named does not exist: the workload cannot be made."""


@dataclass(frozen=True, slots=True)
class Classes:
    """By name."""

    of_workloads: Mapping[str, kueue.WorkloadPriorityClass] = field(default_factory=dict)
    of_pods: Mapping[str, scheduling.PriorityClass] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Priority:
    value: int
    reference: Document | None = None
    """`spec.priorityClassRef`."""
    never_preempts: bool = False


def priority(label: str, own_class: str, pod_sets: Sequence[Document], classes: Classes) -> Priority:
    """`label`: the workload priority class that the job names; `own_class`: the pods' class that it names itself.
    Raises MissingClass."""
    if label:
        found = classes.of_workloads.get(label)
        if found is None:
            raise MissingClass(f'WorkloadPriorityClass "{label}" not found')
        return Priority(
            found.value or 0, _reference(kueue.WORKLOAD_PRIORITY_CLASS.group, "WorkloadPriorityClass", label)
        )
    name = own_class or next(filter(None, map(_class_of, pod_sets)), "")
    if not name:
        defaults = [found for found in classes.of_pods.values() if found.global_default]
        if not defaults:
            return Priority(0)
        name = min(defaults, key=lambda found: (found.value or 0, found.metadata.name)).metadata.name
    reference = _reference(scheduling.PRIORITY_CLASS.group, "PriorityClass", name)
    if name in BUILT_IN:
        return Priority(BUILT_IN[name], reference)
    if name not in classes.of_pods:
        raise MissingClass(f'PriorityClass "{name}" not found')
    found_class = classes.of_pods[name]
    return Priority(found_class.value or 0, reference, found_class.preemption_policy == NEVER)


def _class_of(pod_set: Document) -> str:
    return text(child(pod_set, "template", "spec"), "priorityClassName")


def _reference(group: str, kind: str, name: str) -> Document:
    return {"group": group, "kind": kind, "name": name}
