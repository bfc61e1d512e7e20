"""Pods that are not to be evicted for others, whatever their priority: those that say so, in Volcano's words
(`volcano.sh/preemptable: "false"`), and those that the cluster itself runs on."""

from collections.abc import Iterator
from typing import Final

from muster.api import core
from muster.api.scheduling.validation import SYSTEM_CLASSES
from muster.api.volcano.preemptable import is_protected
from muster.cluster.groups import GroupKey, PodGroups, group_key
from muster.cluster.pods import PodInfo
from muster.placement.preempting.victims import Victim

__all__ = ["Protected", "is_kept", "is_protected"]

_SYSTEM_NAMESPACE: Final = "kube-system"


_SYSTEM_PRIORITY: Final = min(SYSTEM_CLASSES.values())


def is_kept(pod: core.Pod) -> bool:
    """Whether it is not to be evicted for others, for its own sake: its group may say so too."""
    # Where the priority of a pod of the system says so already, only another such can evict it. Every node has some,
    # and nodes with pods that are kept take longer to search.
    if (pod.spec.priority or 0) < _SYSTEM_PRIORITY and _is_systems(pod):
        return True
    return is_protected(pod.metadata)


def _is_systems(pod: core.Pod) -> bool:
    return pod.metadata.namespace == _SYSTEM_NAMESPACE or pod.spec.priority_class_name in SYSTEM_CLASSES


class Protected:
    """Those kept for their own sake, by uid, and groups that say so for all their pods. Its owner tells it of all."""

    def __init__(self) -> None:
        self._pods: set[str] = set()
        self._groups: set[GroupKey] = set()
        self.version = 0
        """Grows with every change that does not show in pods coming to nodes or leaving them."""

    def __bool__(self) -> bool:
        return bool(self._pods or self._groups)

    def tell_pod(self, uid: str, is_protected: bool, is_placed: bool) -> None:
        if is_protected != (uid in self._pods):
            self._pods ^= {uid}
            self.version += is_placed

    def tell_group(self, key: GroupKey, is_protected: bool) -> None:
        if is_protected != (key in self._groups):
            self._groups ^= {key}
            self.version += 1

    def has(self, pod: PodInfo) -> bool:
        return pod.uid in self._pods or (bool(self._groups) and group_key(pod) in self._groups)

    def shields(self, victim: Victim) -> bool:
        return bool(self) and any(self.has(pod) for pod in victim.pods)

    def uids(self, groups: PodGroups) -> Iterator[str]:
        """Of all that are known: some may have no node."""
        yield from self._pods
        for key in self._groups:
            yield from groups.members(key).nodes
