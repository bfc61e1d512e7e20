"""`Arena`: the mutable ledger behind `ClusterArrays`, fed by watch changes, with one owner.

It only grows: a node keeps its column while it is gone, so that a column means one node in every
snapshot; columns of nodes that never came back are dropped when they outnumber the rest. Pods count
against a node by its name, whether or not the node is known yet: changes may come in any order.
"""

from collections.abc import Iterable, Mapping
from typing import Self

import numpy as np

from muster.api import core
from muster.cluster.amounts import allocatable_of, clamped, needs_of
from muster.cluster.columns import (
    ABSENT,
    PODS,
    Amounts,
    ClusterArrays,
    Codes,
    NodeMask,
    NodeTaint,
    longer,
    taller,
    wider,
)

_PODS_IF_UNSAID = 110  # what a kubelet allows by default
_KEEPS_PODS_OFF = ("NoSchedule", "NoExecute")
_FINISHED = ("Succeeded", "Failed")


class Arena:
    def __init__(self) -> None:
        self._assigned: dict[str, tuple[str, Mapping[str, int]]] = {}
        self._uids_on: dict[str, set[str]] = {}
        self._clear()

    def _clear(self) -> None:
        self._resources: dict[str, int] = {}
        self._slots: dict[str, int] = {}
        self._names: list[str] = []
        self._allocatable: Amounts = np.zeros((4, 16), dtype=np.int64)
        self._free: Amounts = np.zeros((4, 16), dtype=np.int64)
        self._exists: NodeMask = np.zeros(16, dtype=np.bool_)
        self._ready: NodeMask = np.zeros(16, dtype=np.bool_)
        self._cordoned: NodeMask = np.zeros(16, dtype=np.bool_)
        self._taint_class: Codes = np.zeros(16, dtype=np.int32)
        self._taint_codes: dict[tuple[NodeTaint, ...], int] = {}
        self._taint_classes: list[tuple[NodeTaint, ...]] = []
        self._label_keys: dict[str, int] = {}
        self._label_values: dict[str, int] = {}
        self._labels: Codes = np.full((4, 16), ABSENT, dtype=np.int32)
        self._nodes: dict[str, core.Node] = {}

    @classmethod
    def from_views(cls, nodes: Iterable[core.Node], pods: Iterable[core.Pod]) -> Self:
        arena = cls()
        for node in nodes:
            arena.node_changed(node)
        for pod in pods:
            if pod.spec.node_name and pod.status.phase not in _FINISHED:
                arena.pod_assigned(pod.metadata.uid, pod.spec.node_name, needs_of(pod.spec))
        return arena

    def node_changed(self, node: core.Node) -> None:
        """A node was added, or anything about it changed."""
        name = node.metadata.name
        slot = self._slot(name)
        self._nodes[name] = node
        rows = {
            self._resource(resource): amount
            for resource, amount in ({PODS: _PODS_IF_UNSAID} | allocatable_of(node)).items()
        }
        self._free[:, slot] -= self._allocatable[:, slot]
        self._allocatable[:, slot] = 0
        for row, amount in rows.items():
            self._allocatable[row, slot] = amount
        self._free[:, slot] += self._allocatable[:, slot]
        self._exists[slot] = True
        self._ready[slot] = all(c.status == "True" for c in node.status.conditions if c.type == "Ready")
        self._cordoned[slot] = bool(node.spec.unschedulable)
        self._taint_class[slot] = self._taint_code(node)
        self._label(slot, node.metadata.labels or {})

    def node_removed(self, name: str) -> None:
        if self._nodes.pop(name, None) is None:
            return
        self._exists[self._slots[name]] = False
        if len(self._names) > 64 and len(self._names) > 2 * len(self._nodes):
            self._compact()

    def pod_assigned(self, uid: str, node: str, requests: Mapping[str, int]) -> None:
        """The pod counts against the node from now on; against the node it was on before, no longer."""
        known = self._assigned.get(uid)
        amounts = clamped(requests)
        if known == (node, amounts):
            return
        self.pod_released(uid)
        self._assigned[uid] = (node, amounts)
        self._uids_on.setdefault(node, set()).add(uid)
        self._charge(node, amounts, -1)

    def pod_released(self, uid: str) -> None:
        known = self._assigned.pop(uid, None)
        if known is None:
            return
        node, amounts = known
        self._uids_on[node].discard(uid)
        if not self._uids_on[node]:
            del self._uids_on[node]
        self._charge(node, amounts, +1)

    def node_of(self, uid: str) -> str | None:
        """Where the pod counts now."""
        known = self._assigned.get(uid)
        return known[0] if known else None

    def snapshot(self) -> ClusterArrays:
        """Columns are copied (tens of microseconds); the name tables only grow, so they are shared."""
        rows, nodes, keys = len(self._resources), len(self._names), len(self._label_keys)
        return ClusterArrays(
            resources=dict(self._resources),
            names=self._names,
            allocatable=self._allocatable[:rows, :nodes].copy(),
            free=self._free[:rows, :nodes].copy(),
            exists=self._exists[:nodes].copy(),
            ready=self._ready[:nodes].copy(),
            cordoned=self._cordoned[:nodes].copy(),
            taint_class=self._taint_class[:nodes].copy(),
            taint_classes=self._taint_classes,
            label_keys=self._label_keys,
            label_values=self._label_values,
            labels=self._labels[:keys, :nodes].copy(),
        )

    def _charge(self, node: str, amounts: Mapping[str, int], sign: int) -> None:
        slot = self._slots.get(node)
        if slot is None:
            return
        for resource, amount in amounts.items():
            row = self._resource(resource)
            self._free[row, slot] += sign * amount

    def _slot(self, name: str) -> int:
        slot = self._slots.get(name)
        if slot is not None:
            return slot
        slot = self._slots[name] = len(self._names)
        self._names.append(name)
        if slot == self._exists.shape[0]:
            self._widen()
        for uid in self._uids_on.get(name, ()):  # bound before the node was seen
            self._charge(name, self._assigned[uid][1], -1)
        return slot

    def _resource(self, name: str) -> int:
        row = self._resources.setdefault(name, len(self._resources))
        if row == self._free.shape[0]:
            self._free = taller(self._free, 0)
            self._allocatable = taller(self._allocatable, 0)
        return row

    def _taint_code(self, node: core.Node) -> int:
        taints = tuple(
            NodeTaint(taint.key, taint.value or "", taint.effect)
            for taint in node.spec.taints
            if taint.effect in _KEEPS_PODS_OFF
        )
        code = self._taint_codes.setdefault(taints, len(self._taint_classes))
        if code == len(self._taint_classes):
            self._taint_classes.append(taints)
        return code

    def _label(self, slot: int, labels: Mapping[str, str]) -> None:
        self._labels[:, slot] = ABSENT
        for key, value in labels.items():
            row = self._label_keys.setdefault(key, len(self._label_keys))
            if row == self._labels.shape[0]:
                self._labels = taller(self._labels, ABSENT)
            self._labels[row, slot] = self._label_values.setdefault(value, len(self._label_values))

    def _widen(self) -> None:
        self._free = wider(self._free, 0)
        self._allocatable = wider(self._allocatable, 0)
        self._labels = wider(self._labels, ABSENT)
        self._exists = longer(self._exists)
        self._ready = longer(self._ready)
        self._cordoned = longer(self._cordoned)
        self._taint_class = longer(self._taint_class)

    def _compact(self) -> None:
        """Fresh columns for the nodes that exist, in their order. Old snapshots keep the old tables."""
        nodes = [self._nodes[name] for name in self._names if name in self._nodes]
        self._clear()
        for node in nodes:
            self.node_changed(node)
