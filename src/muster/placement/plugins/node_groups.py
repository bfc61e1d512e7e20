"""NodeGroups: pods of a queue go to the groups of nodes that the queue is for (`affinity` of Volcano's queues).

A node is in a group by a label. Nodes in a group are for the queues that name it: pods of other queues keep off them,
and may use all nodes that are in no group. Pods that are in no queue are not looked at.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from muster.api import fields, raw, volcano
from muster.api.errors import FieldError
from muster.api.meta import Resource
from muster.cluster.columns import ABSENT, NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.queues import NODE_GROUP, NodeGroupRules
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
from muster.placement.plugins.resource_hints import expect
from muster.placement.plugins.scores import default_normalize_score

REASON = "node(s) are not in a node group of the pod's queue"
_REQUIRED, _PREFERRED, _AVOIDED = 100, 50, -1


@dataclass(frozen=True, slots=True)
class NodeGroupsArgs:
    strict: bool = False
    """Pods of a queue that is for no group have no nodes at all."""
    ordered: bool = False
    """Of the groups that a queue prefers, those named first are better."""

    @classmethod
    def from_document(cls, document: Mapping[str, raw.JSON]) -> Self | list[FieldError]:
        known = ("strict", "ordered")
        errors = [
            fields.forbidden(name, f"unknown field; known are {', '.join(known)}")
            for name in document
            if name not in known
        ]
        errors += [
            fields.invalid(name, document[name], "must be true or false")
            for name in known
            if not isinstance(document.get(name, False), bool)
        ]
        return errors or cls(bool(document.get("strict")), bool(document.get("ordered")))


_DEFAULTS = NodeGroupsArgs()


class NodeGroups:
    name: ClassVar[str] = "NodeGroups"
    reads: ClassVar[Reads] = Reads.NODES

    def __init__(self, args: NodeGroupsArgs = _DEFAULTS) -> None:
        self._args = args

    def pre_filter(self, pod: PodInfo, cluster: ClusterState) -> Prepared:
        rules = cluster.queues.rules_for(pod.group)
        if rules is None:
            return Prepared(SKIP)
        has_groups = cluster.labelled(NODE_GROUP) is not None
        return Prepared() if has_groups or self._args.strict or rules.say_anything else Prepared(SKIP)

    def filter(self, pod: PodInfo, cluster: ClusterState, state: object) -> Sequence[Rejection]:
        rules = cluster.queues.rules_for(pod.group)
        rejected = cluster.mask() if rules is None else ~self._allowed(rules, cluster)
        return [Rejection(REASON, rejected, is_unresolvable=True)] if rejected.any() else []

    def _allowed(self, rules: NodeGroupRules, cluster: ClusterState) -> NodeMask:
        """A group that is only avoided may be used, also where it is forbidden too. Who wants groups gets no others."""
        if not rules.say_anything:
            codes = cluster.labelled(NODE_GROUP)
            outside = cluster.mask(True) if codes is None else codes == ABSENT
            return outside & (not self._args.strict)
        if rules.required or rules.preferred:
            return _in_any(cluster, (*rules.required, *rules.preferred, *rules.avoided))
        return ~_in_any(cluster, rules.forbidden) | _in_any(cluster, rules.avoided)

    def pre_score(self, pod: PodInfo, cluster: ClusterState, feasible: NodeMask) -> Prepared:
        rules = cluster.queues.rules_for(pod.group)
        return Prepared() if rules is not None and rules.say_anything else Prepared(SKIP)

    def score(self, pod: PodInfo, cluster: ClusterState, state: object) -> NodeScores:
        """From 0 up: `points`, less those of a group that is avoided."""
        scores = np.full(cluster.width, -_AVOIDED, dtype=np.int64)
        rules, codes = cluster.queues.rules_for(pod.group), cluster.labelled(NODE_GROUP)
        if rules is not None and codes is not None:
            for group in {*rules.required, *rules.preferred, *rules.avoided}:
                scores[codes == cluster.value_code(group)] += round(self.points(rules, group))
        return scores

    def points(self, rules: NodeGroupRules, group: str | None) -> float:
        """What Volcano gives the nodes of a group."""
        total = float(_REQUIRED if group in rules.required else 0)
        if group in rules.preferred:
            count, place = len(rules.preferred), rules.preferred.index(group)
            total += _PREFERRED * (count - place) / count if self._args.ordered else _PREFERRED
        return total + (_AVOIDED if group in rules.avoided else 0)

    def normalize(self, scores: NodeScores, feasible: npt.NDArray[np.intp], state: object) -> NodeScores:
        return default_normalize_score(scores)

    def wakes(self) -> Sequence[Wake]:
        return (
            Wake("Node", frozenset({Action.ADD, Action.UPDATE_NODE_LABEL})),
            Wake("Queue", frozenset({Action.ADD, Action.UPDATE, Action.DELETE})),
            Wake("PodGroup", frozenset({Action.UPDATE}), self.after_group_update, reads_labels=False),
        )

    def after_group_update(
        self, pod: PodInfo, old: Resource | None, new: Resource | None, cluster: ClusterState
    ) -> Hint:
        """Groups are written whenever one of their pods starts or ends: only another queue is of interest."""
        before, after = expect(volcano.PodGroup, old), expect(volcano.PodGroup, new)
        if before is None or after is None or pod.group != (after.metadata.namespace, after.metadata.name):
            return Hint.SKIP
        return Hint.QUEUE if before.spec.queue != after.spec.queue else Hint.SKIP


def _in_any(cluster: ClusterState, groups: Iterable[str]) -> NodeMask:
    codes = cluster.labelled(NODE_GROUP)
    if codes is None:
        return cluster.mask()
    inside: NodeMask = np.isin(codes, [cluster.value_code(group) for group in groups])
    return inside


_PLUGIN = NodeGroups()
_pre_filter: PreFilter = _PLUGIN
_filter: Filter = _PLUGIN
_pre_score: PreScore = _PLUGIN
_score: Score = _PLUGIN
_normalize: Normalize = _PLUGIN
_wakes: Wakes = _PLUGIN
