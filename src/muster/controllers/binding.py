"""The first scheduler's shell: watches pods, nodes and pod groups, has gangs placed, and binds them.

Gangs that may be placeable are in a queue; all that is in it is tried in one batch, without any pause: what
comes while a batch is being written is the next batch. A gang that cannot be placed leaves the queue until
something changes that could help it.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from muster import placement
from muster.api import conditions, core, timestamps, volcano
from muster.api.errors import ApiError, Unavailable
from muster.api.objects import Key, Object
from muster.cluster import Arena, ClusterArrays, needs_of
from muster.controllers import gangs
from muster.controllers.gangs import GangKey, Waiting
from muster.placement import Gang, Placed, PodRequest, Unplaceable, Verdict
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer, all_synced
from muster.runtime.recording import EventRecorder
from muster.runtime.workqueue import WorkQueue
from muster.store.protocol import (
    Bind,
    Change,
    Event,
    Options,
    Patch,
    PatchType,
    Refused,
    Result,
    Revision,
    Selection,
    Store,
    Write,
)

_log = logging.getLogger(__name__)

MOST_PODS_AT_ONCE = 512
"""Placing so many over ten thousand nodes takes some ten milliseconds, in which the process does nothing else."""
REPORT_SECONDS = 5.0
"""A pod's message is written when it changes, but not more often than this: counts of nodes may flutter."""
PATIENCE_SECONDS = 1.0
"""How long a gang may be incomplete before its pods are told: most are made one after another."""

_OPTIONS = Options(manager="muster-scheduler")
_FINISHED = ("Succeeded", "Failed")


Place: TypeAlias = Callable[[Sequence[Gang], ClusterArrays], Sequence[Verdict]]


class BindingController:
    def __init__(self, store: Store, clock: Clock, place: Place = placement.place) -> None:
        self._store = store
        self._clock = clock
        self._place = place

    async def run(self) -> None:
        await _Scheduler(self._store, self._clock, self._place).run()


@dataclass(slots=True)
class _Lot:
    """What one pass decides on."""

    gangs: list[tuple[GangKey, Gang]] = field(default_factory=list)
    waiting: list[tuple[GangKey, Waiting]] = field(default_factory=list)
    size: int = 0


@dataclass(frozen=True, slots=True)
class _Binding:
    key: GangKey
    pod: PodRequest
    node: str


@dataclass(frozen=True, slots=True)
class _Note:
    """Why a pod has no node yet."""

    key: GangKey
    pod: Object
    message: str


class _Scheduler:
    """The state of one run: everything in it is rebuilt from the store on the next."""

    def __init__(self, store: Store, clock: Clock, place: Place) -> None:
        self._store = store
        self._clock = clock
        self._place = place
        self._events = EventRecorder(store, clock, "muster-scheduler")
        self._queue: WorkQueue[GangKey] = WorkQueue(clock, max_delay=10.0)
        self._arena = Arena()
        self._parked: set[GangKey] = set()
        self._incomplete_since: dict[GangKey, float] = {}
        self._told: dict[str, tuple[str, float]] = {}  # uid → message and when
        self._looks: dict[str, object] = {}  # what mattered of a pod (uid) or node (name) when it was last seen
        self._pods = Informer(store, Selection(core.POD), clock=clock)
        self._pods.index_by("gang", lambda pod: [str(gangs.key_of(pod))] if gangs.key_of(pod).group else [])
        self._nodes = Informer(store, Selection(core.NODE), clock=clock)
        self._groups = Informer(store, Selection(volcano.POD_GROUP), clock=clock)
        self._pods.on_event(self._pod_changed)
        self._nodes.on_event(self._node_changed)
        self._groups.on_event(self._group_changed)

    async def run(self) -> None:
        informers = [self._nodes, self._groups, self._pods]
        async with asyncio.TaskGroup() as group:
            for informer in informers:
                group.create_task(informer.run(), name=f"scheduler-{informer.selection.kind.plural}")
            group.create_task(self._events.run(), name="scheduler-events")
            await all_synced(informers)
            while True:
                await self._cycle()

    # What changed, and whom it may help

    def _pod_changed(self, event: Event) -> None:
        pod = event.object
        assert pod is not None
        key = gangs.key_of(pod)
        view = pod.read(core.Pod)
        if event.change is Change.DELETED or view.status.phase in _FINISHED:
            if self._arena.node_of(pod.uid) is not None:
                self._arena.pod_released(pod.uid)
                self._unpark_all()
        elif view.spec.node_name:
            self._arena.pod_assigned(pod.uid, view.spec.node_name, needs_of(view.spec))
        look = (key, view.spec, pod.is_terminating, view.status.phase)
        is_news = self._looks_different(pod.uid, look) or event.change is Change.DELETED
        if event.change is Change.DELETED:
            del self._looks[pod.uid]
            self._told.pop(pod.uid, None)
        if is_news and (key.group or gangs.wants_node(pod)):
            self._queue.add(key)

    def _node_changed(self, event: Event) -> None:
        node = event.object
        assert node is not None
        name = node.key.name
        if event.change is Change.DELETED:
            self._looks.pop(f"node {name}", None)
            self._arena.node_removed(name)
            return
        view = node.read(core.Node)
        ready = conditions.find(view.status.conditions, "Ready")
        look = (view.status.allocatable, ready and ready.status, view.spec, node.meta.labels)
        if self._looks_different(f"node {name}", look):  # heartbeats are not
            self._arena.node_changed(view)
            self._unpark_all()

    def _group_changed(self, event: Event) -> None:
        assert event.object is not None
        key = event.object.key
        spec = event.object.read(volcano.PodGroup).spec
        if self._looks_different(event.object.uid, (event.change is Change.DELETED, spec)):
            self._queue.add(GangKey(key.namespace, group=key.name))
        if event.change is Change.DELETED:
            self._looks.pop(event.object.uid, None)

    def _looks_different(self, what: str, look: object) -> bool:
        is_new = self._looks.get(what) != look
        self._looks[what] = look
        return is_new

    def _unpark_all(self) -> None:
        for key in self._parked:
            self._queue.add(key)
        self._parked.clear()

    # One cycle: form gangs, place them, bind what was placed, tell the others why not

    async def _cycle(self) -> None:
        keys = [await self._queue.get()]
        while self._queue.depth:
            keys.append(await self._queue.get())
        try:
            for lot in self._lots(keys):
                await self._try(lot)
        finally:
            for key in keys:
                self._queue.done(key)

    def _lots(self, keys: Sequence[GangKey]) -> Iterator[_Lot]:
        """What there is to try, most urgent first, in lots of bounded size."""
        lot = _Lot()
        for key in sorted(keys, key=lambda key: (gangs.urgency(self._members(key)), key)):
            self._parked.discard(key)
            formed = gangs.form(key, self._members(key), self._group(key), self._is_assumed)
            if isinstance(formed, Gang):
                self._incomplete_since.pop(key, None)
                if lot.size and lot.size + len(formed.pods) > MOST_PODS_AT_ONCE:
                    yield lot
                    lot = _Lot()
                lot.gangs.append((key, formed))
                lot.size += len(formed.pods)
            elif formed is None:
                self._incomplete_since.pop(key, None)
            elif self._has_waited_long(key):
                lot.waiting.append((key, formed))
        yield lot

    def _members(self, key: GangKey) -> Collection[Object]:
        if key.group:
            return self._pods.by_index("gang", str(key))
        pod = self._pods.get(Key(key.namespace, key.pod))
        return () if pod is None else (pod,)

    def _group(self, key: GangKey) -> Object | None:
        return self._groups.get(Key(key.namespace, key.group)) if key.group else None

    def _is_assumed(self, uid: str) -> bool:
        return self._arena.node_of(uid) is not None

    def _has_waited_long(self, key: GangKey) -> bool:
        now = self._clock.monotonic()
        left = self._incomplete_since.setdefault(key, now) + PATIENCE_SECONDS - now
        if left > 0:
            self._queue.add_after(key, left)
        return left <= 0

    async def _try(self, lot: _Lot) -> None:
        verdicts = self._place([gang for _, gang in lot.gangs], self._arena.snapshot()) if lot.gangs else ()
        binds: list[_Binding] = []
        notes: list[_Note] = []
        for (key, _), verdict in zip(lot.gangs, verdicts, strict=True):
            match verdict:
                case Placed(_, assigned, left_out):
                    binds += [_Binding(key, pod, node) for pod, node in assigned]
                    notes += self._notes(key, ((pod.key, refusal.message) for pod, refusal in left_out))
                    if left_out:
                        self._parked.add(key)
                case Unplaceable(gang):
                    notes += self._notes(key, ((pod.key, verdict.message) for pod in gang.pods))
                    self._parked.add(key)
        for key, waiting in lot.waiting:
            notes += self._notes(key, ((pod, waiting.message) for pod in waiting.pods))
        await self._carry_out(binds, [note for note in notes if self._is_news(note)])

    async def _carry_out(self, binds: Sequence[_Binding], notes: Sequence[_Note]) -> None:
        """Write everything as one batch. What is to be bound counts as bound from here on, unless it is refused."""
        for bind in binds:
            self._arena.pod_assigned(bind.pod.uid, bind.node, dict(bind.pod.shape.needs))
        writes: list[Write] = [Bind(core.POD, b.pod.key, b.node, b.pod.uid, options=_OPTIONS) for b in binds]
        patches = [self._unschedulable(note) for note in notes]
        if not writes and not patches:
            return
        try:
            results = await self._store.write([*writes, *patches])
        except (ApiError, OSError) as error:
            _log.warning("nothing could be bound: %s", error)
            results = [Refused(Unavailable(str(error)))] * (len(writes) + len(patches))
        for bind, result in zip(binds, results, strict=False):
            self._settle(bind, result)
        for note, result in zip(notes, results[len(writes) :], strict=True):
            if isinstance(result, Refused):
                self._told.pop(note.pod.uid, None)
                if result.error.retryable:
                    self._queue.retry(note.key)

    def _settle(self, bind: _Binding, result: Result) -> None:
        if not isinstance(result, Refused):
            self._queue.forget(bind.key)
            self._told.pop(bind.pod.uid, None)
            where = f"Successfully assigned {bind.pod.key} to {bind.node}"
            self._events.record(result.object, "Normal", "Scheduled", where)
            return
        _log.info("binding %s to %s was refused: %s", bind.pod.key, bind.node, result.error)
        pod = self._pods.get(bind.pod.key)
        node = pod.read(core.Pod).spec.node_name if pod is not None and pod.uid == bind.pod.uid else None
        if node is None:
            self._arena.pod_released(bind.pod.uid)
            self._unpark_all()
        self._queue.retry(bind.key)

    # Telling people

    def _notes(self, key: GangKey, told: Iterable[tuple[Key, str]]) -> Iterator[_Note]:
        found = ((self._pods.get(pod), message) for pod, message in told)
        return (_Note(key, pod, message) for pod, message in found if pod is not None)

    def _is_news(self, note: _Note) -> bool:
        """Whether to write the note now; one that comes too soon after another is put off."""
        pod = note.pod
        message, at = self._told.get(pod.uid) or (_current_message(pod), float("-inf"))
        if message == note.message:
            return False
        now = self._clock.monotonic()
        if now < at + REPORT_SECONDS:
            self._queue.add_after(note.key, at + REPORT_SECONDS - now)
            return False
        self._told[pod.uid] = (note.message, now)
        self._events.record(pod, "Warning", "FailedScheduling", note.message)
        return True

    def _unschedulable(self, note: _Note) -> Patch:
        pod = note.pod
        before = conditions.find(pod.read(core.Pod).status.conditions, "PodScheduled")
        now = timestamps.to_text(self._clock.now())
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": note.message,
            "lastTransitionTime": before.last_transition_time if before and before.status == "False" else now,
        }
        return Patch(
            core.POD,
            pod.key,
            {"status": {"conditions": [condition]}},
            PatchType.STRATEGIC,
            "status",
            based_on=Revision(pod.revision),
            options=_OPTIONS,
        )


def _current_message(pod: Object) -> str | None:
    found = conditions.find(pod.read(core.Pod).status.conditions, "PodScheduled")
    return found.message if found is not None and found.status == "False" else None
