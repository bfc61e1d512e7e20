"""`ClusterState`: nodes and pods as columns and small indexes, mutable, with one owner, and no I/O.

Fed by watch changes and by the scheduler's own assumptions. Matrices are resource-major (`used[resource, node]`): a
filter reads one resource of all nodes as one contiguous row. A node is a position on the node axis ("slot"); the
position of a node that is gone stays, masked out by `exists`, and is given to the next new node.
Pods count against a node by its name, whether or not the node is known yet: changes may come in any order.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, Protocol, Self

import numpy as np

from muster.api import core
from muster.cluster.affinity import AffinityIndex
from muster.cluster.amounts import allocatable_of, gpus_of
from muster.cluster.claims import Claims
from muster.cluster.columns import ABSENT, Amounts, Codes, NodeMask, longer, taller, wider
from muster.cluster.devices import DeviceLedger
from muster.cluster.labelsets import LabelSets
from muster.cluster.namespaces import Namespaces
from muster.cluster.owners import PodSelectors
from muster.cluster.pods import PodInfo, Shapes
from muster.cluster.ports import PortIndex
from muster.cluster.priorities import Priorities
from muster.cluster.queues import QueueAffinities

FINISHED = ("Succeeded", "Failed")
NOT_A_NUMBER = -(2**63)
_INTEGER = re.compile(r"-?[0-9]{1,19}")  # not int(): that takes `1_000`, which is a label value but no number
_LONGEST_LOG = 200_000


class PodObserver(Protocol):
    """An index that follows which pods are where. Told of every pod on a known node, exactly once each way."""

    def pod_assigned(self, pod: PodInfo, slot: int) -> None: ...

    def pod_released(self, pod: PodInfo, slot: int) -> None: ...


class Move(NamedTuple):
    """A pod came to a node, or left it."""

    slot: int
    pod: PodInfo
    came: bool


class Image:
    """An image that nodes have: its size, as the first of them said, and on which slots it is."""

    __slots__ = ("size", "slots")

    def __init__(self, size: int) -> None:
        self.size = size
        self.slots: set[int] = set()


class ClusterState:
    def __init__(self, shapes: Shapes | None = None) -> None:
        self.shapes = shapes or Shapes()
        self.resources: dict[str, int] = {}
        """Row of each resource. Others have no row: no node has any, no pod uses any."""
        self.names: list[str] = []
        self.slots: dict[str, int] = {}
        self.nodes: list[core.Node | None] = []
        self.allocatable: Amounts = np.zeros((8, 16), dtype=np.int64)
        self.used: Amounts = np.zeros((8, 16), dtype=np.int64)
        """[resource, slot]: requests of the pods there. May exceed `allocatable`: nodes shrink."""
        self.nonzero: Amounts = np.zeros((2, 16), dtype=np.int64)
        """[cpu milli | memory bytes, slot]: as scores count usage (see `PodShape.nonzero`)."""
        self.exists: NodeMask = np.zeros(16, dtype=np.bool_)
        self.unschedulable: NodeMask = np.zeros(16, dtype=np.bool_)
        self.taint_code: Codes = np.zeros(16, dtype=np.int32)
        """[slot] → position in `taint_sets`: nodes tainted alike are judged once."""
        self.taint_sets: list[tuple[core.Taint, ...]] = []
        self.label_keys: dict[str, int] = {}
        self.label_values: dict[str, int] = {}
        self.labels: Codes = np.full((8, 16), ABSENT, dtype=np.int32)
        """[label key, slot] → code of the value in `label_values`, or ABSENT."""
        self._numbers: Amounts = np.zeros(0, dtype=np.int64)
        self.images: dict[str, Image] = {}
        self.pods: dict[str, tuple[PodInfo, str]] = {}
        """By uid: every pod that counts, and the name of its node."""
        self.pods_on: list[dict[str, PodInfo]] = []
        """[slot] → the pods there by uid."""
        self.namespaces = Namespaces()
        """Labels of namespaces, for terms that select pods by them."""
        self.pod_selectors = PodSelectors()
        self.label_sets = LabelSets()
        self.affinity = AffinityIndex()
        self.ports = PortIndex()
        self.devices = DeviceLedger()
        self.priorities = Priorities(self.pods_on)
        self.claims = Claims()
        self.queues = QueueAffinities()
        self.observers: list[PodObserver] = [
            self.label_sets,
            self.affinity,
            self.ports,
            self.devices,
            self.priorities,
            self.claims,
        ]
        self.nodes_version = 0
        """Grows with every change of a node: whatever was worked out from node objects is then stale."""
        self.moves: list[Move] = []
        """Every pod that came or went, in order: a reader remembers how far it has read. Starts afresh, with a new
        `nodes_version`, when it has grown long."""
        self._unplaced: dict[str, dict[str, PodInfo]] = {}  # pods on nodes that are not known, by node name
        self._free_slots: list[int] = []
        self._promised: dict[str, int] = {}
        self._priorities: dict[int, int] = {}  # pods on known nodes, counted by priority
        self._taint_codes: dict[tuple[core.Taint, ...], int] = {}

    @classmethod
    def of(cls, nodes: Iterable[core.Node], pods: Iterable[core.Pod] = ()) -> Self:
        """A state from views: those of `pods` that have a node and have not finished count."""
        state = cls()
        for node in nodes:
            state.node_changed(node)
        for pod in pods:
            if pod.spec.node_name and pod.status.phase not in FINISHED:
                state.assign(state.shapes.info(pod), pod.spec.node_name)
        return state

    @property
    def width(self) -> int:
        """Length of the node axis: every column, mask and score is as long."""
        return len(self.names)

    @property
    def node_count(self) -> int:
        return len(self.slots)

    def mask(self, value: bool = False) -> NodeMask:
        return np.full(self.width, value, dtype=np.bool_)

    def column(self, resource: str) -> int | None:
        return self.resources.get(resource)

    def labelled(self, key: str) -> Codes | None:
        """[slot] → the code of the node's value for the label, ABSENT where it has none; None where no node has."""
        row = self.label_keys.get(key)
        return None if row is None else self.labels[row, : self.width]

    def value_code(self, value: str) -> int:
        """The code of a label value; for one that no node has, a code that equals no other."""
        return self.label_values.get(value, ABSENT - 1)

    def label_numbers(self) -> Amounts:
        """[code of a label value] → the value as an integer, NOT_A_NUMBER where it is none. Codes only grow, so each
        value is parsed once."""
        known = len(self._numbers)
        if known < len(self.label_values):
            new = [_number(value) for value in islice(self.label_values, known, None)]
            self._numbers = np.append(self._numbers, np.array(new, dtype=np.int64))
        return self._numbers

    # Nodes

    @property
    def free_slots(self) -> Sequence[int]:
        """Positions without a node; the last is taken first."""
        return self._free_slots

    def lay_out(self, names: Sequence[str], free: Sequence[int]) -> None:
        """Before anything else: the positions that nodes will have, as they were elsewhere. Ties are broken by
        position, so what was decided there can only be decided again with the same."""
        assert not self.names
        for slot, name in enumerate(names):
            self.names.append("")
            self.nodes.append(None)
            self.pods_on.append({})
            if name:
                self._promised[name] = slot
            if slot == self.exists.shape[0]:
                self._widen()
        self._free_slots = list(free)

    def node_changed(self, node: core.Node) -> None:
        """A node was added, or anything about it changed."""
        name = node.metadata.name
        slot = self.slots.get(name)
        if slot is None:
            slot = self._new_slot(name)
        previous = self.nodes[slot]
        self.nodes[slot] = node
        self._set_allocatable(slot, allocatable_of(node))
        self.devices.resize(slot, *gpus_of(node))
        self.exists[slot] = True
        self.unschedulable[slot] = bool(node.spec.unschedulable)
        self.taint_code[slot] = self._taint_code(node.spec.taints)
        self._label(slot, node.metadata.labels or {})
        self._update_images(slot, previous, node)
        self.nodes_version += 1

    def node_removed(self, name: str) -> None:
        slot = self.slots.get(name)
        if slot is None:
            return
        pods = self.pods_on[slot]
        for pod in list(pods.values()):
            self._leave(pod, slot)
        if pods:
            self._unplaced[name] = dict(pods)
            pods.clear()
        self._update_images(slot, self.nodes[slot], None)
        del self.slots[name]
        self.nodes[slot] = None
        self.names[slot] = ""
        self.exists[slot] = False
        self._set_allocatable(slot, {})
        self.devices.resize(slot, 0)
        self._label(slot, {})
        self._free_slots.append(slot)
        self.nodes_version += 1

    # Pods

    def assign(self, pod: PodInfo, node: str) -> None:
        """The pod counts against the node from now on; against the node it was on before, no longer."""
        if pod.uid in self.pods:
            self.release(pod.uid)
        if len(self.moves) > _LONGEST_LOG:
            self.moves.clear()
            self.nodes_version += 1
        self.pods[pod.uid] = (pod, node)
        slot = self.slots.get(node)
        if slot is None:
            self._unplaced.setdefault(node, {})[pod.uid] = pod
            return
        self.pods_on[slot][pod.uid] = pod
        self._enter(pod, slot)

    def release(self, uid: str) -> None:
        known = self.pods.pop(uid, None)
        if known is None:
            return
        pod, node = known
        slot = self.slots.get(node)
        if slot is None:
            waiting = self._unplaced[node]
            del waiting[uid]
            if not waiting:
                del self._unplaced[node]
            return
        del self.pods_on[slot][uid]
        self._leave(pod, slot)

    def has_pods_below(self, priority: int) -> bool:
        """Whether any pod on a node could be evicted for one of this priority."""
        return any(found < priority for found in self._priorities)

    def selects(self, pod: PodInfo) -> bool:
        """Whether pods are told apart by their labels here: by what the pod itself asks for, by terms of pods on nodes,
        or by services whose pods are spread."""
        return self.selects_by_terms(pod) or self.pod_selectors.version > 0

    def selects_by_terms(self, pod: PodInfo) -> bool:
        """The same, services left out."""
        spec = pod.shape.spec
        affinity = spec.affinity
        return (
            self.affinity.has_terms
            or bool(spec.topology_spread_constraints)
            or (affinity is not None and bool(affinity.pod_affinity or affinity.pod_anti_affinity))
        )

    def node_of(self, uid: str) -> str | None:
        known = self.pods.get(uid)
        return known[1] if known else None

    def _enter(self, pod: PodInfo, slot: int) -> None:
        for resource, amount in pod.needs.items():
            self.used[self.row(resource), slot] += amount
        self.nonzero[0, slot] += pod.nonzero[0]
        self.nonzero[1, slot] += pod.nonzero[1]
        self._priorities[pod.priority] = self._priorities.get(pod.priority, 0) + 1
        self.moves.append(Move(slot, pod, True))
        for observer in self.observers:
            observer.pod_assigned(pod, slot)

    def _leave(self, pod: PodInfo, slot: int) -> None:
        for resource, amount in pod.needs.items():
            self.used[self.resources[resource], slot] -= amount
        self.nonzero[0, slot] -= pod.nonzero[0]
        self.nonzero[1, slot] -= pod.nonzero[1]
        self._priorities[pod.priority] -= 1
        if not self._priorities[pod.priority]:
            del self._priorities[pod.priority]
        self.moves.append(Move(slot, pod, False))
        for observer in self.observers:
            observer.pod_released(pod, slot)

    # Columns

    def row(self, resource: str) -> int:
        """The row of a resource, made where it is new."""
        row = self.resources.setdefault(resource, len(self.resources))
        if row == self.used.shape[0]:
            self.used = taller(self.used, 0)
            self.allocatable = taller(self.allocatable, 0)
        return row

    def _set_allocatable(self, slot: int, amounts: Mapping[str, int]) -> None:
        rows = {self.row(resource): amount for resource, amount in amounts.items()}
        self.allocatable[:, slot] = 0
        for row, amount in rows.items():
            self.allocatable[row, slot] = amount

    def _new_slot(self, name: str) -> int:
        if name in self._promised:
            slot = self._promised.pop(name)
            self.names[slot] = name
        elif self._free_slots:
            slot = self._free_slots.pop()
            self.names[slot] = name
        else:
            slot = len(self.names)
            self.names.append(name)
            self.nodes.append(None)
            self.pods_on.append({})
            if slot == self.exists.shape[0]:
                self._widen()
        self.slots[name] = slot
        for pod in self._unplaced.pop(name, {}).values():  # bound before the node was seen
            self.pods_on[slot][pod.uid] = pod
            self._enter(pod, slot)
        return slot

    def _taint_code(self, taints: Sequence[core.Taint]) -> int:
        # Without the time: it decides nothing here, and with it nearly every tainted node would be a class of its own.
        known = tuple(core.Taint(key=taint.key, value=taint.value, effect=taint.effect) for taint in taints)
        code = self._taint_codes.setdefault(known, len(self.taint_sets))
        if code == len(self.taint_sets):
            self.taint_sets.append(known)
        return code

    def _label(self, slot: int, labels: Mapping[str, str]) -> None:
        self.labels[:, slot] = ABSENT
        for key, value in labels.items():
            row = self.label_keys.setdefault(key, len(self.label_keys))
            if row == self.labels.shape[0]:
                self.labels = taller(self.labels, ABSENT)
            self.labels[row, slot] = self.label_values.setdefault(value, len(self.label_values))

    def _update_images(self, slot: int, previous: core.Node | None, node: core.Node | None) -> None:
        before = previous.status.images if previous is not None else ()
        now = node.status.images if node is not None else ()
        if before == now:
            return
        for name in (name for listed in before for name in listed.names):
            image = self.images.get(name)
            if image is not None:
                image.slots.discard(slot)
                if not image.slots:
                    del self.images[name]
        for listed in now:
            for name in listed.names:
                image = self.images.get(name)
                if image is None:
                    image = self.images[name] = Image(listed.size_bytes or 0)
                image.slots.add(slot)

    def _widen(self) -> None:
        self.used = wider(self.used, 0)
        self.allocatable = wider(self.allocatable, 0)
        self.nonzero = wider(self.nonzero, 0)
        self.labels = wider(self.labels, ABSENT)
        self.exists = longer(self.exists)
        self.unschedulable = longer(self.unschedulable)
        self.taint_code = longer(self.taint_code)


def _number(text: str) -> int:
    number = int(text) if _INTEGER.fullmatch(text) else NOT_A_NUMBER
    return number if abs(number) < 2**63 else NOT_A_NUMBER
