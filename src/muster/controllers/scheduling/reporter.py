"""Tells people why a pod waits: a condition on the pod and an event, when the reason changes, and not more often than
they can read."""

import asyncio
from collections.abc import Callable, Sequence

from muster.api import conditions, core, timestamps
from muster.api.objects import Key, Object
from muster.runtime.clock import Clock
from muster.runtime.recording import EventRecorder
from muster.store.protocol import Options, Patch, PatchType, Refused, Store

OPTIONS = Options(manager="muster-scheduler")
_PAUSE_SECONDS = 5.0  # between two reports on one pod: counts of nodes may flutter
_BATCH = 256
_BATCH_SECONDS = 0.05  # reasons are not urgent: binding goes first


class Reporter:
    def __init__(self, store: Store, clock: Clock, events: EventRecorder, pod: Callable[[Key], Object | None]) -> None:
        self._store = store
        self._clock = clock
        self.events = events
        self._pod = pod
        self._told: dict[str, tuple[str, float]] = {}  # uid → message and when
        self._due: dict[Key, tuple[str, str]] = {}
        self._news = asyncio.Event()

    def waits(self, pods: Sequence[Key], message: str, reason: str) -> None:
        """These pods have no node, and this is why. Written soon, unless the pod gets a node first."""
        for key in pods:
            self._due[key] = (message, reason)
        self._news.set()

    def placed(self, key: Key, uid: str) -> None:
        self._due.pop(key, None)
        self._told.pop(uid, None)

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self._clock.sleep(_BATCH_SECONDS)
            later = {}
            patches = []
            for key, (message, reason) in list(self._due.items())[:_BATCH]:
                del self._due[key]
                pod = self._pod(key)
                if pod is None or pod.read(core.Pod).spec.node_name:
                    continue
                if self._is_too_soon(pod, message):
                    later[key] = (message, reason)
                elif self._is_news(pod, message):
                    patches.append(self._patch(pod, message, reason))
                    self.events.record(pod, "Warning", "FailedScheduling", message)
            if patches:
                for patch, result in zip(patches, await self._store.write(patches), strict=True):
                    if isinstance(result, Refused) and result.error.retryable:
                        pod = self._pod(patch.key)
                        self._told.pop(pod.uid if pod else "", None)
            has_more = bool(self._due)
            self._due = {**later, **self._due}
            if has_more:
                self._news.set()
            elif later:
                asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._news.set)

    def _is_too_soon(self, pod: Object, message: str) -> bool:
        told = self._told.get(pod.uid)
        return told is not None and told[0] != message and self._clock.monotonic() < told[1] + _PAUSE_SECONDS

    def _is_news(self, pod: Object, message: str) -> bool:
        told = self._told.get(pod.uid)
        before = told[0] if told else _current_message(pod)
        self._told[pod.uid] = (message, self._clock.monotonic())
        return before != message

    def _patch(self, pod: Object, message: str, reason: str) -> Patch:
        before = conditions.find(pod.read(core.Pod).status.conditions, "PodScheduled")
        now = timestamps.to_text(self._clock.now())
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": before.last_transition_time if before and before.status == "False" else now,
        }
        body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        return Patch(core.POD, pod.key, body, PatchType.STRATEGIC, "status", options=OPTIONS)


def _current_message(pod: Object) -> str | None:
    found = conditions.find(pod.read(core.Pod).status.conditions, "PodScheduled")
    return found.message if found is not None and found.status == "False" else None
