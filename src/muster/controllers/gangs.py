"""Pods as gangs: which belong together, which of them wait for a node, and whether enough are there to try. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from muster.api import core, volcano
from muster.api.objects import Key, Object
from muster.placement import Gang, PodRequest, PodShape

GROUP_ANNOTATION = "scheduling.k8s.io/group-name"


class GangKey(NamedTuple):
    """`pod` names a pod on its own; otherwise `group` names the PodGroup."""

    namespace: str
    group: str = ""
    pod: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.group or self.pod}"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not enough of the gang is there to try. `pods` wait meanwhile."""

    message: str
    pods: tuple[Key, ...]


def key_of(pod: Object) -> GangKey:
    group = (pod.meta.annotations or {}).get(GROUP_ANNOTATION)
    return GangKey(pod.key.namespace, group=group) if group else GangKey(pod.key.namespace, pod=pod.key.name)


def wants_node(pod: Object) -> bool:
    view = pod.read(core.Pod)
    return (
        not view.spec.node_name
        and not view.spec.scheduling_gates
        and not pod.is_terminating
        and view.status.phase in (None, "", "Pending")
    )


def form(
    key: GangKey, members: Iterable[Object], group: Object | None, is_assumed: Callable[[str], bool]
) -> Gang | Waiting | None:
    """The gang as it stands now; None when none of it wants a node.

    `is_assumed(uid)`: a node was chosen for the pod, though the copy of the pod that is at hand may not say so yet.
    """
    pods = sorted(members, key=lambda pod: (pod.meta.creation_timestamp or "", pod.key))
    wanting = [pod for pod in pods if wants_node(pod) and not is_assumed(pod.uid)]
    if not wanting:
        return None
    keys = tuple(pod.key for pod in wanting)
    if key.group and group is None:
        return Waiting(f'pod group "{key.group}" does not exist', keys)
    minimum = 1 if group is None else max(1, group.read(volcano.PodGroup).spec.min_member or 0)
    bound = sum(_counts_as_bound(pod, is_assumed) for pod in pods)
    if len(wanting) < minimum - bound:
        there = len(wanting) + bound
        return Waiting(f'pod group "{key.group}" needs {minimum} pods to start, {there} of them are there', keys)
    return Gang(str(key), tuple(map(_request, wanting)), minimum, bound)


def urgency(pods: Iterable[Object]) -> tuple[int, str]:
    """Sorts gangs into the order in which they are tried: by priority, then by age."""
    listed = list(pods)
    return (
        -max((pod.read(core.Pod).spec.priority or 0 for pod in listed), default=0),
        min((pod.meta.creation_timestamp or "" for pod in listed), default=""),
    )


def _counts_as_bound(pod: Object, is_assumed: Callable[[str], bool]) -> bool:
    view = pod.read(core.Pod)
    if pod.is_terminating or view.status.phase == "Failed":
        return False
    return bool(view.spec.node_name) or is_assumed(pod.uid)


def _request(pod: Object) -> PodRequest:
    return PodRequest(pod.key, pod.uid, PodShape.of(pod.read(core.Pod).spec))
