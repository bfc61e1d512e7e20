"""`ClusterArrays`: the nodes of a cluster as columns, the one shape that deciding code reads.

Matrices are resource-major (`free[resource, node]`): a filter reads one resource of all nodes as one
contiguous row. A node is its position on the node axis; positions of nodes that are gone stay, masked out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Amounts: TypeAlias = npt.NDArray[np.int64]
Codes: TypeAlias = npt.NDArray[np.int32]
NodeMask: TypeAlias = npt.NDArray[np.bool_]
"""One truth value a node."""

S = TypeVar("S", np.int64, np.int32, np.bool_)

PODS = "pods"
ABSENT = -1


class NodeTaint(NamedTuple):
    """A taint that keeps pods off; when it was added does not matter here."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, eq=False)
class ClusterArrays:
    """A snapshot: nothing here changes any more. Units are int64: milli for cpu, whole units for all else."""

    resources: Mapping[str, int]
    """Row of each resource. Others have no row: no node has any, no pod uses any."""
    names: Sequence[str]
    """May be longer than the node axis: the arena's own list, which only grows."""
    allocatable: Amounts
    """[resource, node]"""
    free: Amounts
    """[resource, node]; negative where pods were bound past what the node has."""
    exists: NodeMask
    ready: NodeMask
    cordoned: NodeMask
    taint_class: Codes
    """[node] → position in `taint_classes`: nodes tainted alike are judged once."""
    taint_classes: Sequence[tuple[NodeTaint, ...]]
    label_keys: Mapping[str, int]
    label_values: Mapping[str, int]
    labels: Codes
    """[label key, node] → code of the value in `label_values`, or ABSENT."""

    @property
    def node_count(self) -> int:
        return int(self.exists.sum())

    @property
    def schedulable(self) -> NodeMask:
        return self.exists & self.ready & ~self.cordoned

    def with_label(self, key: str, value: str) -> NodeMask:
        row, code = self.label_keys.get(key), self.label_values.get(value)
        if row is None or row >= len(self.labels) or code is None:
            return np.zeros(self.exists.shape, dtype=np.bool_)
        found: NodeMask = self.labels[row] == code
        return found


def taller(matrix: npt.NDArray[S], fill: int) -> npt.NDArray[S]:
    return np.concatenate([matrix, np.full_like(matrix, fill)], axis=0)


def wider(matrix: npt.NDArray[S], fill: int) -> npt.NDArray[S]:
    return np.concatenate([matrix, np.full_like(matrix, fill)], axis=1)


def longer(column: npt.NDArray[S]) -> npt.NDArray[S]:
    return np.concatenate([column, np.zeros_like(column)])
