"""InterPodAffinity: near to some pods and away from others, as terms of the pod and of the pods on nodes say."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from muster.cluster.affinity_terms import terms_of
from muster.cluster.columns import NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import (
    SKIP,
    Action,
    Code,
    Filter,
    FollowsPods,
    NodeScores,
    Normalize,
    PreFilter,
    Prepared,
    PreScore,
    Reads,
    Rejection,
    Score,
    Status,
    Wake,
    Wakes,
)
from muster.placement.plugins.inter_pod_affinity import hints
from muster.placement.plugins.inter_pod_affinity.arguments import InterPodAffinityArgs
from muster.placement.plugins.inter_pod_affinity.filtering import FilterState
from muster.placement.plugins.inter_pod_affinity.scoring import Weights, spread_out, weigh

__all__ = ["FilterState", "InterPodAffinity", "InterPodAffinityArgs"]


@dataclass(frozen=True, slots=True)
class InterPodAffinity:
    name: ClassVar[str] = "InterPodAffinity"
    reads: ClassVar[Reads] = Reads.ALL_PODS
    args: InterPodAffinityArgs = field(default_factory=InterPodAffinityArgs)
    resize_preemption: bool = False
    """Pods that wait for a resize on their own node are not judged again."""

    def pre_filter(self, pod: PodInfo, cluster: ClusterState) -> Prepared:
        if self.resize_preemption and pod.has_deferred_resize:
            return Prepared(SKIP)
        terms = terms_of(pod)
        if terms.error is not None:
            return Prepared(Status(Code.UNRESOLVABLE, (f"parsing pod: {terms.error}",)))
        state = FilterState(pod, cluster, terms)
        return Prepared(state=state) if state.is_needed else Prepared(SKIP)

    def filter(self, pod: PodInfo, cluster: ClusterState, state: object) -> Sequence[Rejection]:
        if self.resize_preemption and pod.has_deferred_resize:
            return ()
        assert isinstance(state, FilterState)
        return state.rejections()

    def pod_added(self, state: object, pod: PodInfo, other: PodInfo, node: int, cluster: ClusterState) -> None:
        assert isinstance(state, FilterState)
        state.follow(other, node, 1)

    def pod_removed(self, state: object, pod: PodInfo, other: PodInfo, node: int, cluster: ClusterState) -> None:
        assert isinstance(state, FilterState)
        state.follow(other, node, -1)

    def pre_score(self, pod: PodInfo, cluster: ClusterState, feasible: NodeMask) -> Prepared:
        terms = terms_of(pod)
        if self.args.ignore_preferred_terms_of_existing_pods and not terms.has_preferences:
            return Prepared(SKIP)
        if terms.error is not None:
            return Prepared(Status(Code.ERROR, (f"failed to parse pod: {terms.error}",)))
        weights = weigh(pod, cluster, terms, self.args.hard_pod_affinity_weight)
        return Prepared(SKIP) if weights.is_empty else Prepared(state=weights)

    def score(self, pod: PodInfo, cluster: ClusterState, state: object) -> NodeScores:
        assert isinstance(state, Weights)
        return state.scores()

    def normalize(self, scores: NodeScores, feasible: npt.NDArray[np.intp], state: object) -> NodeScores:
        return spread_out(scores)

    def wakes(self) -> Sequence[Wake]:
        pod_changes = frozenset({Action.ADD, Action.UPDATE_POD_LABEL, Action.DELETE})
        return (
            Wake("Pod", pod_changes, hints.after_pod_change),
            Wake("UnscheduledPod", frozenset({Action.UPDATE_POD_LABEL}), hints.after_own_label_change),
            Wake("Node", frozenset({Action.ADD, Action.UPDATE_NODE_LABEL}), hints.after_node_change),
        )


_: Filter = InterPodAffinity()
_pre_filter: PreFilter = InterPodAffinity()
_follows_pods: FollowsPods = InterPodAffinity()
_pre_score: PreScore = InterPodAffinity()
_score: Score = InterPodAffinity()
_normalize: Normalize = InterPodAffinity()
_wakes: Wakes = InterPodAffinity()
