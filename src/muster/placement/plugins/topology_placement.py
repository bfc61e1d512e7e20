"""TopologyPlacementGenerator: splits nodes by a group's topology key into the placements that it may be tried on."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from muster.api import core, volcano
from muster.api.meta import Resource
from muster.api.scheduling.groups import PodGroup
from muster.cluster.columns import ABSENT
from muster.cluster.groups import BrokenHierarchy, Group, GroupKey, Mode, PodGroups
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import (
    Action,
    Code,
    Generated,
    Hint,
    Placement,
    PlacementGenerate,
    Status,
    Wake,
    Wakes,
)
from muster.placement.plugins import changes


class TopologyPlacementGenerator:
    name: ClassVar[str] = "TopologyPlacementGenerator"

    def __init__(self, groups: PodGroups) -> None:
        self._groups = groups

    def generate_placements(self, group: Group, cluster: ClusterState, parent: Placement) -> Generated:
        """One placement a value of the label, in the order of values' first nodes; nodes without it are in none. The
        parent itself where the group has no topology key, and last where it could do without the topology."""
        if group.topology is None or not group.topology.keys:
            return Generated(placements=(parent,))
        key, is_required = group.topology.keys[-1], group.topology.mode is Mode.REQUIRED
        try:
            domain = self._occupied(group, key, cluster)
        except (BrokenHierarchy, _Undetermined) as why:
            if is_required:
                return Generated(Status(Code.ERROR, (f"cannot determine domain for already scheduled pods: {why}",)))
            domain = None
        placements = _split(key, domain, cluster, parent)
        return Generated(placements=placements if is_required else (*placements, parent))

    def wakes(self) -> Sequence[Wake]:
        return (
            Wake("Node", frozenset({Action.ADD, Action.UPDATE_NODE_LABEL}), self.after_node_changed),
            Wake("PodGroup", frozenset({Action.UPDATE}), self.after_group_updated),
            Wake("Pod", frozenset({Action.DELETE})),
        )

    def after_node_changed(
        self, pod: PodInfo, old: Resource | None, new: Resource | None, _cluster: ClusterState
    ) -> Hint:
        before, after = changes.after(core.Node, old, new)
        group = self._groups.of(pod)
        if group is None or group.topology is None:
            return Hint.SKIP
        if not group.topology.keys:
            return Hint.QUEUE
        was, now = (before.metadata.labels or {}) if before else {}, after.metadata.labels or {}
        return Hint.QUEUE if any(was.get(key) != now.get(key) for key in group.topology.keys) else Hint.SKIP

    def after_group_updated(
        self, pod: PodInfo, old: Resource | None, new: Resource | None, _cluster: ClusterState
    ) -> Hint:
        if isinstance(new, volcano.PodGroup):
            before, after = changes.after(volcano.PodGroup, old, new)
            is_changed = before is None or before.spec.network_topology != after.spec.network_topology
        else:
            was, now = changes.after(PodGroup, old, new)
            is_changed = was is None or was.spec.scheduling_constraints != now.spec.scheduling_constraints
        assert new is not None
        group = self._groups.of(pod)
        is_own = group is not None and group.key == GroupKey(new.metadata.namespace, new.metadata.name)
        return Hint.QUEUE if is_own and is_changed else Hint.SKIP

    def _occupied(self, group: Group, key: str, cluster: ClusterState) -> int | None:
        """The code of the label's value where members are; None where none has a node yet."""
        codes, found = cluster.labelled(key), None
        for pod, node in self._groups.scheduled(group.key):
            slot = cluster.slots.get(node)
            if slot is None:
                raise _Undetermined(f'pod {pod.key} is on node "{node}", which is not known')
            code = ABSENT if codes is None else int(codes[slot])
            if code == ABSENT:
                raise _Undetermined(f'pod {pod.key} is on node "{node}", which has no label {key}')
            if found is not None and found != code:
                raise _Undetermined(f'pod {pod.key} on node "{node}" is in another domain of {key} than others')
            found = code
        return found


class _Undetermined(ValueError):
    pass


def _split(key: str, domain: int | None, cluster: ClusterState, parent: Placement) -> list[Placement]:
    codes = cluster.labelled(key)
    if codes is None:
        return []
    inside = parent.nodes & cluster.exists[: cluster.width]
    found, first = np.unique(codes[inside], return_index=True)
    slots = np.flatnonzero(inside)
    placements = []
    for position in np.argsort(first):
        code = int(found[position])
        if code != ABSENT and domain in (None, code):
            name = _value(key, int(slots[first[position]]), cluster)
            placements.append(Placement(name, inside & (codes == code)))
    return placements


def _value(key: str, slot: int, cluster: ClusterState) -> str:
    node = cluster.nodes[slot]
    assert node is not None, f"{key}: a slot that exists has a node"
    return (node.metadata.labels or {})[key]


_generates: PlacementGenerate = TopologyPlacementGenerator(PodGroups())
_wakes: Wakes = TopologyPlacementGenerator(PodGroups())
