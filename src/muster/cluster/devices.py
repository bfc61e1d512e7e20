"""`DeviceLedger`: which pods have which GPUs of their nodes, whole ones and shares.

A pod gets whole GPUs that nobody else uses, and a share within one GPU. A share goes to the GPU in use that it fills
best, so that whole ones stay whole. What a pod's annotation says it has is taken as said: its processes run there. Pods
without one are dealt GPUs when they come, and keep them once anybody was told which.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from muster.cluster.amounts import GPU, GPU_MILLI, WHOLE_GPU
from muster.cluster.pods import PodInfo

FreeMilli: TypeAlias = npt.NDArray[np.int16]
"""[device, slot]: thousandths that nobody uses; 0 also where the node has no such device."""

_REMEMBERED = 4096
MOST_DEVICES = 256  # of one node; whoever reports more has made a mistake, and must not cost memory


class Wants(NamedTuple):
    """What a pod asks of its node's GPUs."""

    whole: int
    share: int
    """Thousandths of one more GPU."""


class Holding(NamedTuple):
    device: int
    milli: int


Holdings: TypeAlias = tuple[Holding, ...]
NOTHING = Wants(0, 0)
"""Compared by identity: nearly every pod wants this."""


def wants(pod: PodInfo) -> Wants:
    needs = pod.needs
    whole, share = needs.get(GPU, 0), needs.get(GPU_MILLI, 0)
    if not share:
        return Wants(whole, 0) if whole else NOTHING
    # A share of all of one GPU is a whole GPU.
    return Wants(whole + 1, 0) if share == WHOLE_GPU else Wants(whole, share)


def format_holdings(holdings: Iterable[Holding]) -> str:
    """As in `0,3` (whole ones) and `2:500` (half of one)."""
    return ",".join(str(one.device) if one.milli == WHOLE_GPU else f"{one.device}:{one.milli}" for one in holdings)


def parse_holdings(text: str) -> Holdings | None:
    """None where the text is not of that form, or names a device twice."""
    found = []
    for part in text.split(","):
        device, colon, milli = part.partition(":")
        if not (_is_number(device) and (_is_number(milli) if colon else True)):
            return None
        found.append(Holding(int(device), int(milli) if colon else WHOLE_GPU))
    if len({one.device for one in found}) < len(found):
        return None
    return tuple(found) if all(one.device < MOST_DEVICES and 0 < one.milli <= WHOLE_GPU for one in found) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 4


def choose(free: Sequence[int], wanted: Wants) -> Holdings | None:
    """Devices with so much free that best serve what is wanted; None where they do not."""
    unused = [device for device, milli in enumerate(free) if milli == WHOLE_GPU]
    if len(unused) < wanted.whole or wanted.share > WHOLE_GPU:
        return None
    whole = tuple(Holding(device, WHOLE_GPU) for device in unused[: wanted.whole])
    if not wanted.share:
        return whole
    opened = [(milli, device) for device, milli in enumerate(free) if wanted.share <= milli < WHOLE_GPU]
    if opened:
        return (*whole, Holding(min(opened)[1], wanted.share))
    if len(unused) == wanted.whole:
        return None
    return (*whole, Holding(unused[-1], wanted.share))


class _Node:
    """The GPUs of one slot."""

    __slots__ = ("count", "disabled", "held", "loose", "waiting")

    def __init__(self) -> None:
        self.count = 0
        self.disabled: frozenset[int] = frozenset()
        """Not to be given to anybody new."""
        self.held: dict[str, Holdings] = {}
        self.loose: dict[str, PodInfo] = {}
        """Those of `held` that nobody has been told yet: they may still be dealt others."""
        self.waiting: dict[str, PodInfo] = {}
        """Pods that are on the node, though it has no GPUs for them."""

    def free(self) -> list[int]:
        # Not below zero: what annotations say can be too much in all.
        left = [WHOLE_GPU] * self.count
        for holdings in self.held.values():
            for device, milli in holdings:
                if device < self.count:
                    left[device] -= milli
        return [0 if device in self.disabled else max(milli, 0) for device, milli in enumerate(left)]

    def has_room(self, holdings: Holdings) -> bool:
        free = self.free()
        return all(device >= self.count or free[device] >= milli for device, milli in holdings)

    def settle(self) -> None:
        """Deals what is free to those who wait for it, the largest first: small ones fit into what is left."""
        for uid, pod in sorted(self.waiting.items(), key=lambda entry: (wants(entry[1]), entry[0]), reverse=True):
            dealt = choose(self.free(), wants(pod))
            if dealt is not None:
                self.held[uid] = dealt
                self.loose[uid] = self.waiting.pop(uid)


class DeviceLedger:
    """A `PodObserver`, which is also told how many GPUs a node has."""

    def __init__(self) -> None:
        self._nodes: dict[int, _Node] = {}
        self._free: FreeMilli = np.zeros((8, 16), dtype=np.int16)
        self._counts: npt.NDArray[np.int64] = np.zeros(16, dtype=np.int64)
        self._told: dict[str, tuple[int, Holdings]] = {}
        """By uid, latest last: (slot, devices) of pods whose annotation is on its way. Until it is seen, the pod may
        come and go without it."""

    def free(self, width: int) -> FreeMilli:
        """Of all devices of all nodes."""
        self._make_room(width)
        return self._free[:, :width]

    def free_at(self, slot: int) -> list[int]:
        node = self._nodes.get(slot)
        if node is None:
            return []
        column: list[int] = self._free[: node.count, slot].tolist()
        return column

    def counts(self, width: int) -> npt.NDArray[np.int64]:
        """How many GPUs each node has."""
        self._make_room(width)
        return self._counts[:width]

    def resize(self, slot: int, count: int, disabled: frozenset[int] = frozenset()) -> None:
        """The node at the slot has so many GPUs from now on; those that are disabled are not given out, and count as
        well."""
        count = min(count, MOST_DEVICES)
        node = self._nodes.get(slot)
        if node is None:
            if not count:
                return
            node = self._nodes[slot] = _Node()
        if (node.count, node.disabled) != (count, disabled):
            node.count, node.disabled = count, disabled
            self._settle(slot, node)

    def pod_assigned(self, pod: PodInfo, slot: int) -> None:
        wanted = wants(pod)
        if wanted is NOTHING:
            return
        node = self._nodes.setdefault(slot, _Node())
        stated = self._stated(pod, slot)
        if stated is None or _total(stated) != wanted:
            node.waiting[pod.uid] = pod
        else:
            if not node.has_room(stated):
                for uid, other in node.loose.items():
                    del node.held[uid]
                    node.waiting[uid] = other
                node.loose.clear()
            node.held[pod.uid] = stated
        self._settle(slot, node)

    def pod_released(self, pod: PodInfo, slot: int) -> None:
        if wants(pod) is NOTHING:
            return
        node = self._nodes[slot]
        node.held.pop(pod.uid, None)
        node.loose.pop(pod.uid, None)
        node.waiting.pop(pod.uid, None)
        self._settle(slot, node)

    def forget(self, uid: str) -> None:
        """Nobody will be told after all which devices the pod has: others may get them."""
        self._told.pop(uid, None)

    def holdings(self, pod: PodInfo, slot: int) -> Holdings:
        """The GPUs that the pod has on the node, or would get there; none where they are too few."""
        node = self._nodes.get(slot)
        if node is None:
            return ()
        held = node.held.get(pod.uid)
        return held if held is not None else choose(node.free(), wants(pod)) or ()

    def annotation(self, pod: PodInfo, slot: int) -> str:
        """The devices that the pod has on the node, as its annotation says it; empty for a pod without GPUs. It keeps
        them: the caller will tell the node."""
        holdings = self.holdings(pod, slot)
        node = self._nodes.get(slot)
        if node is not None and node.loose.pop(pod.uid, None) is not None:
            self._told[pod.uid] = (slot, holdings)
            if len(self._told) > _REMEMBERED:
                del self._told[next(iter(self._told))]
        return format_holdings(holdings)

    def _stated(self, pod: PodInfo, slot: int) -> Holdings | None:
        """The devices that the pod is known to have, by its annotation or by what was told."""
        if pod.devices:
            self._told.pop(pod.uid, None)
            return parse_holdings(pod.devices)
        where, holdings = self._told.get(pod.uid, (slot, None))
        return holdings if where == slot else None

    def _settle(self, slot: int, node: _Node) -> None:
        if node.waiting and node.count:
            node.settle()
        self._make_room(slot + 1, node.count)
        self._counts[slot] = node.count
        self._free[:, slot] = 0
        self._free[: node.count, slot] = node.free()
        if not (node.count or node.held or node.waiting):
            del self._nodes[slot]

    def _make_room(self, width: int, count: int = 0) -> None:
        devices, slots = self._free.shape
        if width <= slots and count <= devices:
            return
        grown = np.zeros((_doubled(devices, count), _doubled(slots, width)), dtype=np.int16)
        grown[:devices, :slots] = self._free
        self._free = grown
        counts = np.zeros(grown.shape[1], dtype=np.int64)
        counts[:slots] = self._counts
        self._counts = counts


def _total(holdings: Holdings) -> Wants:
    shares = [one.milli for one in holdings if one.milli < WHOLE_GPU]
    return Wants(len(holdings) - len(shares), sum(shares))


def _doubled(size: int, needed: int) -> int:
    while size < needed:
        size *= 2
    return size
