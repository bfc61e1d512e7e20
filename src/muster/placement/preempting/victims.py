"""What can be evicted: a pod, or all pods of a group that wants to be evicted as a whole, and which matters more."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from math import inf
from typing import TypeAlias

from muster.cluster.groups import MAX_TREE_DEPTH, BrokenHierarchy, Group, GroupKey, PodGroups, group_key
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState

Importance: TypeAlias = tuple[int, int, int, float, str]


class Rank(IntEnum):
    """Of equal priority, members of groups matter more: what they have done together is lost with one of them."""

    POD = 1
    GROUP = 2
    COMPOSITE = 3


@dataclass(frozen=True, slots=True, eq=False)
class Victim:
    """Evicted all together or not at all."""

    pods: tuple[PodInfo, ...]
    priority: int
    rank: Rank = Rank.POD
    started: float = inf
    """When the first of its pods started. One that has not started yet has the least to lose."""

    @property
    def importance(self) -> Importance:
        """Sorts the most important first: higher priority, then rank, then more pods, then longer run. The uid makes
        it a total order, so that equal clusters lose equal pods."""
        return -self.priority, -self.rank, -len(self.pods), self.started, self.pods[0].uid if self.pods else ""


def is_more_important(one: Victim, other: Victim) -> bool:
    return one.importance < other.importance


def gather(pods: Iterable[PodInfo], cluster: ClusterState, groups: PodGroups) -> Iterator[Victim]:
    """The pods as victims. One of a group that is evicted whole brings all others of the group with it."""
    seen: set[GroupKey] = set()
    for pod in pods:
        if pod.group is None:
            yield alone(pod, pod.priority)
            continue
        chain = list(ancestry(pod, groups))
        priority = _priority(pod, chain)
        whole = next((group.key for group in reversed(chain) if group.is_evicted_whole), None)
        if whole is None:
            yield alone(pod, priority)
        elif whole not in seen:
            seen.add(whole)
            rank = Rank.COMPOSITE if whole.is_composite else Rank.GROUP
            yield together(_scheduled(whole, cluster, groups) or (pod,), priority, rank)


def alone(pod: PodInfo, priority: int) -> Victim:
    started = inf if pod.started is None else pod.started
    return Victim((pod,), priority, Rank.POD if pod.group is None else Rank.GROUP, started)


def together(pods: tuple[PodInfo, ...], priority: int, rank: Rank) -> Victim:
    started = min((pod.started for pod in pods if pod.started is not None), default=inf)
    return Victim(pods, priority, rank, started)


def priority_of(pod: PodInfo, groups: PodGroups) -> int:
    """By which the pod may be preempted: that of the topmost known group above it, where it has one."""
    return pod.priority if pod.group is None else _priority(pod, list(ancestry(pod, groups)))


def ancestry(pod: PodInfo, groups: PodGroups) -> Iterator[Group]:
    """The groups above the pod, nearest first, as far as they are known."""
    key, passed = group_key(pod), set[GroupKey]()
    while key is not None and key not in passed and len(passed) < MAX_TREE_DEPTH:
        group = groups.get(key)
        if group is None:
            return
        yield group
        passed.add(key)
        key = group.parent


def _priority(pod: PodInfo, chain: list[Group]) -> int:
    top = chain[-1] if chain else None
    if top is None or top.priority is None:
        return pod.priority
    return max(top.priority, pod.priority) if top.shields_important else top.priority


def _scheduled(key: GroupKey, cluster: ClusterState, groups: PodGroups) -> tuple[PodInfo, ...]:
    """Those that the cluster counts: only they can be removed from it."""
    try:
        members = [pod.uid for pod, _node in groups.scheduled(key)]
    except BrokenHierarchy:  # a part of the tree is not known yet
        return ()
    return tuple(cluster.pods[uid][0] for uid in members if uid in cluster.pods)
