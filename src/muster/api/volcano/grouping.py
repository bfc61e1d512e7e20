"""Which group a pod belongs to that names none, but is to be scheduled as Volcano does: one with its owner's pods."""

from muster.api import core
from muster.api.meta import ObjectMeta, OwnerReference
from muster.api.volcano.defaults import SCHEDULER

GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
_PREFIX = "podgroup-"


def controller_of(pod: ObjectMeta) -> OwnerReference | None:
    return next((owner for owner in pod.owner_references if owner.controller), None)


def group_name(pod: ObjectMeta) -> str:
    """Of the group that its controller's pods make, or that a bare pod makes alone."""
    owner = controller_of(pod)
    return group_of(owner.uid if owner is not None else pod.uid)


def group_of(uid: str) -> str:
    return f"{_PREFIX}{uid}"


def needs_group(pod: core.Pod) -> bool:
    return pod.spec.scheduler_name == SCHEDULER and not (pod.metadata.annotations or {}).get(GROUP_ANNOTATION)
