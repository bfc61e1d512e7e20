"""Carries decisions out: has victims evicted, waits until they are gone, asks the plugins of the binding cycle, binds.

Many decisions share one batch of writes, and a few batches are under way at once. What the store refuses is taken back
in the engine and tried again. The engine belongs to the deciding loop: here it is touched in `flush` only.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence

from muster.api import core, errors
from muster.api.errors import ApiError
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.cluster.devices import NOTHING, wants
from muster.cluster.groups import group_key
from muster.cluster.pods import DEVICES_ANNOTATION
from muster.controllers.scheduling.cycles import Binding, Bound, Cycles, Trouble, Wait
from muster.controllers.scheduling.evicting import Evictions
from muster.controllers.scheduling.evictor import Evictor, is_passing
from muster.controllers.scheduling.reporter import OPTIONS, Reporter
from muster.placement.engine import Engine
from muster.placement.queueing.entities import Queued
from muster.placement.scheduling import Decision
from muster.runtime.clock import Clock
from muster.store.protocol import Bind, Refused, Result, Store, Written

_log = logging.getLogger(__name__)
_BATCH = 64  # pods in one batch of writes, but for a gang, which goes whole: others want to write meanwhile
_MOST_BATCHES = 4  # under way at once: one slow answer among many must not hold up all that was decided meanwhile
_MOST_IN_PREPARATION = 128  # pods that plugins prepare at once, each with I/O of its own
_ASK_SECONDS = 1.0  # between two questions whether a pod that waits for a permit may go on
_RETRY_SECONDS = 1.0
_MOST_TRIES = 10  # of a lone pod's bind that the store cannot do now: then others may have the room


class Binder:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        engine: Engine,
        reporter: Reporter,
        cycles: Cycles,
        objects: Mapping[tuple[Kind, Key], Object],
        news: asyncio.Event,
    ) -> None:
        """`objects`: all that is known, kept up to date."""
        self._store = store
        self._clock = clock
        self._engine = engine
        self._reporter = reporter
        self._cycles = cycles
        self._objects = objects
        self._news = news
        self._evictions = Evictions(clock, reporter, objects)
        self._evictor = Evictor(store, self._evictions, self._unsettled)
        self._ready: deque[Binding] = deque()
        self._slow: deque[Binding] = deque()
        self._permits: dict[str, float] = {}  # by uid: until when it may wait
        self._unbound: dict[str, Binding] = {}  # by uid: all of which no bind is under way
        self._unsure: dict[str, Binding] = {}  # by uid: those that may be bound, for the store's answer was lost
        self._failed: list[Binding] = []
        self._undealt: dict[str, Binding] = {}  # by uid: those whose GPUs others had when they were decided on
        self._under_way: set[str] = set()  # by uid: those whose bind has not been answered yet
        self._batches = 0
        self._has_work = asyncio.Event()
        self._room = asyncio.Semaphore(_MOST_IN_PREPARATION)

    def _pod(self, key: Key) -> Object | None:
        return self._objects.get((core.POD, key))

    def _has_node(self, name: str) -> bool:
        return (core.NODE, Key("", name)) in self._objects

    # From the deciding loop

    def take(self, decision: Decision) -> None:
        key = decision.attempt.key
        bindings = [Binding(assigned, decision.attempt) for assigned in decision.assigned]
        for binding in bindings if decision.unasked else ():
            binding.is_unasked = binding.pod.uid in decision.unasked
        for binding in bindings:
            self._reporter.placed(binding.pod.key, binding.pod.uid)
        if decision.victims:
            self._undealt |= {
                one.pod.uid: one for one in bindings if not one.assigned.devices and wants(one.pod) != NOTHING
            }
            displaced = self._displace(decision)
            victims = [victim for victim in decision.victims if victim.uid not in displaced]
            bindings = self._evictions.start(key, bindings, victims)
        if bindings and not self._evictions.join(key, bindings):
            for binding in bindings:
                self._admit(binding)
        if decision.refusal is not None and decision.refusal.clears_nomination:
            self._evictions.forget_promise(decision.refusal.pods)

    def flush(self) -> None:
        """After a slice of decisions: take back what failed, and start writing what is ready."""
        for binding in self._evictions.overdue():
            _log.info("%s waited in vain for room on %s", binding.pod.key, binding.node)
            self._take_back(binding)
        now = self._clock.monotonic()
        for binding in self._failed:
            self._engine.binding_failed(binding.pod, binding.attempt, self._pod(binding.pod.key), now)
        self._failed.clear()
        self._deal_devices()
        self._ask_again()
        if self._ready or self._slow:
            self._has_work.set()
        self._evictor.wake()

    def next_time(self) -> float | None:
        """When `flush` has something to do, if nothing happens before."""
        times = list(self._permits.values())
        if self._permits:
            times.append(self._clock.monotonic() + _ASK_SECONDS)
        overdue = self._evictions.next_time()
        return min([*times, overdue] if overdue is not None else times, default=None)

    def pod_ended(self, uid: str) -> None:
        """A victim has gone, or a pod that was to be bound."""
        self._undealt.pop(uid, None)
        binding = self._unsure.pop(uid, None) or self._call_off(uid)
        if binding is not None:
            binding.is_off = True
            self._cycles.undo(binding)
        for binding in self._evictions.ended(uid):
            self._admit(binding)

    def pod_bound(self, pod: Object) -> None:
        """The store shows the pod with a node: by our doing, though we may not have been told, or somebody else's."""
        self._undealt.pop(pod.uid, None)
        binding = self._unsure.pop(pod.uid, None) or self._call_off(pod.uid)
        if binding is None:
            return
        binding.is_off = True
        if pod.read(core.Pod).spec.node_name == binding.node:
            self._tell_bound(binding, pod)
        else:
            self._cycles.undo(binding)

    def _deal_devices(self) -> None:
        """Its agent is to be told which GPUs a pod has, also where others had them when it was decided on."""
        for uid, binding in list(self._undealt.items()):
            devices = self._engine.devices_of(binding.pod, binding.node)
            if devices:
                binding.assigned = binding.assigned._replace(devices=devices)
                del self._undealt[uid]

    def _displace(self, decision: Decision) -> set[str]:
        """Victims that have no node yet need not be deleted: it is enough that they lose their claim to it."""
        displaced = self._evictions.displaced(decision.victims)
        for victim in decision.victims:
            found = self._pod(victim.key)
            is_bound = found is not None and found.read(core.Pod).spec.node_name
            called_off = None if is_bound else self._call_off(victim.uid)
            if called_off is not None:
                displaced.append(called_off)
        displaced += self._broken_up(displaced) if displaced else ()
        for binding in displaced:
            self._take_back(binding)
        return {binding.pod.uid for binding in displaced}

    def _broken_up(self, displaced: Sequence[Binding]) -> list[Binding]:
        """The other members of gangs that are too few without those displaced: they wait together for another time,
        unless some of them are on their nodes already."""
        lost = Counter(key for binding in displaced if (key := group_key(binding.pod)) is not None)
        found: list[Binding] = []
        for key, count in lost.items():
            others = [binding for binding in self._unbound.values() if group_key(binding.pod) == key]
            left = self._engine.groups.members(key).scheduled_count - count
            group = self._engine.groups.get(key)
            if group is not None and others and len(others) == left < group.min_count:
                found += [binding for other in others if (binding := self._call_off(other.pod.uid)) is not None]
        return found

    def _call_off(self, uid: str) -> Binding | None:
        self._permits.pop(uid, None)
        binding = self._unbound.pop(uid, None)
        if binding is not None:
            binding.is_off = True
        return binding

    def _admit(self, binding: Binding) -> None:
        """Reserve and Permit, at once."""
        outcome = self._cycles.admit(binding)
        uid = binding.pod.uid
        if isinstance(outcome, Wait):
            self._unbound[uid] = binding
            self._permits.setdefault(uid, self._clock.monotonic() + outcome.seconds)
            return
        self._permits.pop(uid, None)
        if isinstance(outcome, Trouble):
            self._unbound.pop(uid, None)
            self._refused(binding, outcome)
            return
        self._unbound[uid] = binding
        if self._cycles.needs_time(binding):
            self._slow.append(binding)
        else:
            self._ready.append(binding)

    def _ask_again(self) -> None:
        """Pods that a Permit plugin lets wait: asked again, and given up at their deadline."""
        now = self._clock.monotonic()
        for uid, deadline in list(self._permits.items()):
            if now < deadline:
                self._admit(self._unbound[uid])
            elif (binding := self._call_off(uid)) is not None:
                self._refused(binding, Trouble("Permit", "waited too long for a permit"))

    def budget_changed(self, old: Object | None, new: Object | None) -> None:
        self._evictions.budget_changed(old, new)

    # On its own

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._evictor.run(), name="scheduler: evicting")
            while True:
                await self._has_work.wait()
                self._has_work.clear()
                while self._slow:
                    binding = self._slow.popleft()
                    tasks.create_task(self._prepare(binding), name=f"scheduler: preparing {binding.pod.key}")
                while self._ready and self._batches < _MOST_BATCHES:
                    tasks.create_task(self._write(self._take_batch()), name="scheduler: writing binds")

    def _unsettled(self) -> Collection[str]:
        """Of these pods, by uid, nobody knows yet whether they have a node."""
        return self._unsure.keys() | self._under_way

    async def _prepare(self, binding: Binding) -> None:
        async with self._room:
            if binding.is_off:
                return
            bound: Trouble | Bound | None = await self._cycles.prepare(binding)
            if bound is None and not binding.is_off:
                bound = await self._bind_by_plugin(binding)
        if binding.is_off:
            return
        if isinstance(bound, Trouble):
            self._unbound.pop(binding.pod.uid, None)
            self._refused(binding, bound)
        elif bound is not None:
            self._tell_bound(binding, self._pod(binding.pod.key))
        else:
            self._ready.append(binding)
            self._has_work.set()

    async def _bind_by_plugin(self, binding: Binding) -> Trouble | Bound | None:
        """As plugins and extenders say it, but the pod itself has the last word: a bind whose answer was lost is a
        failure to them."""
        uid = binding.pod.uid
        del self._unbound[uid]
        self._under_way.add(uid)
        said = await self._cycles.bind(binding)
        if said is None:
            self._unbound[uid] = binding
        else:
            answer = await self._looked_up(binding)
            while answer is None:
                await asyncio.sleep(_RETRY_SECONDS)
                answer = await self._looked_up(binding)
            if isinstance(answer, Written):
                said = Bound(said.plugin)
            elif isinstance(said, Bound):
                said = Trouble(said.plugin, "says that the pod is bound, but it is not")
        self._under_way.discard(uid)
        self._evictor.wake()
        return said

    def _take_batch(self) -> list[Binding]:
        bindings: list[Binding] = []
        attempt: Queued | None = None
        while self._ready and (len(bindings) < _BATCH or self._ready[0].attempt is attempt):
            binding = self._ready.popleft()
            attempt = binding.attempt
            if binding.is_off:
                continue
            self._unbound.pop(binding.pod.uid, None)
            if binding.pod.uid in self._unsure or self._has_node(binding.node):
                bindings.append(binding)
            else:
                self._take_back(binding)
        self._under_way.update(binding.pod.uid for binding in bindings)
        self._batches += 1
        return bindings

    async def _write(self, bindings: Sequence[Binding]) -> None:
        try:
            results = await self._store.write([self._bind(binding) for binding in bindings])
        except (ApiError, OSError) as error:
            _log.warning("nothing could be bound: %s", error)
            self._unsure.update((binding.pod.uid, binding) for binding in bindings if not binding.is_off)
            for binding in bindings:
                self._rest(binding)
        else:
            for binding, result in zip(bindings, results, strict=True):
                answer = await self._looked_up(binding) if _is_doubtful(result) else result
                if answer is None:
                    self._rest(binding)
                else:
                    self._settle(binding, answer)
        self._under_way.difference_update(binding.pod.uid for binding in bindings)
        self._batches -= 1
        self._has_work.set()
        self._evictor.wake()

    def _bind(self, binding: Binding) -> Bind:
        devices = binding.assigned.devices
        annotations = {DEVICES_ANNOTATION: devices} if devices else {}
        return Bind(core.POD, binding.pod.key, binding.node, binding.pod.uid, annotations, OPTIONS)

    async def _looked_up(self, binding: Binding) -> Result | None:
        """What the pod itself says. None: it cannot be asked now. To give up a claim that was granted would give its
        room to another as well."""
        try:
            found = await self._store.get(core.POD, binding.pod.key)
        except errors.NotFound as error:
            return Refused(error)
        except (ApiError, OSError):
            return None
        if found.uid == binding.pod.uid and found.read(core.Pod).spec.node_name == binding.node:
            return Written(found)
        return Refused(errors.Conflict(f"{binding.pod.key} is not what was to be bound, or elsewhere"))

    def _settle(self, binding: Binding, result: Result) -> None:
        self._unsure.pop(binding.pod.uid, None)
        if binding.is_off:
            return
        if isinstance(result, Refused):
            _log.info("binding %s to %s was refused: %s", binding.pod.key, binding.node, result.error)
            binding.tries += 1
            is_victim = self._evictions.is_victim(binding.pod.uid)
            if not is_victim and is_passing(result.error) and (binding.attempt.is_gang or binding.tries < _MOST_TRIES):
                # Keeps its claim: what a gang loses here while its other members are bound, it may not get again.
                self._unbound[binding.pod.uid] = binding
                self._rest(binding)
            else:
                self._take_back(binding)
        else:
            self._tell_bound(binding, result.object)

    def _tell_bound(self, binding: Binding, pod: Object | None) -> None:
        if pod is not None:
            message = f"Successfully assigned {binding.pod.key} to {binding.node}"
            self._reporter.events.record(pod, "Normal", "Scheduled", message)
        self._cycles.bound(binding)

    def _refused(self, binding: Binding, trouble: Trouble) -> None:
        _log.warning("plugin %s on %s: %s", trouble.plugin, binding.pod.key, trouble.why)
        self._reporter.waits([binding.pod.key], trouble.message, "SchedulerError")
        self._take_back(binding)

    def _take_back(self, binding: Binding) -> None:
        """It gives up its claim; those who wait for it to be evicted have what they wait for."""
        self._undealt.pop(binding.pod.uid, None)
        self._cycles.undo(binding)
        self._failed.append(binding)
        self._news.set()
        if self._evictions.is_victim(binding.pod.uid):
            for ready in self._evictions.spare(binding.pod.uid):
                self._admit(ready)

    def _rest(self, binding: Binding) -> None:
        asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._try_again, binding)

    def _try_again(self, binding: Binding) -> None:
        self._ready.append(binding)
        self._has_work.set()


def _is_doubtful(result: Result) -> bool:
    """A bind that was taken though nobody heard of it is refused the next time: the pod has a node, ours."""
    return isinstance(result, Refused) and isinstance(result.error, errors.Conflict)
