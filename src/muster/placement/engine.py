"""The engine: what changes in the cluster goes in, decisions come out. Everything a scheduler does that is not I/O.

It owns the cluster state, the groups, the queue and the scheduler, and has one owner itself. Time is an argument. What
it decides it assumes at once; the shell binds, and says so where that failed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from muster.api import core, policy, raw, scheduling, storage, volcano
from muster.api.kinds import Kind
from muster.api.meta import Resource
from muster.api.objects import Key, Object
from muster.cluster.columns import NodeMask
from muster.cluster.groups import GroupKey, PodGroups, from_volcano, group_key
from muster.cluster.pods import PodInfo
from muster.cluster.state import FINISHED, ClusterState
from muster.placement import changes
from muster.placement.extending import Extending
from muster.placement.framework import Action
from muster.placement.group_plugins import GroupPluginFailed
from muster.placement.in_tree import Shared, default_profile
from muster.placement.preempting import Budgets, is_kept, is_protected
from muster.placement.profiles import DEFAULT_SCHEDULER, Profile, name_of
from muster.placement.queueing import BY_PRIORITY, SchedulingQueue, SortBy, Timing
from muster.placement.queueing.entities import Place, Queued
from muster.placement.queueing.waking import ClusterChange
from muster.placement.reserving import Reservations
from muster.placement.scheduling import NO_ADVICE, Advices, Decision, Refusal, Scheduler

KINDS: tuple[Kind, ...] = (
    core.NODE,
    core.NAMESPACE,
    core.SERVICE,
    storage.STORAGE_CLASS,
    core.PERSISTENT_VOLUME_CLAIM,
    scheduling.PRIORITY_CLASS,
    policy.POD_DISRUPTION_BUDGET,
    volcano.HYPER_NODE,
    volcano.QUEUE,
    volcano.POD_GROUP,
    core.POD,
)
"""What an engine of our own platform wants to be told of."""


@dataclass(frozen=True, slots=True)
class Faulted:
    """An attempt that ended in an error of a plugin: tried again after a rest."""

    attempt: Queued
    plugin: str
    error: str


class Observer(Protocol):
    """Is told of all that goes in and comes out, in order."""

    def took(self, old: Object | None, new: Object | None) -> None:
        """Before the engine acts on it."""
        ...

    def decided(self, attempt: Queued, held: NodeMask | None, decision: Decision) -> None:
        """`held`: the nodes that were held back from the attempt."""
        ...

    def lost(self, uid: str) -> None:
        """What was assumed of the pod is taken back."""
        ...


class Engine:
    def __init__(
        self,
        profiles: Mapping[str, Profile],
        cluster: ClusterState,
        groups: PodGroups,
        *,
        timing: Timing | None = None,
        seed: int = 0,
        reserve_after: float | None = 60.0,
        sort_key: SortBy = BY_PRIORITY,
    ) -> None:
        """`cluster` and `groups` are those that the plugins in `profiles` were made with. `reserve_after`: seconds
        after which a gang that waits has nodes held back for it (None: never)."""
        self.cluster = cluster
        self.groups = groups
        self.queue = SchedulingQueue(profiles, cluster, groups, timing, sort_key)
        self.scheduler = Scheduler(profiles, cluster, groups, seed=seed)
        self._reservations = Reservations(self.scheduler, self.queue, reserve_after)
        self._budgets: dict[Key, policy.PodDisruptionBudget] = {}
        self._hypernodes: dict[Key, volcano.HyperNode] = {}
        self._classes: dict[str, int] = {}
        self._groups_of_class: dict[str, dict[Key, Object]] = {}
        self.observer: Observer | None = None
        self.extending = Extending()
        self._serves: frozenset[str] | None = None
        self._assumed: dict[str, PodInfo] = {}  # by uid: what was given a node here, and not yet seen there
        self._takers = {
            core.NODE: self._node,
            core.POD: self._pod,
            core.NAMESPACE: self._namespace,
            core.SERVICE: self._service,
            storage.STORAGE_CLASS: self._storage_class,
            core.PERSISTENT_VOLUME_CLAIM: self._claim,
            storage.PERSISTENT_VOLUME: self._volume,
            scheduling.PRIORITY_CLASS: self._priority_class,
            policy.POD_DISRUPTION_BUDGET: self._budget,
            volcano.HYPER_NODE: self._hypernode,
            volcano.QUEUE: self._queue,
            volcano.POD_GROUP: self._group,
        }

    def share(self, serves: frozenset[str]) -> None:
        """The cluster has schedulers and storage of its own. `serves`: the `schedulerName`s of the pods that are placed
        here; pods of others count as soon as they have a node."""
        self._serves = serves
        self.cluster.claims.are_foreign = True

    @property
    def kinds(self) -> Sequence[Kind]:
        """What it wants to be told of. Pods last: with all else known, the first decisions are the right ones."""
        return (storage.PERSISTENT_VOLUME, *KINDS) if self.cluster.claims.are_foreign else KINDS

    # What happened

    def take(self, old: Object | None, new: Object | None, now: float) -> None:
        """An object of one of `KINDS` came (no `old`), changed, or went (no `new`)."""
        if self._serves is not None:
            old, new = self._of_concern(old), self._of_concern(new)
        found = new or old
        if found is None:
            return
        if self.observer is not None:
            self.observer.took(old, new)
        self._takers[found.kind](old, new, now)
        self._reservations.look(now)

    def _of_concern(self, found: Object | None) -> Object | None:
        """None for a pod without a node that another scheduler looks after."""
        if found is None or found.kind is not core.POD or self._serves is None:
            return found
        spec = found.read(core.Pod).spec
        return found if spec.node_name or (spec.scheduler_name or DEFAULT_SCHEDULER) in self._serves else None

    def _node(self, old: Object | None, new: Object | None, now: float) -> None:
        if new is None:
            assert old is not None
            self.cluster.node_removed(old.key.name)
            self._tell("Node", Action.DELETE, old, None, now)
            return
        view = new.read(core.Node)
        if old is None:
            self.cluster.node_changed(view)
            self._tell("Node", Action.ADD, None, new, now)
            return
        before = old.read(core.Node)
        if changes.matters(before, view):
            self.cluster.node_changed(view)
            for action in changes.of_node(before, view):
                self._tell("Node", action, old, new, now)

    def _pod(self, old: Object | None, new: Object | None, now: float) -> None:
        found = new or old
        assert found is not None
        view = found.read(core.Pod)
        if new is None or view.status.phase in FINISHED:
            self._pod_ended(found, now, is_done=new is not None and view.status.phase == "Succeeded")
        elif view.spec.node_name:
            self._pod_assigned(old, new, view, now)
        elif new.is_terminating:
            self._pod_ended(new, now)
        elif new.uid in self._assumed:
            self._assumed[new.uid] = self.cluster.shapes.info(view)  # should it come back, then as it is now
        else:
            self._pod_pending(old, new, view, now)

    def _pod_ended(self, pod: Object, now: float, is_done: bool = False) -> None:
        """`is_done`: it has succeeded, and is still there to say so."""
        self.scheduler.protected.tell_pod(pod.uid, is_protected=False, is_placed=False)
        self._assumed.pop(pod.uid, None)
        self.queue.remove(pod.uid)
        self.groups.remove(pod.uid)
        if is_done:
            self.groups.succeeded(self.cluster.shapes.info(pod.read(core.Pod)))
        if self.cluster.node_of(pod.uid) is not None:
            self.cluster.release(pod.uid)
            self._tell("Pod", Action.DELETE, pod, None, now)

    def _pod_assigned(self, old: Object | None, new: Object, view: core.Pod, now: float) -> None:
        node = view.spec.node_name or ""
        known, place = self.cluster.pods.get(new.uid, (None, ""))
        self.scheduler.protected.tell_pod(new.uid, is_kept(view), known is not None)
        if known is not None and place == node and _was_just_bound(old, new):
            info = known
        else:
            info = self.cluster.shapes.info(view)
        self._assumed.pop(new.uid, None)
        self.queue.remove(new.uid)
        if known is None or place != node or not known.counts_as(info):
            self.cluster.assign(info, node)
        if info.is_terminating:
            self.groups.remove(info.uid)  # whoever is to run with it would find nobody, though it may take long to go
        else:
            self.groups.bound(info, node)
        before = old.read(core.Pod) if old is not None else None
        if before is None or not before.spec.node_name:
            self._tell("Pod", Action.ADD, None, new, now)
            return
        for action in changes.of_pod(before, view):
            self._tell("Pod", action, old, new, now)

    def _pod_pending(self, old: Object | None, new: Object, view: core.Pod, now: float) -> None:
        info = self.cluster.shapes.info(view)
        self.scheduler.protected.tell_pod(new.uid, is_kept(view), is_placed=False)
        self.groups.pending(info)
        if old is None:
            self.queue.add(info, now, self._arrival(info, now))
            self._tell("UnscheduledPod", Action.ADD, None, new, now)
            return
        before = old.read(core.Pod)
        told = [ClusterChange("UnscheduledPod", action, before, view) for action in changes.of_pod(before, view)]
        self.queue.update(info, now, told)

    def _arrival(self, pod: PodInfo, now: float) -> float:
        """A gang that has part of what it needs goes before all of its priority that have not begun: what it holds is
        of no use to anybody."""
        key = group_key(pod)
        has_begun = key is not None and self.groups.members(key).scheduled_count and not self.groups.is_placed(key)
        return 0.0 if has_begun else now

    def _namespace(self, old: Object | None, new: Object | None, now: float) -> None:  # noqa: ARG002
        if new is not None:
            self.cluster.namespaces[new.key.name] = new.labels
        elif old is not None:
            self.cluster.namespaces.pop(old.key.name, None)

    def _service(self, old: Object | None, new: Object | None, now: float) -> None:  # noqa: ARG002
        if new is not None:
            self.cluster.pod_selectors.service_changed(new.key, new.read(core.Service).spec.selector)
        elif old is not None:
            self.cluster.pod_selectors.service_removed(old.key)

    def _storage_class(self, old: Object | None, new: Object | None, now: float) -> None:
        if new is not None:
            self.cluster.claims.put_class(new.key.name, new.read(storage.StorageClass))
        elif old is not None:
            self.cluster.claims.drop_class(old.key.name)
        self._tell("StorageClass", _action(old, new), old, new, now)

    def _claim(self, old: Object | None, new: Object | None, now: float) -> None:
        if new is not None:
            self.cluster.claims.put(new.key, new.read(core.PersistentVolumeClaim))
        elif old is not None:
            self.cluster.claims.drop(old.key)
        self._tell("PersistentVolumeClaim", _action(old, new), old, new, now)

    def _volume(self, old: Object | None, new: Object | None, now: float) -> None:
        if new is not None:
            self.cluster.claims.put_volume(new.key.name, new.read(storage.PersistentVolume))
        elif old is not None:
            self.cluster.claims.drop_volume(old.key.name)
        self._tell("PersistentVolume", _action(old, new), old, new, now)

    def _priority_class(self, old: Object | None, new: Object | None, now: float) -> None:
        found = new or old
        assert found is not None
        if new is not None:
            self._classes[new.key.name] = new.read(scheduling.PriorityClass).value or 0
        else:
            self._classes.pop(found.key.name, None)
        for group in list(self._groups_of_class.get(found.key.name, {}).values()):
            self._group(group, group, now)

    def _budget(self, old: Object | None, new: Object | None, now: float) -> None:  # noqa: ARG002
        if new is not None:
            self._budgets[new.key] = new.read(policy.PodDisruptionBudget)
        elif old is not None:
            self._budgets.pop(old.key, None)
        self.scheduler.budgets = Budgets.of(self._budgets.values())

    def _hypernode(self, old: Object | None, new: Object | None, now: float) -> None:  # noqa: ARG002
        if new is not None:
            self._hypernodes[new.key] = new.read(volcano.HyperNode)
        elif old is not None:
            self._hypernodes.pop(old.key, None)
        self.scheduler.hypernodes_changed(tuple(self._hypernodes.values()))

    def _queue(self, old: Object | None, new: Object | None, now: float) -> None:
        """Most changes of a queue are of its status, and concern nobody here."""
        if new is None:
            assert old is not None
            self.cluster.queues.remove_queue(old.key.name)
            self._tell("Queue", Action.DELETE, old, None, now)
        elif self.cluster.queues.set_queue(new.read(volcano.Queue)):
            self._tell("Queue", _action(old, new), old, new, now)

    def _group(self, old: Object | None, new: Object | None, now: float) -> None:
        if old is not None:
            before = old.read(volcano.PodGroup).spec.priority_class_name or ""
            self._groups_of_class.get(before, {}).pop(old.key, None)
        if new is None:
            assert old is not None
            self.groups.drop(GroupKey(*old.key))
            self.cluster.queues.remove_group(old.key)
            self.scheduler.protected.tell_group(GroupKey(*old.key), False)
            self._tell("PodGroup", Action.DELETE, old, None, now)
            return
        view = new.read(volcano.PodGroup)
        named = view.spec.priority_class_name or ""
        if named:
            self._groups_of_class.setdefault(named, {})[new.key] = new
        self.groups.put(from_volcano(view, self._classes.get(named)))
        self.cluster.queues.set_group(new.key, view.spec.queue)
        self.scheduler.protected.tell_group(GroupKey(*new.key), is_protected(view.metadata))
        self._tell("PodGroup", Action.ADD if old is None else Action.UPDATE, old, new, now)

    def _tell(self, resource: str, action: Action, old: Object | None, new: Object | None, now: float) -> None:
        self.queue.changed(ClusterChange(resource, action, _view(old), _view(new)), now)

    # What follows

    def step(self, now: float) -> Decision | Faulted | None:
        """Decides on what goes next; None where nothing is due."""
        attempt = self.queue.pop(now)
        return None if attempt is None else self.decide(attempt, now)

    def decide(self, attempt: Queued, now: float, advice: Advices = NO_ADVICE) -> Decision | Faulted:
        """Decides on what `queue.pop` handed out. `advice`: what extenders say, by shape."""
        try:
            held = self._reservations.held_from(attempt, now)
            decision = self.decide_again(attempt, held, advice)
            if self.observer is not None:
                self.observer.decided(attempt, held, decision)
            decision = self._reservations.explained(decision, held)
            self._reservations.note(decision, now)
        except GroupPluginFailed as failure:
            return self.give_up(attempt, failure.plugin, failure.error, now)
        except Exception as error:  # a plugin's: its pod backs off, the others go on
            return self.give_up(attempt, name_of(self.scheduler.calling), f"{type(error).__name__}: {error}", now)
        placed = [one.pod.uid for one in decision.assigned]
        if decision.refusal is None:
            self.queue.placed(attempt, placed, now)
        else:
            self.queue.rejected(attempt, self._rejecters(decision.refusal), now, placed=placed)
        self._reservations.look(now)
        return decision

    def give_up(self, attempt: Queued, plugin: str, error: str, now: float) -> Faulted:
        """It cannot be decided on now, because of an error: it is tried again after a rest."""
        self.scheduler.forget(attempt.pods)
        for pod in attempt.pods:
            self.groups.pending(pod)
        self.queue.failed(attempt, now)
        return Faulted(attempt, plugin, error)

    def decide_again(self, attempt: Queued, held: NodeMask | None, advice: Advices = NO_ADVICE) -> Decision:
        """What follows from the cluster as it is, apart from the queue: the same for the same attempt, as often as it
        is asked. Assumes what it decides."""
        decision = self.scheduler.decide(attempt, None if held is None else ~held, advice)
        self._assumed.update((one.pod.uid, one.pod) for one in decision.assigned)
        return decision

    # What is assumed

    @property
    def assumed(self) -> Collection[str]:
        """The uids of pods that were given a node, and have not been seen there."""
        return self._assumed.keys()

    def assume(self, pod: PodInfo, node: str) -> None:
        """As if it had just been decided."""
        self._assumed[pod.uid] = pod
        self.cluster.assign(pod, node)
        self.groups.assumed(pod, node)
        self.queue.remove(pod.uid)

    def forget(self, uid: str) -> PodInfo | None:
        """Takes back what was assumed of a pod. The pod as it is now; None where nothing was."""
        latest = self._assumed.pop(uid, None)
        if latest is not None:
            if self.observer is not None:
                self.observer.lost(uid)
            self.cluster.release(uid)
            self.cluster.devices.forget(uid)
            self.groups.pending(latest)
        return latest

    def devices_of(self, pod: PodInfo, node: str) -> str:
        """The GPUs of an assumed pod, as its annotation says it; empty while there are none for it."""
        slot = self.cluster.slots.get(node)
        return self.cluster.devices.annotation(pod, slot) if slot is not None and pod.uid in self._assumed else ""

    def _rejecters(self, refusal: Refusal) -> frozenset[str]:
        """Where there is no node that any plugin could have rejected, whatever helps one of them may help."""
        if refusal.plugins and self.cluster.node_count:
            return refusal.plugins
        return refusal.plugins | frozenset(self.scheduler.profile_of(refusal.pods[0]).wakes())

    def binding_failed(self, pod: PodInfo, attempt: Queued, found: Object | None, now: float) -> None:
        """What was assumed of the pod is taken back, and it is tried again after a rest. `found`: the pod as the store
        shows it, for those that what it held may help."""
        node = self.cluster.node_of(pod.uid)
        latest = self.forget(pod.uid)
        if latest is None:
            return  # it has ended meanwhile, or is bound after all
        self.queue.add(latest, now, attempt.arrived, attempt.errors + 1)
        if found is not None and node is not None:
            self._tell("Pod", Action.DELETE, _as_bound(found, node), None, now)

    def gate_of(self, uid: str) -> str:
        """Why a plugin does not even let the pod be tried; empty where none holds it."""
        standing = self.queue.standing(uid)
        return standing.reason if standing is not None and standing.place is Place.GATED else ""


def default_engine(*, seed: int = 0, reserve_after: float | None = 60.0) -> Engine:
    """An empty engine with the profile that is used where nobody has configured any."""
    shared = Shared()
    profile = default_profile(shared)
    profiles = {profile.scheduler_name: profile}
    return Engine(profiles, ClusterState(), shared.groups, seed=seed, reserve_after=reserve_after)


def _as_bound(pod: Object, node: str) -> Object:
    """The pod as it would be, had it been bound: to plugins that listen it is as if it had left its node."""
    document = pod.document()
    raw.section(document, "spec")["nodeName"] = node
    return Object(pod.kind, raw.encode(document))


def _was_just_bound(old: Object | None, new: Object) -> bool:
    """Whether a pod came back as it was assumed: nothing but its node is new. One with devices is read again."""
    return (
        old is not None
        and not old.read(core.Pod).spec.node_name
        and old.meta.labels == new.meta.labels
        and old.meta.annotations == new.meta.annotations
        and not new.is_terminating
    )


def _action(old: Object | None, new: Object | None) -> Action:
    return Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE


def _view(found: Object | None) -> Resource | None:
    return None if found is None else found.view
