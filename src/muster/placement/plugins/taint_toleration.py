"""TaintToleration: keeps pods off nodes with taints that they do not tolerate, and away from those they would rather
avoid. Nodes that are tainted alike are judged once."""

import re
from collections.abc import Collection, Iterable

import numpy as np

from muster.api import core
from muster.cluster.columns import NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState

DO_NOT_SCHEDULE = frozenset({"NoSchedule", "NoExecute"})
"""Effects that keep a pod from being placed."""
_DECIMAL = re.compile(r"0|-?[1-9][0-9]*")
_INT64 = range(-(2**63), 2**63)


def tolerated_nodes(
    pod: PodInfo, cluster: ClusterState, effects: Collection[str] = DO_NOT_SCHEDULE, *, compares: bool = False
) -> NodeMask:
    """Nodes without a taint of one of the effects that the pod does not tolerate. `compares`: as for `tolerates`."""
    tolerations = pod.spec.tolerations
    fine = [untolerated(taints, tolerations, effects, compares=compares) is None for taints in cluster.taint_sets]
    mask: NodeMask = np.array(fine, dtype=np.bool_)[cluster.taint_code[: cluster.width]]
    return np.logical_and(mask, cluster.exists[: cluster.width], out=mask)


def untolerated(
    taints: Iterable[core.Taint],
    tolerations: Collection[core.Toleration],
    effects: Collection[str] = DO_NOT_SCHEDULE,
    *,
    compares: bool = False,
) -> core.Taint | None:
    """The first taint with one of the effects that no toleration matches."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(one, taint, compares=compares) for one in tolerations):
            return taint
    return None


def tolerates(toleration: core.Toleration, taint: core.Taint, *, compares: bool = False) -> bool:
    """As Kubernetes reads tolerations: an empty key or effect matches any. `compares`: the operators Gt and Lt are
    known, which hold where the taint's value is greater or less than the toleration's; else they match nothing."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator or "Equal":
        case "Equal":
            return (toleration.value or "") == (taint.value or "")
        case "Exists":
            return True
        case "Gt" if compares:
            return _is_less(toleration.value or "", taint.value or "")
        case "Lt" if compares:
            return _is_less(taint.value or "", toleration.value or "")
        case _:
            return False


def _is_less(left: str, right: str) -> bool:
    if not (_DECIMAL.fullmatch(left) and _DECIMAL.fullmatch(right)):
        return False
    low, high = int(left), int(right)
    return low in _INT64 and high in _INT64 and low < high
