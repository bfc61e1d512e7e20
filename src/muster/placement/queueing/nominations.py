"""Pods that were promised a node, while those that are in their way there come to their end."""

from collections.abc import Sequence

from muster.cluster.pods import PodInfo


class Nominations:
    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._node_of: dict[str, str] = {}

    def nominate(self, pod: PodInfo, node: str) -> None:
        """An empty `node` takes the promise back."""
        self.forget(pod.uid)
        if node:
            self._by_node.setdefault(node, {})[pod.uid] = pod
            self._node_of[pod.uid] = node

    def updated(self, old: PodInfo, pod: PodInfo) -> None:
        """A promise made in memory holds until the object that says so comes back, or says otherwise."""
        if old.nominated or pod.nominated:
            self.nominate(pod, pod.nominated)
        elif pod.uid in self._node_of:
            self._by_node[self._node_of[pod.uid]][pod.uid] = pod

    def forget(self, uid: str) -> None:
        node = self._node_of.pop(uid, None)
        if node is not None:
            pods = self._by_node[node]
            del pods[uid]
            if not pods:
                del self._by_node[node]

    def on(self, node: str) -> Sequence[PodInfo]:
        return tuple(self._by_node.get(node, {}).values())

    def nodes(self) -> Sequence[str]:
        """All nodes that any pod was promised."""
        return tuple(self._by_node)

    def node_of(self, uid: str) -> str | None:
        return self._node_of.get(uid)
