"""Which changes can make room for a pod that asked for more than nodes had."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from muster.api import core
from muster.api.meta import Resource
from muster.cluster.amounts import allocatable_of, needs_of
from muster.cluster.columns import PODS
from muster.cluster.pods import PodInfo
from muster.cluster.resizing import held_by
from muster.cluster.state import ClusterState
from muster.placement.framework import Action, Hint, Wake
from muster.placement.plugins.resource_scores import is_scalar

V = TypeVar("V", bound=Resource)
Requests = Callable[[PodInfo], Mapping[str, int]]
_NATIVE = ("cpu", "memory", "ephemeral-storage")


def wakes(requests: Requests, *, resizes: bool, deferred: bool) -> Sequence[Wake]:
    """`requests` tells what a pod asks for. `resizes`: pods may shrink in place; `deferred`: pods that could not grow
    in place are judged again."""
    hints = ResourceHints(requests, resizes=resizes, deferred=deferred)
    found = [
        Wake("Pod", frozenset({Action.DELETE}), hints.after_pod_deleted, reads_labels=False),
        Wake(
            "Node",
            frozenset({Action.ADD, Action.UPDATE_NODE_ALLOCATABLE}),
            hints.after_node_changed,
            reads_labels=False,
        ),
    ]
    if resizes:
        shrinks = frozenset({Action.UPDATE_POD_SCALE_DOWN})
        found.append(Wake("Pod", shrinks, hints.after_other_shrank, reads_labels=False))
        found.append(Wake("UnscheduledPod", shrinks, hints.after_pod_shrank))
    if deferred:
        grows = frozenset({Action.UPDATE_POD_SCALE_UP})
        found.append(Wake("Pod", grows, hints.after_other_grew, reads_labels=False))
        found.append(Wake("UnscheduledPod", grows, hints.after_pod_grew))
    return found


class ResourceHints:
    def __init__(self, requests: Requests, *, resizes: bool = True, deferred: bool = True) -> None:
        self._requests = requests
        self._resizes = resizes
        self._deferred = deferred

    def after_pod_deleted(
        self, pod: PodInfo, old: Resource | None, new: Resource | None, cluster: ClusterState
    ) -> Hint:
        gone, _ = expect(core.Pod, old), expect(core.Pod, new)
        if gone is None or not (gone.spec.node_name or gone.status.nominated_node_name):
            return Hint.SKIP  # it held nothing
        return Hint.SKIP if self._is_elsewhere(pod, gone) else Hint.QUEUE

    def after_node_changed(
        self, pod: PodInfo, old: Resource | None, new: Resource | None, cluster: ClusterState
    ) -> Hint:
        before, after = expect(core.Node, old), expect(core.Node, new)
        if after is None or not fits_alone(self._requests(pod), after):
            return Hint.SKIP
        if before is None or has_more(self._requests(pod), before, after):
            return Hint.QUEUE
        return Hint.SKIP

    def after_other_shrank(
        self, pod: PodInfo, old: Resource | None, new: Resource | None, cluster: ClusterState
    ) -> Hint:
        before, after = expect(core.Pod, old), expect(core.Pod, new)
        if not self._resizes or before is None or after is None or not after.spec.node_name:
            return Hint.SKIP
        if self._is_elsewhere(pod, after):
            return Hint.SKIP
        return Hint.QUEUE if _gives_back(self._requests(pod), before, after) else Hint.SKIP

    def after_pod_shrank(self, pod: PodInfo, old: Resource | None, new: Resource | None, cluster: ClusterState) -> Hint:
        return Hint.QUEUE if self._resizes else Hint.SKIP

    def after_other_grew(self, pod: PodInfo, old: Resource | None, new: Resource | None, cluster: ClusterState) -> Hint:
        """Only for a pod that waits to grow on its node: whom to evict there has to be asked again."""
        _, grown = expect(core.Pod, old), expect(core.Pod, new)
        if grown is None or not self._is_deferred(pod) or self._is_elsewhere(pod, grown):
            return Hint.SKIP
        return Hint.QUEUE

    def after_pod_grew(self, pod: PodInfo, old: Resource | None, new: Resource | None, cluster: ClusterState) -> Hint:
        return Hint.QUEUE if self._is_deferred(pod) else Hint.SKIP

    def _is_deferred(self, pod: PodInfo) -> bool:
        return self._deferred and pod.has_deferred_resize

    def _is_elsewhere(self, pod: PodInfo, other: core.Pod) -> bool:
        """What happens on other nodes is nothing to a pod that waits to grow on its own."""
        return self._is_deferred(pod) and other.spec.node_name != pod.spec.node_name


def expect(kind: type[V], found: Resource | None) -> V | None:
    if found is None or isinstance(found, kind):
        return found
    raise TypeError(f"expected a {kind.__name__}, found a {type(found).__name__}")


def fits_alone(requests: Mapping[str, int], node: core.Node) -> bool:
    """Whether the node could take the pod if it were empty."""
    has = allocatable_of(node)
    return has.get(PODS, 0) >= 1 and all(has.get(name, 0) >= amount for name, amount in _wanted(requests).items())


def has_more(requests: Mapping[str, int], before: core.Node, after: core.Node) -> bool:
    """Whether the node now has more of anything that is asked for, or takes more pods."""
    old, new = allocatable_of(before), allocatable_of(after)
    return any(new.get(name, 0) > old.get(name, 0) for name in (PODS, *_wanted(requests)))


def _gives_back(requests: Mapping[str, int], before: core.Pod, after: core.Pod) -> bool:
    held, holds = _held(before), _held(after)
    return any(held.get(name, 0) > holds.get(name, 0) for name in _wanted(requests))


def _held(pod: core.Pod) -> Mapping[str, int]:
    found = held_by(pod)
    return found.needs if found else needs_of(pod.spec)


def _wanted(requests: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in requests.items() if amount and (name in _NATIVE or is_scalar(name))}
