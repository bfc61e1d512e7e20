"""Groups of pods that are placed together: what the engines know of PodGroups, whatever dialect they were written in.

A `Group` is the one internal value; Volcano's PodGroup and Kubernetes' PodGroup and CompositePodGroup reduce to it.
`PodGroups` keeps the groups, the tree that composite groups form, and which member is pending, assumed or bound. Like
`ClusterState` it mutates, has one owner, and does no I/O. Pods may come before their group, children before parents.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from muster.api import selectors, volcano
from muster.api.errors import BadRequest
from muster.api.objects import Key
from muster.api.scheduling.groups import CompositePodGroup, PodGroup
from muster.cluster.pods import PodInfo

TASK_LABEL = "volcano.sh/task-spec"
MAX_TREE_DEPTH = 4
"""Levels of groups in one tree, the pod groups at the bottom included. Kubernetes' limit."""
_NO_TASKS: Mapping[str, int] = {}


class GroupKey(NamedTuple):
    namespace: str
    name: str
    is_composite: bool = False

    def __str__(self) -> str:
        return f"{'compositepodgroup' if self.is_composite else 'podgroup'}/{self.namespace}/{self.name}"


class Mode(StrEnum):
    """How much a gang cares to be close together."""

    REQUIRED = "required"  # within one domain no wider than asked for, or wait
    PREFERRED = "preferred"  # so if it can be, else in the narrowest domain that holds it, else anywhere
    SOFT = "soft"  # in the narrowest domain that holds it, else anywhere


@dataclass(frozen=True, slots=True)
class Topology:
    """Where the members of a group may be apart. Levels are node label keys from wide to narrow, the last being the one
    asked for; without keys they are the tiers of HyperNodes, of which the lowest is the narrowest."""

    mode: Mode = Mode.REQUIRED
    keys: tuple[str, ...] = ()
    highest_tier: int | None = None
    highest_tier_name: str = ""


PartKey: TypeAlias = tuple[int, tuple[str, ...]]
"""(position in `Group.parts`, values of the labels): which part of its group a pod is in."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Splits a group: members that have the same values of some labels are a part, which is placed together, in a
    domain of its own. Volcano's subGroupPolicy."""

    label_keys: tuple[str, ...] = ()
    selector: selectors.LabelSelector | None = None
    """Only members that match are in a part. None: all."""
    size: int = 1
    """How many pods of a part must be placed together."""
    min_parts: int = 0
    """How many parts must be placed."""
    topology: Topology | None = None

    def values(self, labels: Mapping[str, str]) -> tuple[str, ...] | None:
        """What tells the part of a member with these labels; None where it is in none."""
        if self.selector is not None and not self.selector.matches(labels):
            return None
        values = tuple(labels.get(key, "") for key in self.label_keys)
        return values if all(values) else None


@dataclass(frozen=True, slots=True)
class Group:
    key: GroupKey
    min_count: int = 1
    """How many members must be placed together: pods, or for a composite group child groups."""
    is_gang: bool = True
    """Otherwise members are placed one by one (Kubernetes' basic policy), and `min_count` is 1."""
    min_per_task: Mapping[str, int] = field(default_factory=dict)
    """The same for each kind of pod, by the pod's task label."""
    topology: Topology | None = None
    parts: tuple[Parts, ...] = ()
    """A member is in a part of the first that wants it, or of none."""
    priority: int | None = None
    """None: that of its pods."""
    shields_important: bool = False
    """Whether a member whose own priority is higher is evicted by that (Volcano), or all by the group's."""
    preempts: bool | None = None
    """Whether others may be evicted for it. None: unless one of its pods must not preempt."""
    is_evicted_whole: bool = False
    """Its pods, and those of groups below, are evicted all together or not at all (disruption mode `all`)."""
    parent: GroupKey | None = None

    @property
    def tasks_with_minimum(self) -> Mapping[str, int]:
        """As Volcano has it: minimums of tasks that add up to more than the gang itself are not enforced."""
        tasks = self.min_per_task
        return tasks if not tasks or sum(tasks.values()) <= self.min_count else _NO_TASKS


class BrokenHierarchy(ValueError):
    """The tree of a group is deeper than allowed, runs in a circle, or misses a part."""


class Members:
    """The pods of one group by uid, and counts of them by task."""

    __slots__ = ("assumed", "bound", "done", "nodes", "pending", "tasks_known", "tasks_scheduled")

    def __init__(self) -> None:
        self.pending: dict[str, PodInfo] = {}
        self.assumed: dict[str, PodInfo] = {}
        self.bound: dict[str, PodInfo] = {}
        self.nodes: dict[str, str] = {}
        """By uid: the node of every member that is assumed or bound."""
        self.done: dict[str, PodInfo] = {}
        """Those that have succeeded. They count as if they had a node: a member that is started anew after others have
        done their work is not to wait for them."""
        self.tasks_known: Counter[str] = Counter()
        self.tasks_scheduled: Counter[str] = Counter()

    @property
    def known_count(self) -> int:
        return len(self.pending) + len(self.nodes) + len(self.done)

    @property
    def scheduled_count(self) -> int:
        return len(self.nodes) + len(self.done)

    def scheduled(self) -> Iterator[tuple[PodInfo, str]]:
        for uid, pod in (*self.bound.items(), *self.assumed.items()):
            yield pod, self.nodes[uid]

    def take_out(self, uid: str) -> PodInfo | None:
        scheduled = uid in self.nodes or uid in self.done
        places = (self.pending, self.assumed, self.bound, self.done)
        pod = next((place.pop(uid) for place in places if uid in place), None)
        self.nodes.pop(uid, None)
        if pod is not None:
            task = task_of(pod)
            self.tasks_known[task] -= 1
            self.tasks_scheduled[task] -= scheduled
        return pod

    def put_in(self, pod: PodInfo, place: dict[str, PodInfo], node: str | None) -> None:
        place[pod.uid] = pod
        task = task_of(pod)
        self.tasks_known[task] += 1
        if node is not None:
            self.nodes[pod.uid] = node
        if node is not None or place is self.done:
            self.tasks_scheduled[task] += 1


class PodGroups:
    def __init__(self) -> None:
        self._groups: dict[GroupKey, Group] = {}
        self._children: dict[GroupKey, dict[GroupKey, None]] = {}
        self._members: dict[GroupKey, Members] = {}
        self._member_of: dict[str, GroupKey] = {}
        self.version = 0
        """Grows with every change of a group."""
        self.whole = 0
        """How many groups are evicted only as a whole."""

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    # Groups

    def put(self, group: Group) -> None:
        """A group was added, or anything about it changed."""
        if self._groups.get(group.key) == group:
            return
        self.drop(group.key)
        self._groups[group.key] = group
        self.version += 1
        self.whole += group.is_evicted_whole
        if group.parent is not None:
            self._children.setdefault(group.parent, {})[group.key] = None

    def drop(self, key: GroupKey) -> None:
        group = self._groups.pop(key, None)
        if group is None:
            return
        self.version += 1
        self.whole -= group.is_evicted_whole
        if group.parent is not None:
            siblings = self._children[group.parent]
            del siblings[key]
            if not siblings:
                del self._children[group.parent]

    def get(self, key: GroupKey) -> Group | None:
        return self._groups.get(key)

    def of(self, pod: PodInfo) -> Group | None:
        key = group_key(pod)
        return None if key is None else self._groups.get(key)

    def children(self, key: GroupKey) -> tuple[GroupKey, ...]:
        return tuple(self._children.get(key, ()))

    # Members

    def pending(self, pod: PodInfo) -> None:
        """The pod has no node: it is new, or its assumption was taken back."""
        members = self._moving(pod)
        if members is not None:
            members.put_in(pod, members.pending, None)

    def assumed(self, pod: PodInfo, node: str) -> None:
        """The pod was given a node, in memory."""
        members = self._moving(pod)
        if members is not None:
            members.put_in(pod, members.assumed, node)

    def bound(self, pod: PodInfo, node: str) -> None:
        """The pod was seen with a node."""
        members = self._moving(pod)
        if members is not None:
            members.put_in(pod, members.bound, node)

    def succeeded(self, pod: PodInfo) -> None:
        """The pod has done its work, and its object is still there."""
        members = self._moving(pod)
        if members is not None:
            members.put_in(pod, members.done, None)

    def remove(self, uid: str) -> None:
        """The pod is gone, or has failed."""
        key = self._member_of.pop(uid, None)
        if key is None:
            return
        members = self._members[key]
        members.take_out(uid)
        if not members.known_count:
            del self._members[key]

    def members(self, key: GroupKey) -> Members:
        return self._members.get(key) or Members()

    def _moving(self, pod: PodInfo) -> Members | None:
        """The members that the pod belongs to, itself taken out; None where it is in no group."""
        key = group_key(pod)
        if self._member_of.get(pod.uid) != key:
            self.remove(pod.uid)
        if key is None:
            return None
        self._member_of[pod.uid] = key
        members = self._members.get(key)
        if members is None:
            members = self._members[key] = Members()
        else:
            members.take_out(pod.uid)
        return members

    # The tree

    def root(self, key: GroupKey) -> GroupKey | None:
        """The topmost group above; None where one on the way is not known yet, or they run in a circle."""
        try:
            return self.climb(key)
        except BrokenHierarchy:
            return None

    def climb(self, key: GroupKey) -> GroupKey:
        """As `root`. Raises BrokenHierarchy that says what is missing, in kube-scheduler's words."""
        if key not in self._groups and key not in self._members and key not in self._children:
            raise BrokenHierarchy(f"{_kind(key)} state not found for {key}")
        passed: list[GroupKey] = []
        while len(passed) < MAX_TREE_DEPTH:
            group = self._groups.get(key)
            if group is None:
                raise BrokenHierarchy(f"{_kind(key)} object not found in state for {key}")
            if group.parent is None:
                return key
            passed.append(key)
            key = group.parent
        if key in passed:
            raise BrokenHierarchy(f"cycle detected in composite pod group hierarchy: {key}")
        raise BrokenHierarchy(f"exceeded maximum hierarchy depth at {key}")

    def leaves(self, key: GroupKey) -> list[GroupKey]:
        """The pod groups of the tree below, which is the group itself unless it is composite."""
        return list(self._walk(key, 0))

    def _walk(self, key: GroupKey, depth: int) -> Iterator[GroupKey]:
        if depth >= MAX_TREE_DEPTH:
            raise BrokenHierarchy(f"exceeded maximum hierarchy depth at {key}")
        if key not in self._groups and key not in self._members and key not in self._children:
            raise BrokenHierarchy(f"{_kind(key)} state not found for pod group {key.namespace}/{key.name}")
        if not key.is_composite:
            yield key
            return
        for child in self._children.get(key, ()):
            yield from self._walk(child, depth + 1)

    def scheduled(self, key: GroupKey) -> Iterator[tuple[PodInfo, str]]:
        """Every pod of the tree below that is assumed or bound, with its node."""
        for leaf in self.leaves(key):
            yield from self.members(leaf).scheduled()

    def scheduled_count(self, key: GroupKey) -> int:
        return sum(self.members(leaf).scheduled_count for leaf in self.leaves(key))

    def is_complete(self, key: GroupKey) -> bool:
        """Whether enough members are known for the group, or its tree, to be tried."""
        return self._quorum(key, scheduled=False)

    def is_placed(self, key: GroupKey) -> bool:
        """Whether enough members have nodes."""
        return self._quorum(key, scheduled=True)

    def _quorum(self, key: GroupKey, scheduled: bool) -> bool:
        group = self._groups.get(key)
        if group is None:
            return False
        if key.is_composite:
            return sum(self._quorum(child, scheduled) for child in self.children(key)) >= group.min_count
        members = self.members(key)
        count, tasks = (
            (members.scheduled_count, members.tasks_scheduled)
            if scheduled
            else (members.known_count, members.tasks_known)
        )
        return count >= group.min_count and short_task(group, tasks) is None


def short_task(group: Group, counts: Mapping[str, int]) -> str | None:
    """A task that has fewer pods than it must have; None where all have enough."""
    tasks = group.tasks_with_minimum
    return next((task for task, least in tasks.items() if counts.get(task, 0) < least), None) if tasks else None


def group_key(pod: PodInfo) -> GroupKey | None:
    return None if pod.group is None else _key_of(pod.group)


@lru_cache(maxsize=4096)
def _key_of(group: Key) -> GroupKey:
    """Remembered: all that is done for a member of a gang asks for it."""
    return GroupKey(group.namespace, group.name)


def task_of(pod: PodInfo) -> str:
    return pod.labels.get(TASK_LABEL, "")


def part_of(group: Group, pod: PodInfo) -> PartKey | None:
    for number, parts in enumerate(group.parts):
        values = parts.values(pod.labels)
        if values is not None:
            return number, values
    return None


def from_volcano(group: volcano.PodGroup, priority: int | None = None) -> Group:
    """`priority`: the value of the priority class that the group names."""
    spec = group.spec
    return Group(
        key=GroupKey(group.metadata.namespace, group.metadata.name),
        min_count=max(spec.min_member or 0, 1),
        min_per_task=dict(spec.min_task_member or {}),
        topology=_topology(spec.network_topology),
        parts=tuple(_parts(policy) for policy in spec.sub_group_policy),
        priority=priority,
        shields_important=True,
    )


def _topology(network: volcano.NetworkTopologySpec | None) -> Topology | None:
    if network is None:
        return None
    return Topology(
        mode=Mode.SOFT if network.mode == "soft" else Mode.REQUIRED,
        highest_tier=network.highest_tier_allowed,
        highest_tier_name=network.highest_tier_name or "",
    )


def _parts(policy: volcano.SubGroupPolicySpec) -> Parts:
    try:
        selector = None if policy.label_selector is None else selectors.from_view(policy.label_selector)
    except BadRequest:
        selector = selectors.from_view(None)
    return Parts(
        label_keys=policy.match_label_keys,
        selector=selector,
        size=1 if policy.sub_group_size is None else policy.sub_group_size,
        min_parts=policy.min_sub_groups or 0,
        topology=_topology(policy.network_topology),
    )


def from_kubernetes(group: PodGroup | CompositePodGroup) -> Group:
    spec = group.spec
    gang, constraints, parent = spec.scheduling_policy.gang, spec.scheduling_constraints, None
    namespace = group.metadata.namespace
    if spec.parent_composite_pod_group_name is not None:
        parent = GroupKey(namespace, spec.parent_composite_pod_group_name, is_composite=True)
    is_composite = isinstance(group, CompositePodGroup)
    least = None if gang is None else gang.min_group_count if is_composite else gang.min_count
    return Group(
        key=GroupKey(namespace, group.metadata.name, is_composite),
        min_count=1 if gang is None else least or 0,
        is_gang=gang is not None,
        topology=Topology(keys=(constraints.topology[0].key,)) if constraints and constraints.topology else None,
        priority=spec.priority,
        preempts=None if spec.preemption_policy is None else spec.preemption_policy != "Never",
        is_evicted_whole=spec.disruption_mode is not None and spec.disruption_mode.all is not None,
        parent=parent,
    )


def _kind(key: GroupKey) -> str:
    return "composite pod group" if key.is_composite else "pod group"
