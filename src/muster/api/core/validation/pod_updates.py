"""What of a pod may still change once it exists: little, because its node has already acted on the rest."""

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from muster.api import fields
from muster.api.core.views import Affinity, Container, NodeAffinity, NodeSelectorTerm, Pod, PodSpec, Toleration
from muster.api.errors import FieldError

_MUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


_FIELDS = tuple((field.name, field.encode_name) for field in msgspec.structs.fields(PodSpec))


def validate_pod_update(old: Pod, new: Pod) -> list[FieldError]:
    return [] if old.spec == new.spec else list(_pod_update(old.spec, new.spec))


def _pod_update(old: PodSpec, new: PodSpec) -> Iterator[FieldError]:
    for name, before, after in (
        ("initContainers", old.init_containers, new.init_containers),
        ("containers", old.containers, new.containers),
    ):
        if [container.name for container in before] != [container.name for container in after]:
            yield fields.forbidden(f"spec.{name}", "pod updates may not add, remove or rename containers")
            return
    yield from _deadline(old.active_deadline_seconds, new.active_deadline_seconds)
    yield from _gates(old, new)
    yield from _tolerations(old.tolerations, new.tolerations)
    if old.node_name and new.node_name != old.node_name:
        yield fields.forbidden("spec.nodeName", f"the pod is bound to {old.node_name}; a bound pod cannot be moved")
    if old.scheduling_gates:
        yield from _narrowed(old, new)
    yield from _rest(old, new)


def _deadline(old: int | None, new: int | None) -> Iterator[FieldError]:
    path = "spec.activeDeadlineSeconds"
    if old is None:
        return
    if new is None:
        yield fields.invalid(path, "null", "must not update from a positive integer to nil value")
    elif new > old:
        yield fields.invalid(path, new, "must be less than or equal to previous value")


def _gates(old: PodSpec, new: PodSpec) -> Iterator[FieldError]:
    present = {gate.name for gate in old.scheduling_gates}
    for index, gate in enumerate(new.scheduling_gates):
        if gate.name not in present:
            yield fields.forbidden(
                f"spec.schedulingGates[{index}]",
                f"only deletion is allowed, but found new scheduling gate '{gate.name}'",
            )


def _tolerations(old: tuple[Toleration, ...], new: tuple[Toleration, ...]) -> Iterator[FieldError]:
    kept = {replace(toleration, toleration_seconds=None) for toleration in new}
    for toleration in old:
        if replace(toleration, toleration_seconds=None) not in kept:
            yield fields.forbidden(
                "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
            )
            return


def _narrowed(old: PodSpec, new: PodSpec) -> Iterator[FieldError]:
    """While a gate holds the pod back nobody has looked at it, so it may still become more particular."""
    selected = new.node_selector or {}
    for key, value in (old.node_selector or {}).items():
        if selected.get(key) != value:
            yield fields.invalid(
                f"spec.nodeSelector[{key}]", selected.get(key, ""), "only additions are allowed while the pod is gated"
            )
    before = _required_terms(old)
    after = _required_terms(new)
    if before and len(before) != len(after):
        path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        yield fields.invalid(path, len(after), "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
    for index, (was, now) in enumerate(zip(before, after, strict=False)):
        if not _contains(now, was):
            path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
            yield fields.invalid(f"{path}[{index}]", "", "only additions are allowed (no mutations or deletions)")


def _required_terms(spec: PodSpec) -> tuple[NodeSelectorTerm, ...]:
    nodes = spec.affinity.node_affinity if spec.affinity else None
    required = nodes.required_during_scheduling_ignored_during_execution if nodes else None
    return required.node_selector_terms if required else ()


def _contains(now: NodeSelectorTerm, was: NodeSelectorTerm) -> bool:
    # An empty term matches nothing; adding to it would widen it.
    if not was.match_expressions and not was.match_fields:
        return now == was
    return (
        now.match_expressions[: len(was.match_expressions)] == was.match_expressions
        and now.match_fields[: len(was.match_fields)] == was.match_fields
    )


def _rest(old: PodSpec, new: PodSpec) -> Iterator[FieldError]:
    """Whatever no other rule speaks for must be as it was."""
    same = replace(
        new,
        containers=_with_images(new.containers, old.containers),
        init_containers=_with_images(new.init_containers, old.init_containers),
        active_deadline_seconds=old.active_deadline_seconds,
        tolerations=old.tolerations,
        scheduling_gates=old.scheduling_gates,
        node_name=old.node_name,
        # A client that sends back a manifest does not know what was resolved from the priority class.
        priority=old.priority if new.priority is None else new.priority,
    )
    if old.scheduling_gates:
        same = replace(same, node_selector=old.node_selector, affinity=_with_nodes(new.affinity, old.affinity))
    if (old.termination_grace_period_seconds or 0) < 0 and new.termination_grace_period_seconds == 1:
        same = replace(same, termination_grace_period_seconds=old.termination_grace_period_seconds)
    changed = [f"spec.{wire}" for name, wire in _FIELDS if getattr(same, name) != getattr(old, name)]
    if changed:
        yield fields.forbidden("spec", f"{_MUTABLE}; this update changes {', '.join(changed)}")


def _with_images(containers: tuple[Container, ...], old: tuple[Container, ...]) -> tuple[Container, ...]:
    return tuple(replace(new, image=before.image) for new, before in zip(containers, old, strict=True))


def _with_nodes(affinity: Affinity | None, old: Affinity | None) -> Affinity | None:
    """`affinity` with the node affinity of `old`; one that says nothing is the same as none."""
    nodes: NodeAffinity | None = old.node_affinity if old else None
    mixed = replace(affinity or Affinity(), node_affinity=nodes)
    return old if mixed == (old or Affinity()) else mixed
