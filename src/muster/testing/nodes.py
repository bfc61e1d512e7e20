"""Many nodes that run nothing: for measuring and trying out what a real cluster of that size would be needed for.

They do what agents do as far as a store can tell: nodes with leases that are renewed, pods that start, end when they
are told to, and go when they are deleted. All of them live in one task, and what happens at once is written at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from muster.api import coordination, core, timestamps
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.runtime.clock import Clock
from muster.store.protocol import Change, Create, Delete, Patch, PatchType, Selection, Store, Write, Written
from muster.testing.builders import NodeBuilder

LEASES = "kube-node-lease"
RENEW_SECONDS = 10.0
_AT_ONCE = 256
_ADDRESS = "127.0.0.1"

Program: TypeAlias = Callable[[Object], Awaitable[int]]
"""What a pod does: its exit code."""


class SimulatedNodes:
    """`register`, then `run` until cancelled. A pod that was placed on one of them is Running at once, and stays so
    until it is finished or deleted, or its `program` ends."""

    def __init__(
        self, store: Store, clock: Clock, nodes: Sequence[NodeBuilder], program: Program | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._nodes = {node.key.name: node for node in nodes}
        self._program = program
        self._tasks: asyncio.TaskGroup | None = None
        self.running: dict[Key, Object] = {}
        """As they were when they were started."""

    async def register(self) -> None:
        writes: list[Write] = []
        for name, node in self._nodes.items():
            writes.append(Create(core.NODE, node.document()))
            spec = {"holderIdentity": name, "leaseDurationSeconds": 4 * int(RENEW_SECONDS), "renewTime": self._now()}
            writes.append(Create(coordination.LEASE, {"metadata": {"name": name, "namespace": LEASES}, "spec": spec}))
        await self._write(writes)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._renew(), name="simulated nodes: leases")
            self._tasks.create_task(self._tend(), name="simulated nodes: pods")

    async def finish(self, exit_codes: Mapping[Key, int]) -> None:
        """The containers of these pods exit."""
        writes: list[Write] = []
        for key, code in exit_codes.items():
            pod = self.running.pop(key)
            writes.append(_status(pod, _ended(pod.read(core.Pod), code, timestamps.to_text(self._clock.now()))))
        await self._write(writes)

    async def _renew(self) -> None:
        """A share of them at a time, as nodes that started at different moments would."""
        names = list(self._nodes)
        turns = max(1, int(RENEW_SECONDS))
        while True:
            for turn in range(turns):
                spec = {"spec": {"renewTime": self._now()}}
                await self._write([Patch(coordination.LEASE, Key(LEASES, name), spec) for name in names[turn::turns]])
                await self._clock.sleep(RENEW_SECONDS / turns)

    async def _tend(self) -> None:
        page = await self._store.list(Selection(core.POD))
        await self._take([(Change.ADDED, pod) for pod in page.items])
        async for events in self._store.watch(Selection(core.POD), since=page.revision):
            await self._take([(event.change, event.object) for event in events if event.object is not None])

    async def _take(self, changes: Sequence[tuple[Change, Object]]) -> None:
        latest = {pod.key: (change, pod) for change, pod in changes}
        writes: list[Write] = []
        started: list[Key] = []
        for key, (change, pod) in latest.items():
            view = pod.read(core.Pod)
            if view.spec.node_name not in self._nodes:
                continue
            if change is Change.DELETED:
                self.running.pop(key, None)
            elif pod.is_terminating:
                self.running.pop(key, None)
                writes.append(Delete(core.POD, key, grace_seconds=0, uid=pod.uid))
            elif view.status.phase in (None, "Pending"):
                if key not in self.running:
                    started.append(key)
                self.running[key] = pod
                writes.append(_status(pod, _started(view, timestamps.to_text(self._clock.now()))))
        await self._write(writes)
        if self._program is not None and self._tasks is not None:
            for key in started:
                self._tasks.create_task(self._execute(self._program, key), name=f"simulated nodes: {key.name}")

    async def _execute(self, program: Program, key: Key) -> None:
        """A pod that was deleted meanwhile has ended already."""
        pod = self.running[key]
        code = await program(pod)
        if key in self.running and self.running[key].uid == pod.uid:
            await self.finish({key: code})

    async def _write(self, writes: Sequence[Write]) -> None:
        for start in range(0, len(writes), _AT_ONCE):
            for result in await self._store.write(writes[start : start + _AT_ONCE]):
                # A pod may have gone in the meantime; nothing else is refused.
                assert isinstance(result, Written) or result.error.http_status in (404, 409), result

    def _now(self) -> str:
        return timestamps.to_micro_text(self._clock.now())


def _status(pod: Object, status: Document) -> Patch:
    """As an agent reports it: what others say of the pod stays."""
    body = {"metadata": {"uid": pod.uid}, "status": status}
    return Patch(core.POD, pod.key, body, PatchType.STRATEGIC, subresource="status")


def _started(pod: core.Pod, now: str) -> Document:
    containers = [
        {"ready": True, "started": True, "restartCount": 0, "state": {"running": {"startedAt": now}}, **_named(c)}
        for c in pod.spec.containers
    ]
    return {
        "phase": "Running",
        "conditions": _conditions("True", "", now),
        "hostIP": _ADDRESS,
        "podIP": _ADDRESS,
        "podIPs": [{"ip": _ADDRESS}],
        "startTime": now,
        "containerStatuses": containers,
    }


def _ended(pod: core.Pod, code: int, now: str) -> Document:
    reason = "Completed" if code == 0 else "Error"
    over = {"terminated": {"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}}
    containers = [
        {"ready": False, "started": False, "restartCount": 0, "state": over, **_named(c)} for c in pod.spec.containers
    ]
    conditions = _conditions("False", "PodCompleted" if code == 0 else "PodFailed", now)
    return {
        "phase": "Succeeded" if code == 0 else "Failed",
        "conditions": conditions,
        "containerStatuses": containers,
    }


def _named(container: core.Container) -> Document:
    return {"name": container.name, "image": container.image or "", "imageID": "", "lastState": {}}


def _conditions(ready: str, reason: str, now: str) -> list[Document]:
    told = {"Initialized": "True", "ContainersReady": ready, "Ready": ready}
    why = {"reason": reason} if reason else {}
    return [{"type": type, "status": status, **why, "lastTransitionTime": now} for type, status in told.items()]
