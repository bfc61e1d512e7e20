"""Carries decisions out: evicts victims, waits until they are gone, asks the plugins of the binding cycle, binds.

Many decisions share one batch of writes. What the store refuses is taken back in the engine and tried again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from muster.api import core, errors, timestamps
from muster.api.errors import ApiError
from muster.api.objects import Key, Object
from muster.cluster.pods import DEVICES_ANNOTATION, PodInfo
from muster.controllers.scheduling.reporter import OPTIONS, Reporter
from muster.placement.engine import Engine
from muster.placement.framework import Code
from muster.placement.profiles import Profile, name_of
from muster.placement.queueing.entities import Queued
from muster.placement.scheduling import Assigned, Decision
from muster.runtime.clock import Clock
from muster.store.protocol import Bind, Delete, Patch, PatchType, Refused, Result, Store, Write

_log = logging.getLogger(__name__)
_BATCH = 1024


@dataclass(frozen=True, slots=True)
class _Binding:
    assigned: Assigned
    attempt: Queued

    @property
    def pod(self) -> PodInfo:
        return self.assigned.pod


@dataclass(slots=True)
class _Waiting:
    """A decision whose victims have not all gone yet."""

    bindings: list[_Binding]
    victims: set[str]


class Binder:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        engine: Engine,
        reporter: Reporter,
        pod: Callable[[Key], Object | None],
        news: asyncio.Event,
    ) -> None:
        self._store = store
        self._clock = clock
        self._engine = engine
        self._reporter = reporter
        self._pod = pod
        self._news = news
        self._ready: deque[_Binding] = deque()
        self._evictions: list[Write] = []
        self._waiting: list[_Waiting] = []
        self._permits: dict[str, tuple[_Binding, float]] = {}
        self._failed: list[_Binding] = []
        self._has_work = asyncio.Event()

    # From the deciding loop

    def take(self, decision: Decision) -> None:
        bindings = [_Binding(assigned, decision.attempt) for assigned in decision.assigned]
        for binding in bindings:
            self._reporter.placed(binding.pod.key, binding.pod.uid)
        if decision.victims:
            self._evict(decision, bindings)
        else:
            self._ready.extend(bindings)

    def flush(self) -> None:
        """After a slice of decisions: take back what failed, and start writing what is ready."""
        now = self._clock.monotonic()
        for binding in self._failed:
            self._engine.binding_failed(binding.pod, binding.attempt, now)
        self._failed.clear()
        if self._ready or self._evictions or self._permits:
            self._has_work.set()

    def pod_changed(self, old: Object | None, new: Object | None) -> None:
        """A victim may have gone, or a pod that was to be bound."""
        if not self._waiting or (new is not None and not _has_ended(new)):
            return
        found = new or old
        assert found is not None
        for waiting in list(self._waiting):
            waiting.victims.discard(found.uid)
            waiting.bindings = [binding for binding in waiting.bindings if binding.pod.uid != found.uid]
            if not waiting.victims:
                self._waiting.remove(waiting)
                self._ready.extend(waiting.bindings)

    def _evict(self, decision: Decision, bindings: list[_Binding]) -> None:
        """Each victim is told why, then deleted with its own grace. The preemptor says which node it waits for."""
        now = timestamps.to_text(self._clock.now())
        preemptor = bindings[0].pod
        gone = set()
        for victim in decision.victims:
            if self._pod(victim.key) is None:
                gone.add(victim.uid)
                continue
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "PreemptionByScheduler",
                "message": f"muster-scheduler: preempting to accommodate {preemptor.key}",
                "lastTransitionTime": now,
            }
            body = {"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}}
            self._evictions.append(Patch(core.POD, victim.key, body, PatchType.STRATEGIC, "status", options=OPTIONS))
            self._evictions.append(Delete(core.POD, victim.key, uid=victim.uid, options=OPTIONS))
            found = self._pod(victim.key)
            if found is not None:
                message = f"Preempted by {preemptor.key} on node {bindings[0].assigned.node}"
                self._reporter.events.record(found, "Normal", "Preempted", message)
        for binding in bindings:
            body = {"metadata": {"uid": binding.pod.uid}, "status": {"nominatedNodeName": binding.assigned.node}}
            self._evictions.append(Patch(core.POD, binding.pod.key, body, subresource="status", options=OPTIONS))
        waiting = {victim.uid for victim in decision.victims} - gone
        if waiting:
            self._waiting.append(_Waiting(bindings, waiting))
        else:
            self._ready.extend(bindings)

    # On its own

    async def run(self) -> None:
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            while self._ready or self._evictions:
                await self._write_batch()
            await self._ask_again()

    async def _write_batch(self) -> None:
        evictions, self._evictions = self._evictions, []
        taken = [self._ready.popleft() for _ in range(min(len(self._ready), _BATCH))]
        bindings = [binding for binding in taken if await self._may_bind(binding)]
        binds = [self._bind(binding.assigned) for binding in bindings]
        try:
            results = await self._store.write([*binds, *evictions])
        except (ApiError, OSError) as error:
            _log.warning("nothing could be bound: %s", error)
            results = [Refused(errors.Unavailable(str(error)))] * (len(binds) + len(evictions))
        for binding, result in zip(bindings, results, strict=False):
            self._settle(binding, result)
        self._retry(evictions, results[len(binds) :])

    def _bind(self, assigned: Assigned) -> Bind:
        annotations = {DEVICES_ANNOTATION: assigned.devices} if assigned.devices else {}
        pod = assigned.pod
        return Bind(core.POD, pod.key, assigned.node, pod.uid, annotations, OPTIONS)

    def _settle(self, binding: _Binding, result: Result) -> None:
        pod, node = binding.pod, binding.assigned.node
        if not isinstance(result, Refused):
            self._reporter.events.record(
                result.object, "Normal", "Scheduled", f"Successfully assigned {pod.key} to {node}"
            )
            for plugin in self._profile(pod).post_bind:
                plugin.post_bind(pod, node)
            return
        _log.info("binding %s to %s was refused: %s", pod.key, node, result.error)
        self._take_back(binding)

    def _take_back(self, binding: _Binding) -> None:
        for plugin in self._profile(binding.pod).reserve:
            plugin.unreserve(binding.pod, binding.assigned.node)
        found = self._pod(binding.pod.key)
        if found is not None and found.uid == binding.pod.uid and found.read(core.Pod).spec.node_name:
            return  # somebody else was faster; the store tells where it is
        self._failed.append(binding)
        self._news.set()

    def _retry(self, writes: Sequence[Write], results: Iterable[Result]) -> None:
        again = [
            write
            for write, result in zip(writes, results, strict=True)
            if isinstance(result, Refused) and result.error.retryable and not isinstance(result.error, errors.Conflict)
        ]
        if again:
            self._evictions += again
            asyncio.get_running_loop().call_later(1.0, self._has_work.set)

    # The plugins of the binding cycle

    def _profile(self, pod: PodInfo) -> Profile:
        return self._engine.scheduler.profile_of(pod)

    async def _may_bind(self, binding: _Binding) -> bool:
        """Reserve, Permit and PreBind. A plugin that refuses or raises sends the pod back to the queue."""
        profile = self._profile(binding.pod)
        if not profile.reserve and not profile.permit and not profile.pre_bind:
            return True
        pod, node = binding.pod, binding.assigned.node
        calling: object = None
        try:
            for reserving in profile.reserve:
                calling = reserving
                if not reserving.reserve(pod, node).is_success:
                    return self._refused(binding, calling, "refused to reserve")
            for permitting in profile.permit:
                calling = permitting
                status, seconds = permitting.permit(pod, node)
                if status.code is Code.WAIT:
                    deadline = self._permits.get(pod.uid, (binding, self._clock.monotonic() + seconds))[1]
                    self._permits[pod.uid] = (binding, deadline)
                    return False
                if not status.is_success:
                    return self._refused(binding, calling, ", ".join(status.reasons) or "refused to permit")
            for preparing in profile.pre_bind:
                calling = preparing
                if not (await preparing.pre_bind(pod, node)).is_success:
                    return self._refused(binding, calling, "refused before binding")
        except Exception as error:
            return self._refused(binding, calling, f"{type(error).__name__}: {error}")
        self._permits.pop(pod.uid, None)
        return True

    def _refused(self, binding: _Binding, plugin: object, why: str) -> bool:
        _log.warning("plugin %s on %s: %s", name_of(plugin), binding.pod.key, why)
        self._permits.pop(binding.pod.uid, None)
        message = f'running plugin "{name_of(plugin)}": {why}'
        self._reporter.waits([binding.pod.key], message, "SchedulerError")
        self._take_back(binding)
        return False

    async def _ask_again(self) -> None:
        """Pods that a Permit plugin lets wait: asked again whenever something was bound, given up at their deadline."""
        now = self._clock.monotonic()
        for uid, (binding, deadline) in list(self._permits.items()):
            if now >= deadline:
                del self._permits[uid]
                self._refused(binding, None, "waited too long for a permit")
            elif await self._may_bind(binding):
                self._ready.append(binding)
        if self._ready:
            self._has_work.set()
        elif self._permits:
            soonest = min(deadline for _, deadline in self._permits.values())
            asyncio.get_running_loop().call_later(max(0.0, min(1.0, soonest - now)), self._has_work.set)


def _has_ended(pod: Object) -> bool:
    return pod.kind is core.POD and pod.read(core.Pod).status.phase in ("Succeeded", "Failed")
