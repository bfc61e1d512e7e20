"""The columns of `ClusterState`: their types, and how they grow.

Matrices are resource-major (`used[resource, node]`): a filter reads one resource of all nodes as one
contiguous row.
"""

from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Amounts: TypeAlias = npt.NDArray[np.int64]
Codes: TypeAlias = npt.NDArray[np.int32]
NodeMask: TypeAlias = npt.NDArray[np.bool_]
"""One truth value a node."""

S = TypeVar("S", np.int64, np.int32, np.bool_)

PODS = "pods"
ABSENT = -1


def taller(matrix: npt.NDArray[S], fill: int) -> npt.NDArray[S]:
    return np.concatenate([matrix, np.full_like(matrix, fill)], axis=0)


def wider(matrix: npt.NDArray[S], fill: int) -> npt.NDArray[S]:
    return np.concatenate([matrix, np.full_like(matrix, fill)], axis=1)


def longer(column: npt.NDArray[S]) -> npt.NDArray[S]:
    return np.concatenate([column, np.zeros_like(column)])
