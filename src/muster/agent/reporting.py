"""Pod statuses on their way to the store: what has changed since the last write goes in one batch.

Nothing waits when nothing is under way, so a lone change is written at once; under load changes of one pod collapse
into its latest state. The store may be away for any time: what could not be written is written when it is back.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol

from muster.api import core, errors
from muster.api.objects import Key
from muster.api.raw import Document
from muster.runtime.clock import Clock
from muster.store.protocol import Delete, Patch, PatchType, Refused, Store, Write

_log = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0


class Reported(Protocol):
    """A pod whose status is reported. `key` and `uid` never change."""

    @property
    def key(self) -> Key: ...

    @property
    def uid(self) -> str: ...

    def render(self) -> Document:
        """The status as it is now."""
        ...

    def disowned(self) -> None:
        """The object is gone, or another has its name."""
        ...


@dataclass(slots=True)
class _Pending:
    pod: Reported
    is_status: bool = False
    is_removal: bool = False


class Reporter:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._pending: dict[str, _Pending] = {}
        self._sent: dict[str, Document] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def report(self, pod: Reported) -> None:
        self._entry(pod).is_status = True

    def remove(self, pod: Reported) -> None:
        """Delete the pod's object, after its last status."""
        self._entry(pod).is_removal = True

    def forget(self, uid: str) -> None:
        self._pending.pop(uid, None)
        self._sent.pop(uid, None)

    def _entry(self, pod: Reported) -> _Pending:
        self._wake.set()
        self._idle.clear()
        return self._pending.setdefault(pod.uid, _Pending(pod))

    async def flushed(self) -> None:
        """Returns once everything reported so far is in the store."""
        await self._idle.wait()

    async def run(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            await self._wake.wait()
            self._wake.clear()
            taken, self._pending = self._pending, {}
            try:
                await self._send(list(taken.values()))
                pause = _FIRST_PAUSE_SECONDS
            except (errors.ApiError, OSError) as error:
                _log.warning("pod statuses could not be written, trying again in %.1f s: %s", pause, error)
                self._put_back(taken)
                await self._clock.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
            if not self._pending:
                self._idle.set()

    def _put_back(self, taken: dict[str, _Pending]) -> None:
        for old in taken.values():
            entry = self._entry(old.pod)
            entry.is_status = entry.is_status or old.is_status
            entry.is_removal = entry.is_removal or old.is_removal

    async def _send(self, entries: list[_Pending]) -> None:
        writes: list[Write] = []
        origins: list[tuple[_Pending, Document | None]] = []
        for entry in entries:
            pod = entry.pod
            status = pod.render() if entry.is_status else None
            if status is not None and status != self._sent.get(pod.uid):
                # The uid is a precondition: the status of a pod must never land on a later one of its name.
                body: Document = {"metadata": {"uid": pod.uid}, "status": status}
                writes.append(Patch(core.POD, pod.key, body, type=PatchType.STRATEGIC, subresource="status"))
                origins.append((entry, status))
            if entry.is_removal:
                writes.append(Delete(core.POD, pod.key, grace_seconds=0, uid=pod.uid))
                origins.append((entry, None))
        if not writes:
            return
        for (entry, status), result in zip(origins, await self._store.write(writes), strict=True):
            if isinstance(result, Refused):
                self._refused(entry, result.error)
            elif status is not None:
                self._sent[entry.pod.uid] = status

    def _refused(self, entry: _Pending, error: errors.ApiError) -> None:
        pod = entry.pod
        if isinstance(error, errors.NotFound) or (isinstance(error, errors.Conflict) and "UID" in error.message):
            pod.disowned()
        elif error.retryable:
            self._put_back({pod.uid: entry})
        else:
            # Asking again would be answered the same: the next change of the pod is the next try.
            _log.error("the status of pod %s was refused: %s", pod.key, error.message)
