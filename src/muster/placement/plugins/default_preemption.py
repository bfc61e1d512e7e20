"""DefaultPreemption: what a profile says about preemption, and kube-scheduler's words around what was found.

Finding victims is `placement.preempting`; evicting them is the shell's. While the shell is at it, the pods they are
evicted for are kept out of the queue: they would only find the same victims again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Self

from muster.api import fields, raw
from muster.api.errors import FieldError
from muster.api.meta import Resource
from muster.cluster.columns import NodeMask
from muster.cluster.groups import GroupKey, PodGroups, group_key
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import Action, Code, Hint, PreEnqueue, Status, Wake, Wakes
from muster.placement.judging import Judgement
from muster.placement.plugins.resource_args import Reader
from muster.placement.preempting import (
    Budgets,
    GangPreemption,
    NoPreemption,
    Ongoing,
    Options,
    Preemption,
    PreemptionExtender,
    QuickSearch,
    find,
)
from muster.placement.preempting.options import MayEvict, MoreImportant

TOGETHER = Status(Code.UNSCHEDULABLE, ("not eligible due to workload aware preemption enabled",))
_WAITING = "waiting for the preemption for this {} to be finished"
_POD_WAITS = Status(Code.UNRESOLVABLE, (_WAITING.format("pod"),))
_GROUP_WAITS = Status(Code.UNRESOLVABLE, (_WAITING.format("pod group"),))
_SUCCESS = Status()
_PERCENTAGE, _ABSOLUTE = 10, 100


@dataclass(frozen=True, slots=True)
class DefaultPreemptionArgs:
    min_candidate_nodes_percentage: int = _PERCENTAGE
    min_candidate_nodes_absolute: int = _ABSOLUTE

    @classmethod
    def from_document(cls, document: Mapping[str, raw.JSON]) -> Self | list[FieldError]:
        share, number = "minCandidateNodesPercentage", "minCandidateNodesAbsolute"
        read = Reader(document, (share, number), "DefaultPreemptionArgs")
        percentage = _number(read, share, _PERCENTAGE)
        absolute = _number(read, number, _ABSOLUTE)
        if not 0 <= percentage <= 100:
            read.errors.append(fields.invalid(share, percentage, "not in valid range [0, 100]"))
        if absolute < 0:
            read.errors.append(fields.invalid(number, absolute, "not in valid range [0, inf)"))
        if percentage == absolute == 0:
            read.errors.append(fields.invalid(share, 0, f"cannot be zero at the same time as {number}"))
            read.errors.append(fields.invalid(number, 0, f"cannot be zero at the same time as {share}"))
        return read.errors or cls(percentage, absolute)


def _number(read: Reader, name: str, default: int) -> int:
    value = read.document.get(name)
    return default if value is None else read.number(name, value)


@dataclass(slots=True)
class Evictions:
    """For whom the shell is evicting pods right now. Its owner adds and removes."""

    pods: set[str] = field(default_factory=set)
    """Uids."""
    groups: set[GroupKey] = field(default_factory=set)
    """The topmost group of each gang."""


class Told(NamedTuple):
    """What was found, and how kube-scheduler says it."""

    outcome: Preemption | NoPreemption
    status: Status


class DefaultPreemption:
    name: ClassVar[str] = "DefaultPreemption"

    def __init__(
        self,
        args: DefaultPreemptionArgs | None = None,
        groups: PodGroups | None = None,
        evictions: Evictions | None = None,
        may_evict: MayEvict | None = None,
        is_more_important: MoreImportant | None = None,
        extenders: Sequence[PreemptionExtender] = (),
    ) -> None:
        self._args = args or DefaultPreemptionArgs()
        self._groups = groups if groups is not None else PodGroups()
        self._evictions = evictions if evictions is not None else Evictions()
        self._may_evict, self._is_more_important, self._extenders = may_evict, is_more_important, extenders

    def options(self, offset: int = 0) -> Options:
        """`offset`: see there; the caller's random number."""
        return Options(
            offset=offset,
            min_percentage=self._args.min_candidate_nodes_percentage,
            min_absolute=self._args.min_candidate_nodes_absolute,
            groups=self._groups,
            may_evict=self._may_evict,
            is_more_important=self._is_more_important,
            extenders=self._extenders,
        )

    def pre_enqueue(self, pod: PodInfo) -> Status:
        key = group_key(pod)
        if key is None:
            return _POD_WAITS if pod.uid in self._evictions.pods else _SUCCESS
        # A group that is not known, or whose tree is not, is for others to hold back.
        return _GROUP_WAITS if self._groups.root(key) in self._evictions.groups else _SUCCESS

    def post_filter(
        self,
        pod: PodInfo,
        judgement: Judgement,
        cluster: ClusterState,
        budgets: Budgets,
        offset: int = 0,
        resolvable: NodeMask | None = None,
        quick: QuickSearch | None = None,
    ) -> Told:
        """For a pod that no node takes. The other arguments are those of `preempting.find`."""
        if pod.group is not None:
            return Told(NoPreemption(TOGETHER), worded(TOGETHER))
        outcome = find(pod, judgement, cluster, budgets, self.options(offset), resolvable, quick)
        return Told(outcome, worded(outcome.status))

    def wakes(self) -> Sequence[Wake]:
        # Those it holds back are let go by the plugins that rejected them before: what is evicted was in their way.
        return (Wake("Pod", frozenset({Action.DELETE}), _after_pod_deleted),)


def worded(status: Status) -> Status:
    return _prefixed("preemption", status)


def worded_for_gang(outcome: GangPreemption | Ongoing | NoPreemption) -> Status:
    return _prefixed("pod group preemption", outcome.status)


def _prefixed(prefix: str, status: Status) -> Status:
    said = ", ".join(status.reasons)
    return Status(status.code, (f"{prefix}: {said}",)) if said else status


def _after_pod_deleted(_pod: PodInfo, _old: Resource | None, _new: Resource | None, _cluster: ClusterState) -> Hint:
    return Hint.SKIP


_: PreEnqueue = DefaultPreemption()
_wakes: Wakes = DefaultPreemption()
