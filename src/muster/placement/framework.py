"""The extension points of scheduling, as small protocols over columns. A plugin implements any of them.

The names and the order are kube-scheduler's; the shape is not: a filter answers for all nodes at once with masks, a
score with a vector. A plugin is told nothing of stores, clocks or queues, and keeps no state between calls but what
its configuration says: what it works out for one pod it hands back as `state` and gets again.

Pods of one shape (and, where it matters, of one set of labels) are judged once: the runtime keeps masks and scores,
and asks again only for what a change can have touched. `Reads` on a plugin says what that is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from muster.api.meta import Instant, Resource
from muster.cluster.columns import NodeMask
from muster.cluster.groups import Group
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState

NodeScores: TypeAlias = npt.NDArray[np.int64]
"""One score a node: 0..100 once normalised."""
MAX_SCORE = 100


class Code(StrEnum):
    SUCCESS = "Success"
    ERROR = "Error"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"  # evicting pods cannot help
    WAIT = "Wait"
    SKIP = "Skip"
    PENDING = "Pending"


@dataclass(frozen=True, slots=True)
class Status:
    code: Code = Code.SUCCESS
    reasons: tuple[str, ...] = ()

    @property
    def is_success(self) -> bool:
        return self.code is Code.SUCCESS

    @property
    def is_rejected(self) -> bool:
        return self.code in (Code.UNSCHEDULABLE, Code.UNRESOLVABLE, Code.PENDING)


SUCCESS = Status()
SKIP = Status(Code.SKIP)


@dataclass(frozen=True, slots=True, eq=False)
class Rejection:
    """Nodes that one reason rules out. A node may be in several: its reasons are those of all rejections that name it,
    in order, and evicting pods cannot help it if any of them says so."""

    reason: str
    nodes: NodeMask
    is_unresolvable: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """What PreFilter or PreScore found. SKIP: the plugin has nothing to say of this pod, do not ask it again.
    `nodes`: the only nodes worth looking at (None: all)."""

    status: Status = SUCCESS
    state: object = None
    nodes: NodeMask | None = None


class Reads(Enum):
    """What a plugin's answer for a node depends on, apart from the pod itself."""

    NODES = "nodes"  # node objects alone: pods come and go without changing it
    NODE_PODS = "node and its pods"  # a pod that is placed changes the answer for its own node only
    ALL_PODS = "all nodes and pods"  # a pod that is placed may change any node's answer


class Plugin(Protocol):
    name: ClassVar[str]


@runtime_checkable
class PreEnqueue(Protocol):
    def pre_enqueue(self, pod: PodInfo) -> Status: ...


@runtime_checkable
class QueueSort(Protocol):
    def sort_key(self, pod: PodInfo, queued: Instant) -> tuple[int, float]:
        """The pod with the lesser key goes first. `queued`: since when it has been in the queue."""
        ...


@runtime_checkable
class PreFilter(Protocol):
    def pre_filter(self, pod: PodInfo, cluster: ClusterState) -> Prepared: ...


@runtime_checkable
class Filter(Protocol):
    reads: ClassVar[Reads]

    def filter(self, pod: PodInfo, cluster: ClusterState, state: object) -> Sequence[Rejection]:
        """Empty where every node passes. `state` is PreFilter's, None where there was none."""
        ...


@runtime_checkable
class FollowsPods(Protocol):
    """PreFilter state that can be kept up to date while pods are placed or removed in thought (Kubernetes calls these
    PreFilterExtensions). A plugin that reads all pods and is not this is prepared afresh after each change."""

    def pod_added(self, state: object, pod: PodInfo, other: PodInfo, node: int, cluster: ClusterState) -> None: ...

    def pod_removed(self, state: object, pod: PodInfo, other: PodInfo, node: int, cluster: ClusterState) -> None: ...


@runtime_checkable
class PreScore(Protocol):
    def pre_score(self, pod: PodInfo, cluster: ClusterState, feasible: NodeMask) -> Prepared: ...


@runtime_checkable
class Score(Protocol):
    reads: ClassVar[Reads]

    def score(self, pod: PodInfo, cluster: ClusterState, state: object) -> NodeScores:
        """Raw scores of all nodes; those of nodes that are not feasible are ignored. `state` is PreScore's."""
        ...


@runtime_checkable
class Normalize(Protocol):
    def normalize(self, scores: NodeScores, feasible: npt.NDArray[np.intp], state: object) -> NodeScores:
        """`scores` of the nodes at `feasible`, in that order, brought to 0..100."""
        ...


@runtime_checkable
class AtOneNode(Protocol):
    """The same answers as `filter` and `score`, for one node, in plain numbers: NumPy's cost for one element would
    rule the time of placing many like pods. Only for plugins that read NODE_PODS."""

    def fits_at(self, pod: PodInfo, cluster: ClusterState, state: object, node: int) -> bool: ...

    def score_at(self, pod: PodInfo, cluster: ClusterState, state: object, node: int) -> int: ...


@runtime_checkable
class Reserve(Protocol):
    def reserve(self, pod: PodInfo, node: str) -> Status: ...

    def unreserve(self, pod: PodInfo, node: str) -> None:
        """Must be idempotent, and may come without `reserve`."""
        ...


@runtime_checkable
class Permit(Protocol):
    def permit(self, pod: PodInfo, node: str) -> tuple[Status, float]:
        """WAIT with the seconds to wait at most, or success, or a rejection."""
        ...


@runtime_checkable
class PermitsOthers(Protocol):
    """What the last `permit` of a pod means for others of its group."""

    def activated_by(self, pod: PodInfo) -> Sequence[PodInfo]:
        """Pending pods to try at once: the pod waits for them."""
        ...

    def allowed_by(self, pod: PodInfo) -> frozenset[str]:
        """Uids of assumed pods that need wait no longer."""
        ...


@runtime_checkable
class PreBind(Protocol):
    async def pre_bind(self, pod: PodInfo, node: str) -> Status: ...


@runtime_checkable
class BindPlugin(Protocol):
    async def bind(self, pod: PodInfo, node: str) -> Status:
        """SKIP: not for this pod, ask the next."""
        ...


@runtime_checkable
class PostBind(Protocol):
    def post_bind(self, pod: PodInfo, node: str) -> None: ...


class Action(StrEnum):
    """What happened to an object, as far as plugins care. Values are Kubernetes' names."""

    ADD = "Add"
    DELETE = "Delete"
    UPDATE_NODE_ALLOCATABLE = "UpdateNodeAllocatable"
    UPDATE_NODE_LABEL = "UpdateNodeLabel"
    UPDATE_NODE_TAINT = "UpdateNodeTaint"
    UPDATE_NODE_CONDITION = "UpdateNodeCondition"
    UPDATE_NODE_PREEMPTION_POLICY = "UpdateNodePreemptionPolicy"
    UPDATE_POD_LABEL = "UpdatePodLabel"
    UPDATE_POD_SCALE_DOWN = "UpdatePodScaleDown"
    UPDATE_POD_SCALE_UP = "UpdatePodScaleUp"
    UPDATE_POD_TOLERATION = "UpdatePodToleration"
    UPDATE_POD_GATES_ELIMINATED = "UpdatePodSchedulingGatesEliminated"
    UPDATE = "Update"


class Hint(StrEnum):
    QUEUE = "Queue"
    SKIP = "QueueSkip"


HintFunction: TypeAlias = Callable[[PodInfo, Resource | None, Resource | None, ClusterState], Hint]
"""(rejected pod, old object, new object, cluster) → whether the change may help; the objects as views. Raises TypeError
for an object that it cannot read: the pod is then queued, to be on the safe side."""


@dataclass(frozen=True, slots=True)
class Wake:
    """A change that may make a pod schedulable which this plugin rejected. Without `hint`, any such change does."""

    resource: str
    """Kind of the object: "Node", "Pod" (an assigned one), "PodGroup", "CompositePodGroup", ... and "UnscheduledPod":
    the pod itself was updated, or (ADD) another pod came that has no node."""
    actions: frozenset[Action]
    hint: HintFunction | None = None
    reads_labels: bool = True
    """Whether the hint looks at the labels of the pod that waits. Where none of a plugin's does, one pod is asked for
    all of its shape and group, however many labels tell the members of a gang apart."""


@runtime_checkable
class Wakes(Protocol):
    def wakes(self) -> Sequence[Wake]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Nodes that a whole group may be tried on: a rack, a switch, everything."""

    name: str
    nodes: NodeMask


@dataclass(frozen=True, slots=True)
class Generated:
    """Placements to try; none where the group fits nowhere."""

    status: Status = SUCCESS
    placements: Sequence[Placement] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the members of a group (pods, or child groups) have been tried in one placement."""

    scheduled: int
    remaining: int
    tasks: Mapping[str, tuple[int, int]] | None = None
    """(scheduled, remaining) by task, where the group has a minimum for any."""


@runtime_checkable
class PlacementGenerate(Protocol):
    def generate_placements(self, group: Group, cluster: ClusterState, parent: Placement) -> Generated: ...


@runtime_checkable
class PlacementScore(Protocol):
    def score_placement(
        self, group: Group, cluster: ClusterState, placement: Placement, proposed: Sequence[tuple[PodInfo, str]]
    ) -> int:
        """`proposed`: the members that were placed there in thought, each with its node."""
        ...


@runtime_checkable
class NormalizePlacements(Protocol):
    def normalize_placements(self, scores: Sequence[int]) -> tuple[Status, Sequence[int]]:
        """Scores of all placements of one group brought to 0..100."""
        ...


@runtime_checkable
class PlacementFeasible(Protocol):
    def placement_feasible(self, group: Group, progress: Progress) -> Status:
        """SUCCESS: enough are placed. WAIT: not yet. A rejection: what remains is too few, stop trying."""
        ...
