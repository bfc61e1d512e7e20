"""What a workload could be given: a flavor for every resource, how well each fits, and why not better."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple

from muster.api.raw import Document
from muster.quota.amounts import FlavorResource, all_shown
from muster.quota.topology import PlacementRequest, TopologyAssignment, to_document
from muster.quota.workloads import NO_USAGE, ScanPosition, Usage


class Mode(IntEnum):
    """How the whole of a pod set or workload fits; the worse, the smaller."""

    NO_FIT = 0
    PREEMPT = 1
    DEFERRED_FIT = 2
    """It fits as soon as those are gone whom others preempt in this cycle."""
    FIT = 3

    @property
    def shown(self) -> str:
        return {0: "NoFit", 1: "Preempt", 2: "DeferredFit", 3: "Fit"}[self.value]


class Degree(IntEnum):
    """How one flavor fits; the worse, the smaller."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4

    @property
    def mode(self) -> Mode:
        return Mode.NO_FIT if self is Degree.NO_FIT else Mode.FIT if self is Degree.FIT else Mode.PREEMPT


class Fitness(NamedTuple):
    """`borrow`: how high up the tree the lender is."""

    degree: Degree
    borrow: int


class NoFitReason(StrEnum):
    """From bad to worse: which reason stands for a workload with several."""

    NONE = ""
    TOPOLOGY = "TopologyPlacementFailed"
    WAITING = "WaitingForQuota"
    EXCEEDS = "ExceedsMaxQuota"
    NO_FLAVOR = "NoMatchingFlavor"


@dataclass(frozen=True, slots=True)
class FlavorChoice:
    flavor: str
    mode: Mode
    borrow: int = 0
    tried_index: int = -1
    """Of the last flavor that was looked at; -1: all were."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What one resource of a flavor lacks. `level`: the path of the node of the tree that has no more to give."""

    resource: str
    asked: int
    """By this pod set and those before it."""
    limit: int
    """How much there is: free now or, where it `is_permanent`, if nobody used anything."""
    level: str
    is_permanent: bool = False

    @property
    def missing(self) -> int:
        return self.asked - self.limit


@dataclass(frozen=True, slots=True)
class Attempt:
    """One flavor that was looked at. `possibility`: what preemption could do; empty where it was not asked."""

    flavor: str
    mode: Mode
    borrow: int = 0
    possibility: str = ""
    no_fit_reason: NoFitReason = NoFitReason.NONE
    reasons: tuple[str, ...] = ()
    shortfalls: tuple[Shortfall, ...] = ()


@dataclass(slots=True, eq=False)
class PodSetAssignment:
    name: str
    count: int
    requests: Mapping[str, int]
    """Of all its pods together, `pods` included where the queue counts them."""
    flavors: dict[str, FlavorChoice] = field(default_factory=dict)
    """By resource. Without any for a resource that is free, or that does not fit."""
    reasons: list[str] = field(default_factory=list)
    error: str | None = None
    attempts: list[Attempt] = field(default_factory=list)
    topology: TopologyAssignment | None = None
    delayed_topology: str | None = None
    no_fit_reason: NoFitReason = NoFitReason.NONE

    @property
    def mode(self) -> Mode:
        if self.error is not None:
            return Mode.NO_FIT
        if not self.reasons:
            return Mode.FIT
        if not self.flavors:
            return Mode.NO_FIT
        return min(choice.mode for choice in self.flavors.values())

    def all_in(self, mode: Mode) -> None:
        """At best as well as that: its topology does not allow more."""
        for resource, choice in self.flavors.items():
            worse = min(choice.mode, mode)
            self.flavors[resource] = FlavorChoice(choice.flavor, worse, choice.borrow, choice.tried_index)


@dataclass(slots=True, eq=False)
class Assignment:
    pod_sets: list[PodSetAssignment] = field(default_factory=list)
    borrowing: int = 0
    usage: Usage = NO_USAGE
    """Beyond what the workload, or the slice that it replaces, holds already."""
    scan: ScanPosition | None = None
    places: Mapping[str, Sequence[PlacementRequest]] = field(default_factory=dict)
    """By flavor with a topology: pods that must find a place there too."""

    @property
    def mode(self) -> Mode:
        """The worst of its pod sets."""
        return min((pods.mode for pods in self.pod_sets), default=Mode.NO_FIT)

    @property
    def borrows(self) -> bool:
        return self.borrowing > 0

    @property
    def no_fit_reason(self) -> NoFitReason:
        order = list(NoFitReason)
        return max((pods.no_fit_reason for pods in self.pod_sets), key=order.index, default=NoFitReason.NONE)

    def message(self) -> str:
        """Why it is not given more, pod set by pod set, as Kueue says it."""
        parts = []
        for pods in self.pod_sets:
            if pods.error is not None:
                return f"failed to assign flavors to pod set {pods.name}: {pods.error}"
            if pods.reasons:
                parts.append(f"couldn't assign flavors to pod set {pods.name}: {', '.join(sorted(pods.reasons))}")
        return "; ".join(parts)

    def needing_preemption(self) -> frozenset[FlavorResource]:
        return frozenset(
            FlavorResource(choice.flavor, resource)
            for pods in self.pod_sets
            for resource, choice in pods.flavors.items()
            if choice.mode is Mode.PREEMPT
        )

    def to_admission(self, queue: str) -> Document:
        """`status.admission` of the workload."""
        return {"clusterQueue": queue, "podSetAssignments": [_pod_set_document(pods) for pods in self.pod_sets]}


def _pod_set_document(pods: PodSetAssignment) -> Document:
    document: Document = {"name": pods.name, "count": pods.count}
    if pods.flavors:
        document["flavors"] = {resource: choice.flavor for resource, choice in pods.flavors.items()}
    charged = {resource: value for resource, value in pods.requests.items() if resource in pods.flavors}
    if charged:
        document["resourceUsage"] = all_shown(charged)
    if pods.topology is not None:
        document["topologyAssignment"] = to_document(pods.topology)
    if pods.delayed_topology is not None:
        document["delayedTopologyRequest"] = pods.delayed_topology
    return document
