"""TaintToleration: keeps pods off nodes with taints that they do not tolerate, and away from those they would rather
avoid. Nodes that are tainted alike are judged once."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from muster.api import core
from muster.api.meta import Resource
from muster.cluster.columns import NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import (
    SKIP,
    Action,
    Filter,
    Hint,
    NodeScores,
    Normalize,
    PreFilter,
    Prepared,
    PreScore,
    Reads,
    Rejection,
    Score,
    Wake,
    Wakes,
)
from muster.placement.plugins import changes
from muster.placement.plugins.scores import default_normalize_score

REASON = "node(s) had untolerated taint(s)"
DO_NOT_SCHEDULE = frozenset({"NoSchedule", "NoExecute"})
"""Effects that keep a pod from being placed."""
PREFER_NOT = "PreferNoSchedule"
_DECIMAL = re.compile(r"0|-?[1-9][0-9]*")
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class TaintToleration:
    name: ClassVar[str] = "TaintToleration"
    reads: ClassVar[Reads] = Reads.NODES
    comparison_operators: bool = False
    """Tolerations may compare numbers (Gt, Lt). Where not, such a toleration matches nothing."""
    resize_preemption: bool = False
    """Pods that wait for a resize on their own node are not judged again."""

    def pre_filter(self, pod: PodInfo, cluster: ClusterState) -> Prepared:
        return Prepared(SKIP) if self._is_resize(pod) else Prepared()

    def filter(self, pod: PodInfo, cluster: ClusterState, state: object) -> Sequence[Rejection]:
        if self._is_resize(pod):
            return ()
        fine = tolerated_nodes(pod, cluster, compares=self.comparison_operators)
        return () if fine.all() else (Rejection(REASON, ~fine, is_unresolvable=True),)

    def pre_score(self, pod: PodInfo, cluster: ClusterState, feasible: NodeMask) -> Prepared:
        return Prepared(state=self._unwelcome(pod, cluster))

    def score(self, pod: PodInfo, cluster: ClusterState, state: object) -> NodeScores:
        """How many taints of each node the pod would rather avoid."""
        counts = state if isinstance(state, np.ndarray) else self._unwelcome(pod, cluster)
        scores: NodeScores = counts[cluster.taint_code[: cluster.width]]
        return scores

    def normalize(self, scores: NodeScores, feasible: npt.NDArray[np.intp], state: object) -> NodeScores:
        return default_normalize_score(scores, is_reversed=True)

    def wakes(self) -> Sequence[Wake]:
        return (
            Wake("Node", frozenset({Action.ADD, Action.UPDATE_NODE_TAINT}), self.after_node_change),
            Wake("UnscheduledPod", frozenset({Action.UPDATE_POD_TOLERATION}), after_toleration_change),
        )

    def after_node_change(
        self, pod: PodInfo, old: Resource | None, new: Resource | None, _cluster: ClusterState
    ) -> Hint:
        before, node = changes.after(core.Node, old, new)
        was_fine = before is not None and self._is_fine(before, pod)
        return Hint.QUEUE if self._is_fine(node, pod) and not was_fine else Hint.SKIP

    def _is_fine(self, node: core.Node, pod: PodInfo) -> bool:
        return untolerated(node.spec.taints, pod.spec.tolerations, compares=self.comparison_operators) is None

    def _is_resize(self, pod: PodInfo) -> bool:
        return self.resize_preemption and pod.has_deferred_resize

    def _unwelcome(self, pod: PodInfo, cluster: ClusterState) -> NodeScores:
        """For each set of taints, how many the pod would rather avoid."""
        tolerations = [one for one in pod.spec.tolerations if (one.effect or PREFER_NOT) == PREFER_NOT]
        counts = [
            sum(
                taint.effect == PREFER_NOT
                and not any(tolerates(one, taint, compares=self.comparison_operators) for one in tolerations)
                for taint in taints
            )
            for taints in cluster.taint_sets
        ]
        return np.array(counts, dtype=np.int64)


def after_toleration_change(_pod: PodInfo, old: Resource | None, new: Resource | None, _cluster: ClusterState) -> Hint:
    """Tolerations can only be added, and one that is added may be the one that was missing."""
    changes.after(core.Pod, old, new)
    return Hint.QUEUE


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


_: Filter = TaintToleration()
_pre_filter: PreFilter = TaintToleration()
_pre_score: PreScore = TaintToleration()
_score: Score = TaintToleration()
_normalize: Normalize = TaintToleration()
_wakes: Wakes = TaintToleration()
