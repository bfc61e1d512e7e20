"""What waits in the queue: a pod, or a gang as one, with what happened to it so far."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from muster.api.objects import Key
from muster.cluster.groups import GroupKey
from muster.cluster.pods import PodInfo, PodShape

EntityKey: TypeAlias = str | GroupKey
"""The uid of a pod that is in no group, or the topmost group."""
NO_PLUGINS: frozenset[str] = frozenset()


class Place(StrEnum):
    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    IN_FLIGHT = "in flight"


class PodClass(NamedTuple):
    """Pods that hint functions cannot tell apart: one of them is asked for all."""

    shape: PodShape
    namespace: str
    labels: frozenset[tuple[str, str]]
    group: Key | None
    alone: str
    """The uid of a pod that is like no other: one that has a node, and waits there to be resized."""


def class_of(pod: PodInfo) -> PodClass:
    alone = pod.uid if pod.has_deferred_resize else ""
    return PodClass(pod.shape, pod.key.namespace, frozenset(pod.labels.items()), pod.group, alone)


@dataclass(frozen=True, slots=True)
class Gate:
    """Why a pod may not enter: the plugin that holds it, and its reason."""

    plugin: str
    reason: str


@dataclass(frozen=True, slots=True)
class Queued:
    """An entity as it was when it was handed out. The queue goes on changing its own."""

    key: EntityKey
    pods: tuple[PodInfo, ...]
    arrived: float
    """First arrival. What is given back keeps it, and with it its place among equals."""
    attempts: int
    errors: int = 0
    """Errors in a row before this attempt."""

    @property
    def is_gang(self) -> bool:
        return isinstance(self.key, GroupKey)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a pod stands, for those who ask why it is not placed."""

    place: Place
    plugins: frozenset[str]
    reason: str
    attempts: int
    arrived: float
    backoff_until: float | None


@dataclass(frozen=True, slots=True)
class Counts:
    """Entities in each set, and pods in all."""

    entities: Mapping[Place, int]
    pods: int


@dataclass(slots=True, eq=False)
class Entity:
    key: EntityKey
    number: int
    """Tells apart entities that arrived in one instant."""
    arrived: float
    place: Place = Place.ACTIVE
    token: int = 0
    """Grows with every move: entries in heaps that name an older token are void."""
    members: dict[str, PodInfo] = field(default_factory=dict)
    newcomers: dict[str, PodInfo] = field(default_factory=dict)
    """Members that came while it was in flight: not part of that attempt."""
    classes: dict[PodClass, int] = field(default_factory=dict)
    """How many members are of each class. Known only while the entity waits: nothing else asks."""
    first: PodInfo | None = None
    """As `leader`, where known."""
    is_unsorted: bool = False
    """Its leader left: it may stand before others that go first now. Found out when its turn comes, not before: a gang
    that is deleted loses all its members one by one."""
    gates: dict[str, Gate] = field(default_factory=dict)
    """By uid: members that were held back when last asked about."""
    is_stale: bool = False
    """Something happened after which its gates must be asked again before it is handed out."""
    attempts: int = 0
    rejections: int = 0
    errors: int = 0
    backoff_until: float | None = None
    plugins: frozenset[str] = NO_PLUGINS
    pending_plugins: frozenset[str] = NO_PLUGINS
    listens_to: frozenset[str] = NO_PLUGINS
    """Plugins whose changes may help it, while it waits for one."""
    blocked_since: float | None = None
    has_yielded: bool = False
    """An elder that rested went before it, since it was last handed out."""

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def gate(self) -> Gate | None:
        return next(iter(self.gates.values()), None)

    def member(self, uid: str) -> PodInfo:
        return self.newcomers[uid] if uid in self.newcomers else self.members[uid]

    @property
    def leader(self) -> PodInfo:
        """The member of highest priority, which gives a gang its place."""
        if self.first is None:
            self.first = max(self.members.values(), key=lambda member: member.priority)
        return self.first

    def join(self, pod: PodInfo) -> None:
        self.members[pod.uid] = pod
        if self.first is not None and pod.priority > self.first.priority:
            self.first = pod

    def part(self, uid: str) -> PodInfo:
        pod = self.members.pop(uid)
        self.gates.pop(uid, None)
        if self.first is pod:
            self.first = None
            self.is_unsorted = True
        return pod

    def kinds(self) -> dict[PodClass, PodInfo]:
        """One member of each class."""
        return {class_of(pod): pod for pod in self.members.values()}

    def handed_out(self) -> Queued:
        return Queued(self.key, tuple(self.members.values()), self.arrived, self.attempts, self.errors)
