"""Tells people why a pod waits: a condition on the pod and an event, when the reason changes, and not more often than
they can read."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from muster.api import conditions, core, errors, timestamps
from muster.api.errors import ApiError
from muster.api.objects import Key, Object
from muster.runtime.clock import Clock
from muster.runtime.recording import EventRecorder
from muster.store.protocol import Options, Patch, PatchType, Refused, Result, Revision, Store

_log = logging.getLogger(__name__)
OPTIONS = Options(manager="muster-scheduler")
_PAUSE_SECONDS = 5.0  # between two reports on one pod: counts of nodes may flutter
_BATCH = 256
_BATCH_SECONDS = 0.05  # reasons are not urgent: binding goes first


class _Reason(NamedTuple):
    name: str
    message: str


class Reporter:
    def __init__(self, store: Store, clock: Clock, events: EventRecorder, pod: Callable[[Key], Object | None]) -> None:
        self._store = store
        self._clock = clock
        self.events = events
        self._pod = pod
        self._told: dict[str, tuple[str, float]] = {}  # uid → message and when
        self._due: dict[Key, _Reason] = {}
        self._news = asyncio.Event()

    def waits(self, pods: Sequence[Key], message: str, reason: str) -> None:
        """These pods have no node, and this is why. Written soon, unless the pod gets a node first."""
        for key in pods:
            self._due[key] = _Reason(reason, message)
        self._news.set()

    def placed(self, key: Key, uid: str) -> None:
        self._due.pop(key, None)
        self._told.pop(uid, None)

    def ended(self, uid: str) -> None:
        self._told.pop(uid, None)

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self._clock.sleep(_BATCH_SECONDS)
            later: dict[Key, _Reason] = {}
            writing: list[tuple[Object, _Reason]] = []
            for key, reason in list(self._due.items())[:_BATCH]:
                del self._due[key]
                pod = self._pod(key)
                if pod is None or pod.read(core.Pod).spec.node_name:
                    continue
                if self._is_too_soon(pod, reason.message):
                    later[key] = reason
                elif self._is_news(pod, reason.message):
                    writing.append((pod, reason))
            refused = await self._write(writing) if writing else {}
            has_more = bool(self._due)
            self._due = {**later, **refused, **self._due}
            if has_more:
                self._news.set()
            elif self._due:
                asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._news.set)

    async def _write(self, writing: Sequence[tuple[Object, _Reason]]) -> Mapping[Key, _Reason]:
        """Returns what is to be tried again."""
        patches = [self._patch(pod, reason) for pod, reason in writing]
        try:
            results: Sequence[Result] = await self._store.write(patches)
        except (ApiError, OSError) as error:
            _log.warning("reasons could not be written: %s", error)
            results = [Refused(errors.Unavailable(str(error)))] * len(patches)
        again = {}
        for (pod, reason), result in zip(writing, results, strict=True):
            if not isinstance(result, Refused):
                self.events.record(pod, "Warning", "FailedScheduling", reason.message)
            elif result.error.retryable:
                self._told.pop(pod.uid, None)
                again[pod.key] = reason
        return again

    def _is_too_soon(self, pod: Object, message: str) -> bool:
        told = self._told.get(pod.uid)
        return told is not None and told[0] != message and self._clock.monotonic() < told[1] + _PAUSE_SECONDS

    def _is_news(self, pod: Object, message: str) -> bool:
        told = self._told.get(pod.uid)
        before = told[0] if told else _current_message(pod)
        self._told[pod.uid] = (message, self._clock.monotonic())
        return before != message

    def _patch(self, pod: Object, reason: _Reason) -> Patch:
        """Based on the pod as it was, so that one that was bound meanwhile is not said to wait."""
        before = conditions.find(pod.read(core.Pod).status.conditions, "PodScheduled")
        now = timestamps.to_text(self._clock.now())
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason.name,
            "message": reason.message,
            "lastTransitionTime": before.last_transition_time if before and before.status == "False" else now,
        }
        body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        based_on = Revision(pod.revision)
        return Patch(core.POD, pod.key, body, PatchType.STRATEGIC, "status", based_on, OPTIONS)


def _current_message(pod: Object) -> str | None:
    found = conditions.find(pod.read(core.Pod).status.conditions, "PodScheduled")
    return found.message if found is not None and found.status == "False" else None
