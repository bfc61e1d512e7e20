"""GangScheduling: the pods of a gang are tried when enough of them are there, and go on when enough have nodes.

`hierarchies` is Kubernetes' CompositePodGroup: a gang may then be a tree of groups, and the whole tree counts. Off
unless asked for, as there.
"""

from collections.abc import Sequence
from typing import ClassVar, TypeAlias

from muster.api import core, volcano
from muster.api.meta import Resource
from muster.api.scheduling.groups import CompositePodGroup, PodGroup
from muster.cluster.groups import BrokenHierarchy, Group, GroupKey, PodGroups, group_key, short_task
from muster.cluster.pods import GROUP_ANNOTATION, PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import (
    SUCCESS,
    Action,
    Code,
    Hint,
    Permit,
    PermitsOthers,
    PlacementFeasible,
    PreEnqueue,
    Progress,
    Status,
    Wake,
    Wakes,
)
from muster.placement.plugins import changes

PERMIT_SECONDS = 300.0
_ADDED = frozenset({Action.ADD})
_UPDATED = frozenset({Action.UPDATE})
AnyPodGroup: TypeAlias = PodGroup | volcano.PodGroup


class GangScheduling:
    name: ClassVar[str] = "GangScheduling"

    def __init__(self, groups: PodGroups, hierarchies: bool = False) -> None:
        self._groups = groups
        self._hierarchies = hierarchies

    # Entering the queue

    def pre_enqueue(self, pod: PodInfo) -> Status:
        key = group_key(pod)
        if key is None:
            return SUCCESS
        group = self._groups.get(key)
        if self._hierarchies:
            try:
                root = self._groups.climb(key)
            except BrokenHierarchy as why:
                return _unresolvable(f"failed to build hierarchy snapshot: {why}")
            if root != key:
                return SUCCESS if self._groups.is_complete(root) else _unresolvable(_waiting_for_tree(root))
        if group is None:
            return _unresolvable(f'waiting for pods\'s pod group "{key.name}" to appear in scheduling queue')
        if not group.is_gang or self._groups.is_complete(key):
            return SUCCESS
        return _unresolvable(self._waiting_for(group, "appear in scheduling queue", scheduled=False))

    # Going on to bind

    def permit(self, pod: PodInfo, node: str) -> tuple[Status, float]:
        key = group_key(pod)
        if key is None:
            return SUCCESS, 0.0
        try:
            root = self._root(key)
        except BrokenHierarchy as why:
            return Status(Code.ERROR, (f"failed to build hierarchy snapshot: {why}",)), 0.0
        group = self._groups.get(root)
        if group is None:
            missing = f"failed to get podGroup {key.namespace}/{key.name}: pod group object not found"
            return Status(Code.ERROR, (missing,)), 0.0
        if root.is_composite:
            waiting = _waiting_for_tree(root)
        elif group.is_gang:
            waiting = self._waiting_for(group, "be scheduled", scheduled=True)
        else:
            return SUCCESS, 0.0
        return (SUCCESS, 0.0) if self._groups.is_placed(root) else (Status(Code.WAIT, (waiting,)), PERMIT_SECONDS)

    def activated_by(self, pod: PodInfo) -> Sequence[PodInfo]:
        if self.permit(pod, "")[0].code is not Code.WAIT:
            return ()
        return [member for leaf in self._leaves(pod) for member in self._groups.members(leaf).pending.values()]

    def allowed_by(self, pod: PodInfo) -> frozenset[str]:
        root = self._root_group(pod)
        if root is None or not (root.is_gang or root.key.is_composite) or not self.permit(pod, "")[0].is_success:
            return frozenset()
        return frozenset(uid for leaf in self._leaves(pod) for uid in self._groups.members(leaf).assumed)

    # Trying a placement

    def placement_feasible(self, group: Group, progress: Progress) -> Status:
        least, scheduled, remaining = group.min_count, progress.scheduled, progress.remaining
        counts = f"{scheduled} scheduled, {remaining} remaining"
        if scheduled + remaining < least:
            return Status(Code.UNSCHEDULABLE, (f"minCount ({least}) cannot be satisfied: {counts}",))
        tasks = progress.tasks or {}
        for task, minimum in group.tasks_with_minimum.items() if tasks else ():
            done, left = tasks.get(task, (0, 0))
            if done + left < minimum:
                short = f'minTaskMember ({minimum}) of task "{task}" cannot be satisfied'
                return Status(Code.UNSCHEDULABLE, (f"{short}: {done} scheduled, {left} remaining",))
        if scheduled < least:
            return Status(Code.WAIT, (f"minCount ({least}) is not yet satisfied: {counts}",))
        missing = short_task(group, {task: done for task, (done, _) in tasks.items()}) if tasks else None
        if missing is not None:
            return Status(Code.WAIT, (f'minTaskMember of task "{missing}" is not yet satisfied: {counts}',))
        return SUCCESS

    # Waking up

    def wakes(self) -> Sequence[Wake]:
        always = (
            Wake("UnscheduledPod", _ADDED, self.after_pod_added, reads_labels=False),
            Wake("Pod", _ADDED, self.after_pod_added, reads_labels=False),
            Wake("PodGroup", _ADDED, self.after_group_added, reads_labels=False),
            Wake("PodGroup", _UPDATED, self.after_group_updated, reads_labels=False),
        )
        if not self._hierarchies:
            return always
        return (*always, Wake("CompositePodGroup", _ADDED, self.after_composite_added, reads_labels=False))

    def after_pod_added(self, pod: PodInfo, old: Resource | None, new: Resource | None, _cluster: ClusterState) -> Hint:
        _, added = changes.after(core.Pod, old, new)
        name = (added.metadata.annotations or {}).get(GROUP_ANNOTATION)
        return self._if_related(pod, GroupKey(added.metadata.namespace, name) if name else None)

    def after_group_added(
        self, pod: PodInfo, old: Resource | None, new: Resource | None, _cluster: ClusterState
    ) -> Hint:
        _, added = _pod_groups(old, new)
        return self._if_related(pod, GroupKey(added.metadata.namespace, added.metadata.name))

    def after_group_updated(
        self, pod: PodInfo, old: Resource | None, new: Resource | None, _cluster: ClusterState
    ) -> Hint:
        before, after = _pod_groups(old, new)
        if before is None:
            raise TypeError("wanted a PodGroup as it was, found none")
        if not _asks_less(before, after):
            return Hint.SKIP
        return self._if_related(pod, GroupKey(after.metadata.namespace, after.metadata.name))

    def after_composite_added(
        self, pod: PodInfo, old: Resource | None, new: Resource | None, _cluster: ClusterState
    ) -> Hint:
        _, added = changes.after(CompositePodGroup, old, new)
        return self._if_related(pod, GroupKey(added.metadata.namespace, added.metadata.name, is_composite=True))

    def _if_related(self, pod: PodInfo, changed: GroupKey | None) -> Hint:
        own = group_key(pod)
        if own is None or changed is None:
            return Hint.SKIP
        if own == changed:
            return Hint.QUEUE
        if not self._hierarchies:
            return Hint.SKIP
        root = self._groups.root(own)
        return Hint.QUEUE if root is not None and root == self._groups.root(changed) else Hint.SKIP

    def _root(self, key: GroupKey) -> GroupKey:
        return self._groups.climb(key) if self._hierarchies else key

    def _root_group(self, pod: PodInfo) -> Group | None:
        key = group_key(pod)
        try:
            return None if key is None else self._groups.get(self._root(key))
        except BrokenHierarchy:
            return None

    def _leaves(self, pod: PodInfo) -> list[GroupKey]:
        root = self._root_group(pod)
        return [] if root is None else self._groups.leaves(root.key)

    def _waiting_for(self, group: Group, what: str, scheduled: bool) -> str:
        members = self._groups.members(group.key)
        count = members.scheduled_count if scheduled else members.known_count
        task = short_task(group, members.tasks_scheduled if scheduled else members.tasks_known)
        if count >= group.min_count and task is not None:
            return f'waiting for minTaskMember pods of task "{task}" from a gang to {what}'
        return f"waiting for minCount pods from a gang to {what}"


def _pod_groups(old: Resource | None, new: Resource | None) -> tuple[AnyPodGroup | None, AnyPodGroup]:
    """Either dialect's."""
    if isinstance(new, volcano.PodGroup):
        return changes.after(volcano.PodGroup, old, new)
    return changes.after(PodGroup, old, new)


def _asks_less(before: AnyPodGroup, after: AnyPodGroup) -> bool:
    if isinstance(before, volcano.PodGroup) and isinstance(after, volcano.PodGroup):
        tasks = after.spec.min_task_member or {}
        fewer_of_task = any(tasks.get(task, 0) < least for task, least in (before.spec.min_task_member or {}).items())
        return (after.spec.min_member or 0) < (before.spec.min_member or 0) or fewer_of_task
    if isinstance(before, PodGroup) and isinstance(after, PodGroup):
        was, now = before.spec.scheduling_policy.gang, after.spec.scheduling_policy.gang
        return was is not None and now is not None and (now.min_count or 0) < (was.min_count or 0)
    return True


def _waiting_for_tree(root: GroupKey) -> str:
    return f'waiting for composite pod group "{root.name}" tree to meet quorum'


def _unresolvable(reason: str) -> Status:
    return Status(Code.UNRESOLVABLE, (reason,))


_enters: PreEnqueue = GangScheduling(PodGroups())
_permits: Permit = GangScheduling(PodGroups())
_others: PermitsOthers = GangScheduling(PodGroups())
_feasible: PlacementFeasible = GangScheduling(PodGroups())
_wakes: Wakes = GangScheduling(PodGroups())
