"""`SchedulingQueue`: hands out what is to be placed next, and knows when what could not be placed is worth another try.

Pure: time is an argument, and changes of the cluster are told. One owner. What `pop` hands out is in flight until
`placed`, `rejected` or `failed` says how it went. A gang is one entity with one backoff; its place among equals is that
of its first arrival, however often it was tried since.
"""

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from muster.api.meta import Instant
from muster.cluster.groups import GroupKey, PodGroups, group_key
from muster.cluster.pods import PodInfo, PodShape
from muster.cluster.state import ClusterState
from muster.placement.framework import Action
from muster.placement.plugins.priority_sort import PrioritySort, SortKey
from muster.placement.profiles import Profile
from muster.placement.queueing.backoff import WINDOW_SECONDS, Timing, aligned, expiry
from muster.placement.queueing.entities import NO_PLUGINS, Counts, Entity, EntityKey, Place, Queued, Standing
from muster.placement.queueing.gates import Gates
from muster.placement.queueing.heaps import LazyHeap
from muster.placement.queueing.nominations import Nominations
from muster.placement.queueing.waking import ClusterChange, Fault, FlightLog, Hints, Missed, WaitingIndex

_WAITING = (Place.UNSCHEDULABLE, Place.GATED)
_READY = (Place.ACTIVE, Place.BACKOFF)
_SLACK = 1000
SortBy: TypeAlias = Callable[[PodInfo, Instant], SortKey]
BY_PRIORITY: SortBy = PrioritySort().sort_key


class SchedulingQueue:
    def __init__(
        self,
        profiles: Mapping[str, Profile],
        cluster: ClusterState,
        groups: PodGroups | None = None,
        timing: Timing | None = None,
        sort_key: SortBy = BY_PRIORITY,
    ) -> None:
        """`profiles`: by scheduler name. `cluster` is what hints are told of, `groups` what makes pods a gang."""
        self.nominations = Nominations()
        self._groups = groups or PodGroups()
        self._timing = timing or Timing()
        self._sort_key = sort_key
        self._hints = Hints({name: profile.wakes() for name, profile in profiles.items()}, cluster)
        self._gates = Gates(profiles, self._hints)
        self._waiting = WaitingIndex(self._hints)
        self._flights = FlightLog(self._hints)
        self._entities: dict[EntityKey, Entity] = {}
        self._entity_of: dict[str, Entity] = {}
        self._active = LazyHeap()
        self._backoff = LazyHeap()
        self._error_backoff = LazyHeap()
        self._resting: dict[PodShape, LazyHeap] = {}  # those of `_backoff` that are alone, the eldest first
        self._waiting_since: deque[tuple[float, int, Entity]] = deque()
        self._blocked: dict[EntityKey, Entity] = {}
        self._numbers = 0
        self._next_flush = float("-inf")

    # Pods come, change and go

    def add(self, pod: PodInfo, now: float, arrived: float | None = None, errors: int = 0) -> None:
        """A pod that has no node. One that was placed and could not be bound comes back with what its attempt had:
        `arrived`, and one more than its `errors`."""
        if pod.uid in self._entity_of:
            self.update(pod, now)
            return
        self.nominations.nominate(pod, pod.nominated)
        key, first = self._home(pod), now if arrived is None else arrived
        entity = self._entities.get(key)
        if entity is None:
            self._numbers += 1
            entity = self._entities[key] = Entity(key, self._numbers, first)
        self._entity_of[pod.uid] = entity
        entity.arrived = min(entity.arrived, first)
        if errors:
            entity.errors = max(entity.errors, errors)
            self._rest(entity, now)
        if entity.place is Place.IN_FLIGHT:
            entity.newcomers[pod.uid] = pod
        else:
            self._join(entity, pod, now, is_error=errors > 0)

    def update(self, pod: PodInfo, now: float, changes: Sequence[ClusterChange] = ()) -> None:
        """The pod itself changed; `changes` are of the resource UnscheduledPod, one for each thing that did."""
        entity = self._entity_of.get(pod.uid)
        if entity is None or (self._home(pod) != entity.key and entity.place is not Place.IN_FLIGHT):
            arrived = entity.arrived if entity else None
            self.remove(pod.uid)
            self.add(pod, now, arrived)
            return
        self.nominations.updated(entity.member(pod.uid), pod)
        if pod.uid in entity.newcomers:
            entity.newcomers[pod.uid] = pod
            return
        self._replace(entity, pod)
        if entity.place is Place.IN_FLIGHT:
            for change in changes:
                self._flights.note(change, pod.uid)
        elif entity.place is Place.GATED:
            self._open_gates(entity, now)
        elif entity.place is Place.UNSCHEDULABLE:
            helped = [p for p in entity.listens_to if any(self._hints.helps(p, pod, change) for change in changes)]
            if helped:
                self._requeue(entity, now, at_once=not entity.pending_plugins.isdisjoint(helped))
        else:
            entity.is_stale = True
            if entity.leader is pod:
                self._enter(entity, entity.place, now)

    def remove(self, uid: str) -> None:
        """The pod has a node, has finished or is gone."""
        self.nominations.forget(uid)
        entity = self._entity_of.pop(uid, None)
        if entity is None:
            return
        if entity.newcomers.pop(uid, None) is None:
            self._part(entity, uid)
        if not entity.members and not entity.newcomers and entity.place is not Place.IN_FLIGHT:
            self._forget(entity)

    # Attempts

    def pop(self, now: float) -> Queued | None:
        """What goes next; None where nothing is due. Rests are cut short when there is nothing else to do, or when a
        younger one of the same shape would go first, except after errors."""
        self._take_due(now)
        while True:
            entity = self._active.first() or self._backoff.first()
            if entity is None:
                return None
            entity = self._elder_of(entity) or entity
            if entity.is_unsorted:
                self._enter(entity, entity.place, now)
                continue
            # A gang may have become incomplete by what the queue is not told of: members that were placed and ended.
            if (entity.is_stale or isinstance(entity.key, GroupKey)) and self._gates.ask_all(entity):
                self._enter(entity, Place.GATED, now)
                continue
            self._enter(entity, Place.IN_FLIGHT, now)
            entity.has_yielded = False
            self._flights.depart(entity)
            entity.attempts += 1
            return entity.handed_out()

    def _elder_of(self, entity: Entity) -> Entity | None:
        """One of its shape that rests, and has waited longer: whoever was tried more often rests longer, and younger
        ones would take every room that comes free meanwhile. Once, so that one newcomer does not wake all who rest."""
        if entity.has_yielded or isinstance(entity.key, GroupKey):
            return None
        resting = self._resting.get(entity.leader.shape)
        elder = resting.first() if resting is not None else None
        if elder is None or self._order(elder) >= self._order(entity):
            return None
        entity.has_yielded = True
        return elder

    def placed(self, attempt: Queued, uids: Iterable[str], now: float) -> None:
        """These pods have nodes. What else the gang has (members that came late, or beyond its minimum) goes next."""
        landed = self._land(attempt, uids)
        if landed is None:
            return
        entity, _ = landed
        entity.rejections = entity.errors = 0
        entity.backoff_until = None
        self._unblock(entity)
        self._return(entity, now, at_once=True)

    def rejected(
        self,
        attempt: Queued,
        plugins: frozenset[str],
        now: float,
        pending: frozenset[str] = NO_PLUGINS,
        placed: Iterable[str] = (),
    ) -> None:
        """It fits nowhere now, as these plugins said (`pending`: those that wait for something of their own and want
        the pod back at once). `placed`: members that have nodes all the same. Without any plugin this is an error."""
        if not plugins and not pending:
            self.failed(attempt, now)
            return
        landed = self._land(attempt, placed)
        if landed is None:
            return
        entity, missed = landed
        entity.rejections += 1
        entity.errors = 0
        entity.plugins, entity.pending_plugins = plugins, pending
        self._rest(entity, now)
        self._block(entity, now)
        at_once = self._flights.wakes(entity, missed)
        if at_once is None and not entity.newcomers:
            self._enter(entity, Place.UNSCHEDULABLE, now)
            self._send_home(entity, now)
        else:
            self._return(entity, now, at_once=bool(at_once))

    def failed(self, attempt: Queued, now: float) -> None:
        """Something went wrong that is no verdict: tried again after a rest, whatever happens meanwhile."""
        landed = self._land(attempt, ())
        if landed is None:
            return
        entity, _ = landed
        entity.errors += 1
        entity.plugins = entity.pending_plugins = NO_PLUGINS
        self._rest(entity, now)
        self._return(entity, now, at_once=False)

    def activate(self, uids: Iterable[str], now: float) -> None:
        """These are to be tried at once; those in flight, after they come back."""
        for entity in {self._entity_of[uid]: None for uid in uids if uid in self._entity_of}:
            if entity.place is Place.IN_FLIGHT:
                self._flights.urge(entity)
            elif entity.place is not Place.ACTIVE:
                self._requeue(entity, now, at_once=True)

    # Changes of the cluster

    def changed(self, change: ClusterChange, now: float) -> None:
        """Tell of every change of nodes, assigned pods, other pending pods and groups, once `cluster` and `groups` have
        it."""
        if change.resource in ("PodGroup", "CompositePodGroup"):
            self._regroup(change, now)
        arrived = change.new if change.resource == "UnscheduledPod" and change.action is Action.ADD else None
        joined = self._entity_of.get(arrived.metadata.uid) if arrived is not None else None
        for entity, at_once in self._waiting.woken(change).items():
            if entity.place is Place.GATED and entity is joined:
                continue  # its gates were asked when the pod was added
            if entity.place is Place.GATED:
                self._open_gates(entity, now)
            else:
                self._requeue(entity, now, at_once)
        self._flights.note(change)

    # Questions

    def next_time(self, now: float) -> float | None:
        """When `pop` may have something: `now` where it has. None: not before something changes."""
        if self._active.first() or self._backoff.first():
            return now
        error, waiting = self._error_backoff.due(), self._waiting_since
        times = [] if error is None else [error + WINDOW_SECONDS]
        while waiting and waiting[0][2].token != waiting[0][1]:
            waiting.popleft()
        if waiting:
            times.append(max(waiting[0][0] + self._timing.max_unschedulable, self._next_flush))
        return max(min(times), now) if times else None

    def counts(self) -> Counts:
        counted = dict.fromkeys(Place, 0)
        for entity in self._entities.values():
            counted[entity.place] += 1
        return Counts(counted, len(self._entity_of))

    def standing(self, uid: str) -> Standing | None:
        entity = self._entity_of.get(uid)
        if entity is None:
            return None
        gate = entity.gate if entity.place is Place.GATED else None
        return Standing(
            place=entity.place,
            plugins=frozenset({gate.plugin}) if gate else entity.plugins | entity.pending_plugins,
            reason=gate.reason if gate else "",
            attempts=entity.attempts,
            arrived=entity.arrived,
            backoff_until=entity.backoff_until if entity.place is Place.BACKOFF else None,
        )

    def oldest_blocked_gang(
        self, now: float, after_seconds: float, passing_over: Container[EntityKey] = ()
    ) -> Queued | None:
        """The gang first in order among those that were rejected, and not placed, for so long. For it the runtime may
        hold back what becomes free, so that smaller work does not overtake it for ever."""
        waited = (
            entity
            for entity in self._blocked.values()
            if entity.members
            and entity.key not in passing_over
            and entity.place is not Place.GATED
            and entity.blocked_since is not None
            and now - entity.blocked_since >= after_seconds
        )
        first = min(waited, key=lambda entity: (self._order(entity), entity.number), default=None)
        return first.handed_out() if first else None

    @property
    def faults(self) -> Sequence[Fault]:
        """The last times that a plugin raised in a hint or at a gate."""
        return tuple(self._hints.faults)

    # Membership

    def _home(self, pod: PodInfo) -> EntityKey:
        key = group_key(pod)
        return pod.uid if key is None else self._groups.root(key) or key

    def _join(self, entity: Entity, pod: PodInfo, now: float, is_error: bool) -> None:
        before = len(entity.classes)
        entity.join(pod)
        if entity.place in _WAITING:
            self._waiting.join(entity, pod)
        if entity.place is Place.GATED:
            self._open_gates(entity, now)  # asks about this one, too, once those held before may pass
        elif self._gates.ask(entity, pod) is not None:
            self._enter(entity, Place.GATED, now)
        elif is_error or (entity.place is Place.UNSCHEDULABLE and len(entity.classes) > before):
            # A member unlike the others may fit where they do not; more of the same may not.
            self._requeue(entity, now, at_once=False)
        elif entity.place in _READY and entity.leader is pod:
            self._enter(entity, entity.place, now)

    def _part(self, entity: Entity, uid: str) -> None:
        pod = entity.part(uid)
        if entity.place in _WAITING:
            self._waiting.part(entity, pod)

    def _replace(self, entity: Entity, pod: PodInfo) -> None:
        gate = entity.gates.get(pod.uid)
        self._part(entity, pod.uid)
        entity.join(pod)
        if gate is not None:
            entity.gates[pod.uid] = gate
        if entity.place in _WAITING:
            self._waiting.join(entity, pod)

    def _regroup(self, change: ClusterChange, now: float) -> None:
        """The groups changed: entities whose topmost group is another now move there, the rest are asked again."""
        found = change.new or change.old
        if found is None:
            return
        namespace, own = found.metadata.namespace, GroupKey(found.metadata.namespace, found.metadata.name)
        if change.resource == "PodGroup":
            keys = [own, self._groups.root(own) or own]
        else:
            keys = [key for key in self._entities if isinstance(key, GroupKey) and key.namespace == namespace]
        for key in dict.fromkeys(keys):
            entity = self._entities.get(key)
            if entity is None:
                continue
            if entity.place in _READY:
                self._enter(entity, entity.place, now)  # the group's priority may be another
            if entity.place is not Place.IN_FLIGHT:
                self._send_home(entity, now)

    def _send_home(self, entity: Entity, now: float) -> None:
        """May leave nothing of the entity."""
        if not isinstance(entity.key, GroupKey):
            return
        groups = {pod.group for pod in entity.members.values()}
        if all(group is not None and self._home_of_group(GroupKey(*group)) == entity.key for group in groups):
            return
        for pod in [pod for pod in entity.members.values() if self._home(pod) != entity.key]:
            self.remove(pod.uid)
            self.add(pod, now, entity.arrived)

    def _home_of_group(self, key: GroupKey) -> GroupKey:
        return self._groups.root(key) or key

    # Places

    def _land(self, attempt: Queued, placed: Iterable[str]) -> tuple[Entity, Missed] | None:
        """The entity of an attempt that is over, without those placed; None where nothing is left of it."""
        entity = self._entities.get(attempt.key)
        if entity is None or entity.place is not Place.IN_FLIGHT or entity.attempts != attempt.attempts:
            return None
        missed = self._flights.arrive(entity)
        for uid in placed:
            if uid in entity.members:
                self.remove(uid)
        if not entity.members and not entity.newcomers:
            self._forget(entity)
            return None
        return entity, missed

    def _return(self, entity: Entity, now: float, at_once: bool) -> None:
        newcomers, entity.newcomers = entity.newcomers, {}
        for pod in newcomers.values():
            entity.join(pod)
        self._requeue(entity, now, at_once)
        self._send_home(entity, now)

    def _open_gates(self, entity: Entity, now: float) -> None:
        before = entity.gate
        if not self._gates.ask_held(entity):
            self._requeue(entity, now, at_once=False)
        elif entity.gate != before or not entity.listens_to:
            self._enter(entity, Place.GATED, now)

    def _requeue(self, entity: Entity, now: float, at_once: bool) -> None:
        """To the active set, or to rest first, unless a gate holds it."""
        if self._gates.ask_all(entity):
            self._enter(entity, Place.GATED, now)
        else:
            self._line_up(entity, now, at_once)

    def _line_up(self, entity: Entity, now: float, at_once: bool) -> None:
        is_resting = entity.backoff_until is not None and entity.backoff_until >= aligned(now)
        self._enter(entity, Place.BACKOFF if is_resting and not at_once else Place.ACTIVE, now)

    def _rest(self, entity: Entity, now: float) -> None:
        entity.backoff_until = expiry(entity.rejections, entity.errors, entity.size, now, self._timing)

    def _enter(self, entity: Entity, place: Place, now: float) -> None:
        if entity.place in _WAITING:
            self._waiting.discard(entity)
        entity.place = place
        entity.token += 1
        entity.is_unsorted = False
        if place is Place.ACTIVE:
            self._active.push(0.0, self._order(entity), entity, len(self._entities))
        elif place is Place.BACKOFF:
            assert entity.backoff_until is not None
            heap = self._backoff if entity.plugins or entity.pending_plugins else self._error_backoff
            heap.push(entity.backoff_until, self._order(entity), entity, len(self._entities))
            if heap is self._backoff and not isinstance(entity.key, GroupKey):
                self._remember_rest(entity)
        elif place in _WAITING:
            gate = entity.gate if place is Place.GATED else None
            entity.listens_to = frozenset({gate.plugin}) if gate else entity.plugins | entity.pending_plugins
            self._waiting.add(entity)
            self._watch_time(entity, now)

    def _remember_rest(self, entity: Entity) -> None:
        if len(self._resting) > 2 * len(self._entities) + _SLACK:
            self._resting = {shape: heap for shape, heap in self._resting.items() if heap.first() is not None}
        heap = self._resting.setdefault(entity.leader.shape, LazyHeap())
        heap.push(0.0, self._order(entity), entity, len(self._entities))

    def _watch_time(self, entity: Entity, now: float) -> None:
        waiting = self._waiting_since
        if len(waiting) > 2 * len(self._entities) + _SLACK:
            self._waiting_since = waiting = deque(entry for entry in waiting if entry[2].token == entry[1])
        waiting.append((now, entity.token, entity))

    def _order(self, entity: Entity) -> SortKey:
        leader = entity.leader
        if isinstance(entity.key, GroupKey):
            group = self._groups.get(entity.key)
            if group is not None and group.priority is not None:
                leader = replace(leader, priority=group.priority)
        return self._sort_key(leader, Instant(entity.arrived))

    def _take_due(self, now: float) -> None:
        for heap in (self._backoff, self._error_backoff):
            while (entity := heap.first()) and (heap.due() or 0.0) < aligned(now):
                self._enter(entity, Place.ACTIVE, now)
        if now < self._next_flush:
            return
        self._next_flush = now + self._timing.flush_every
        limit = now - self._timing.max_unschedulable
        while self._waiting_since and self._waiting_since[0][0] <= limit:
            _, token, entity = self._waiting_since.popleft()
            if entity.token == token:
                self._requeue(entity, now, at_once=False)

    def _forget(self, entity: Entity) -> None:
        entity.token += 1
        del self._entities[entity.key]
        self._blocked.pop(entity.key, None)

    def _block(self, entity: Entity, now: float) -> None:
        """A gang that has its minimum and lacks only pods beyond it is not blocked."""
        if not isinstance(entity.key, GroupKey):
            return
        if self._groups.is_placed(entity.key):
            self._unblock(entity)
        elif entity.blocked_since is None:
            entity.blocked_since = now
            self._blocked[entity.key] = entity

    def _unblock(self, entity: Entity) -> None:
        entity.blocked_since = None
        self._blocked.pop(entity.key, None)
