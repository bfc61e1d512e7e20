"""What follows from other objects when a pod is created: its priority from its class, what it asks for from its
namespace's LimitRanges and its RuntimeClass. As Kubernetes' own admission plugins do, whoever makes the pod."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from muster.api import core, errors, quantity, raw, scheduling
from muster.api.core import limiting
from muster.api.errors import FieldError
from muster.api.kinds import Kind
from muster.api.node import admission
from muster.api.objects import Key, Object, view_of
from muster.api.raw import Document

Find: TypeAlias = Callable[[Kind, Key], Object | None]

_BUILT_IN_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def carry_over_pod(old: Document, new: Document) -> None:
    """What the platform resolved when the pod was made stays, where an update does not repeat it."""
    before, after = old.get("spec") or {}, raw.section(new, "spec")
    for resolved in ("priority", "preemptionPolicy", "nodeName"):
        if after.get(resolved) is None and before.get(resolved) is not None:
            after[resolved] = before[resolved]


def complete_pod(
    document: Document, find: Find, default_class: Object | None, ranges: Sequence[core.LimitRange] = ()
) -> None:
    """`default_class` is the PriorityClass marked as the global default, if there is one. `ranges`: of its namespace,
    in order. Raises Forbidden."""
    _set_priority(document, find, default_class)
    problem = admission.fill_in(document, find)
    if problem:
        raise _forbidden(document, f"pod rejected: {problem}")
    if ranges:
        limiting.fill_in(document, ranges)
        problems = _out_of_range(document, ranges)
        if problems:
            raise _forbidden(document, ", ".join(str(problem) for problem in problems), problems)


def _out_of_range(document: Document, ranges: Sequence[core.LimitRange]) -> list[FieldError]:
    """A pod of wrong shape is in range: the store has better words for it."""
    try:
        view = view_of(core.POD, document)
        assert isinstance(view, core.Pod)
        return limiting.check(view.spec, ranges)
    except (errors.Invalid, quantity.BadQuantity):
        return []


def _forbidden(document: Document, why: str, causes: Sequence[FieldError] = ()) -> errors.Forbidden:
    name = str(raw.dig(document, "metadata", "name", default=""))
    return errors.Forbidden(f'pods "{name}" is forbidden: {why}', kind="pods", name=name, causes=causes)


def _set_priority(document: Document, find: Find, default_class: Object | None) -> None:
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
        raise _forbidden(document, f"no PriorityClass with name {name} was found")
    view = found.read(scheduling.PriorityClass)
    spec["priority"] = view.value
    spec["preemptionPolicy"] = view.preemption_policy or "PreemptLowerPriority"
