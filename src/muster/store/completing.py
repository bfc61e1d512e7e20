"""What follows from other objects when an object is created: as yet, a pod's priority from its class."""

from collections.abc import Callable

from muster.api import errors, raw, scheduling
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.raw import Document

_BUILT_IN_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def carry_over_pod(old: Document, new: Document) -> None:
    """What the platform resolved when the pod was made stays, where an update does not repeat it."""
    before, after = old.get("spec") or {}, raw.section(new, "spec")
    for resolved in ("priority", "preemptionPolicy", "nodeName"):
        if after.get(resolved) is None and before.get(resolved) is not None:
            after[resolved] = before[resolved]


def complete_pod(document: Document, find: Callable[[Kind, Key], Object | None], default_class: Object | None) -> None:
    """`default_class` is the PriorityClass marked as the global default, if there is one."""
    spec = raw.section(document, "spec")
    name = spec.get("priorityClassName")
    if not name and default_class is not None:
        name = spec["priorityClassName"] = default_class.key.name
    if not name:
        spec.setdefault("priority", 0)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        return
    if name in _BUILT_IN_PRIORITIES:
        spec["priority"] = _BUILT_IN_PRIORITIES[name]
        return
    found = find(scheduling.PRIORITY_CLASS, Key("", str(name)))
    if found is None:
        pod = raw.dig(document, "metadata", "name", default="")
        raise errors.Forbidden(
            f'pods "{pod}" is forbidden: no PriorityClass with name {name} was found', kind="pods", name=str(pod)
        )
    view = found.read(scheduling.PriorityClass)
    spec["priority"] = view.value
    spec["preemptionPolicy"] = view.preemption_policy or "PreemptLowerPriority"
