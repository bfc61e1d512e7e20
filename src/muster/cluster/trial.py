"""Moving pods in thought: everything done through a `Trial` can be taken back, in one step or in part."""

from dataclasses import dataclass, field
from typing import Self

from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState


@dataclass(slots=True)
class Trial:
    """Use as a context manager: what was not kept by `commit` is undone on leaving."""

    cluster: ClusterState
    _done: list[tuple[str, PodInfo, str]] = field(default_factory=list)

    def assign(self, pod: PodInfo, node: str) -> None:
        self.cluster.assign(pod, node)
        self._done.append(("assigned", pod, node))

    def release(self, pod: PodInfo) -> None:
        node = self.cluster.node_of(pod.uid)
        assert node is not None, f"{pod.key} is on no node"
        self.cluster.release(pod.uid)
        self._done.append(("released", pod, node))

    @property
    def mark(self) -> int:
        """A point to go back to with `undo`."""
        return len(self._done)

    def undo(self, to: int = 0) -> None:
        while len(self._done) > to:
            what, pod, node = self._done.pop()
            if what == "assigned":
                self.cluster.release(pod.uid)
            else:
                self.cluster.assign(pod, node)

    def commit(self) -> None:
        self._done.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.undo()
