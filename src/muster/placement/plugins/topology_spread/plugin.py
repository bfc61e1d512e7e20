"""The plugin: pods that are alike lie evenly over zones, racks, hosts or any topology that node labels tell.

Hard constraints (`DoNotSchedule`) filter, soft ones (`ScheduleAnyway`) score. Pods without any get the defaults, if a
service or a controller selects them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from muster.api.meta import Resource
from muster.cluster.columns import NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import (
    SKIP,
    Action,
    Filter,
    FollowsPods,
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
from muster.placement.plugins.topology_spread import hints
from muster.placement.plugins.topology_spread.args import PodTopologySpreadArgs
from muster.placement.plugins.topology_spread.constraints import (
    DO_NOT_SCHEDULE,
    SCHEDULE_ANYWAY,
    Constraint,
    Rules,
    Written,
    read,
)
from muster.placement.plugins.topology_spread.filtering import HardState
from muster.placement.plugins.topology_spread.scoring import SoftState


class PodTopologySpread:
    name: ClassVar[str] = "PodTopologySpread"
    reads: ClassVar[Reads] = Reads.ALL_PODS

    def __init__(
        self,
        args: PodTopologySpreadArgs | None = None,
        *,
        node_policies: bool = True,
        match_label_keys: bool = True,
        comparison_operators: bool = False,
        resize_preemption: bool = False,
    ) -> None:
        """`node_policies`, `match_label_keys`: constraints may say which nodes count, and may take part of their
        selector from the pod's labels; where not, what they say of it is not read. `comparison_operators` and
        `resize_preemption`: as for TaintToleration."""
        self.args = args or PodTopologySpreadArgs()
        self._rules = Rules(node_policies, match_label_keys, comparison_operators)
        self._scratch = f"{self.name} {self._rules}"
        defaults = read(self.args.constraints, self._rules)
        self._defaults = {
            action: tuple(written.constraint for written in defaults if written.action == action)
            for action in (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY)
        }
        self._resize_preemption = resize_preemption

    # Hard constraints

    def pre_filter(self, pod: PodInfo, cluster: ClusterState) -> Prepared:
        if self._resize_preemption and pod.has_deferred_resize:
            return Prepared(SKIP)
        constraints = self._constraints(pod, cluster, DO_NOT_SCHEDULE)
        if not constraints:
            return Prepared(SKIP)
        return Prepared(state=HardState(constraints, pod, cluster))

    def filter(self, pod: PodInfo, cluster: ClusterState, state: object) -> Sequence[Rejection]:
        assert isinstance(state, HardState)
        return state.rejections()

    def pod_added(self, state: object, pod: PodInfo, other: PodInfo, node: int, cluster: ClusterState) -> None:
        self._change(state, pod, other, node, 1)

    def pod_removed(self, state: object, pod: PodInfo, other: PodInfo, node: int, cluster: ClusterState) -> None:
        self._change(state, pod, other, node, -1)

    def _change(self, state: object, pod: PodInfo, other: PodInfo, node: int, by: int) -> None:
        assert isinstance(state, HardState)
        if other.namespace == pod.namespace and not other.is_terminating:
            state.change(other, node, by)

    # Soft constraints

    def pre_score(self, pod: PodInfo, cluster: ClusterState, feasible: NodeMask) -> Prepared:
        constraints = self._constraints(pod, cluster, SCHEDULE_ANYWAY)
        if not constraints or not cluster.node_count:
            return Prepared(SKIP)
        # A cluster without zones still spreads by host name where nobody asked for more than the built-in defaults.
        needs_all_keys = bool(pod.spec.topology_spread_constraints) or not self.args.is_system
        return Prepared(state=SoftState(constraints, pod, cluster, feasible, needs_all_keys=needs_all_keys))

    def score(self, pod: PodInfo, cluster: ClusterState, state: object) -> NodeScores:
        assert isinstance(state, SoftState)
        return state.scores()

    def normalize(self, scores: NodeScores, feasible: npt.NDArray[np.intp], state: object) -> NodeScores:
        assert isinstance(state, SoftState)
        return state.normalized(scores, feasible)

    # Waking

    def wakes(self) -> Sequence[Wake]:
        pods = frozenset({Action.ADD, Action.UPDATE_POD_LABEL, Action.DELETE})
        own = frozenset({Action.UPDATE_POD_TOLERATION, Action.UPDATE_POD_LABEL})
        nodes = frozenset({Action.ADD, Action.DELETE, Action.UPDATE_NODE_LABEL, Action.UPDATE_NODE_TAINT})
        return (
            Wake("Pod", pods, self.after_assigned_pod),
            Wake("UnscheduledPod", own, self.after_own_update),
            Wake("Node", nodes, self.after_node),
        )

    def after_assigned_pod(
        self, pod: PodInfo, old: Resource | None, new: Resource | None, cluster: ClusterState
    ) -> Hint:
        return hints.after_assigned_pod(pod, self._constraints(pod, cluster, DO_NOT_SCHEDULE), old, new)

    def after_own_update(self, pod: PodInfo, old: Resource | None, new: Resource | None, cluster: ClusterState) -> Hint:
        return hints.after_own_update(self._constraints(pod, cluster, DO_NOT_SCHEDULE), old, new)

    def after_node(self, pod: PodInfo, old: Resource | None, new: Resource | None, cluster: ClusterState) -> Hint:
        return hints.after_node(self._constraints(pod, cluster, DO_NOT_SCHEDULE), old, new)

    # Constraints

    def _constraints(self, pod: PodInfo, cluster: ClusterState, action: str) -> tuple[Constraint, ...]:
        """Those of the pod or, where it brings none of either kind, the defaults, if something selects the pod."""
        if pod.spec.topology_spread_constraints:
            return tuple(written.of_pod(pod.labels) for written in self._written(pod) if written.action == action)
        defaults = self._defaults[action]
        if not defaults or not cluster.pod_selectors:
            return ()
        selector = cluster.pod_selectors.selector_of(pod)
        if not selector.requirements:
            return ()
        return tuple(replace(constraint, selector=selector) for constraint in defaults)

    def _written(self, pod: PodInfo) -> tuple[Written, ...]:
        scratch = pod.shape.scratch
        found = scratch.get(self._scratch)
        if not isinstance(found, tuple):
            found = scratch[self._scratch] = read(pod.spec.topology_spread_constraints, self._rules)
        return found


_pre_filter: PreFilter = PodTopologySpread()
_filter: Filter = PodTopologySpread()
_follows: FollowsPods = PodTopologySpread()
_pre_score: PreScore = PodTopologySpread()
_score: Score = PodTopologySpread()
_normalize: Normalize = PodTopologySpread()
_wakes: Wakes = PodTopologySpread()
