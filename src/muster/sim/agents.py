"""Simulated agents: nodes with leases, whose pods start, work for as long as their command says, and end.

As far as a store can tell they do what real ones do. A pod's command is `work SECONDS [EXIT-CODE]`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from muster.api import conditions, coordination, core, errors, timestamps
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.sim.plans import POOL, POOL_LABEL, RACK_LABEL, NodeShape
from muster.store.protocol import (
    Change,
    Create,
    Delete,
    Event,
    Patch,
    PatchType,
    Refused,
    Selection,
    Store,
    Write,
)

LEASES = "kube-node-lease"
_START_SECONDS = 1.0
_OVER = ("Succeeded", "Failed")
_KILLED = 137
_ADDRESS = "127.0.0.1"


@dataclass(slots=True)
class _Process:
    pod: Object
    ends_at: float
    code: int


class Fleet:
    """All agents of a cluster, on one connection. `run` until cancelled."""

    def __init__(self, store: Store, clock: Clock, shapes: Mapping[str, NodeShape], renews: float) -> None:
        """`renews`: seconds between two signs of life."""
        self._store = store
        self._clock = clock
        self._shapes = shapes
        self._renews = renews
        self._leases = {name: Key(LEASES, name) for name in shapes}
        self._away: set[str] = set()
        self._processes: dict[str, _Process] = {}  # by the pod's uid
        self._reconciler = Reconciler("agents", self._reconcile, clock=clock, workers=8, max_delay=5.0)
        self._pods = Informer(store, Selection(core.POD), clock=clock)
        self._pods.index_by("node", lambda pod: [pod.read(core.Pod).spec.node_name or ""])
        self._pods.on_event(self._pod_changed)

    @property
    def running(self) -> int:
        return len(self._processes)

    async def run(self) -> None:
        await keep("agents", [self._pods], self._renew_for_ever, self._reconciler.run)

    # Faults

    def lose(self, node: str, *, reboots: bool) -> None:
        self._away.add(node)
        if reboots:
            self._processes = {uid: one for uid, one in self._processes.items() if _node_of(one.pod) != node}

    def bring_back(self, node: str) -> None:
        self._away.discard(node)
        for pod in self._pods.by_index("node", node):
            self._reconciler.queue.add(pod.key)

    def crash_pod(self, share: float) -> None:
        """A share of the list of what runs chooses it."""
        if self._processes:
            process = list(self._processes.values())[int(share * len(self._processes))]
            process.code, process.ends_at = 1, self._clock.monotonic()
            self._reconciler.queue.add(process.pod.key)

    # What agents do

    async def _renew_for_ever(self) -> None:
        while True:
            try:
                await self._store.write(self._renewals())
                await self._register_missing()
            except (errors.ApiError, OSError):
                await self._clock.sleep(1.0)
                continue
            await self._clock.sleep(self._renews)

    def _renewals(self) -> list[Write]:
        body = {"spec": {"renewTime": timestamps.to_micro_text(self._clock.now())}}
        return [Patch(coordination.LEASE, key, body) for name, key in self._leases.items() if name not in self._away]

    async def _register_missing(self) -> None:
        """Nodes that are marked as lost say that they are ready, as agents do with every heartbeat."""
        writes: list[Write] = []
        for node in (await self._store.list(Selection(core.NODE))).items:
            is_ready = conditions.is_true(node.read(core.Node).status.conditions, "Ready")
            if not is_ready and node.key.name not in self._away:
                body = {"status": {"conditions": [_ready(timestamps.to_text(self._clock.now()))]}}
                writes.append(Patch(core.NODE, node.key, body, PatchType.STRATEGIC, "status"))
        if writes:
            await self._store.write(writes)

    def _pod_changed(self, event: Event) -> None:
        pod = event.object
        assert pod is not None
        if event.change is Change.DELETED:
            self._processes.pop(pod.uid, None)
        elif _node_of(pod) in self._shapes:
            self._reconciler.queue.add(pod.key)

    async def _reconcile(self, key: Key) -> float | None:
        pod = self._pods.get(key)
        if pod is None or _node_of(pod) not in self._shapes or _node_of(pod) in self._away:
            return None
        view = pod.read(core.Pod)
        process = self._processes.get(pod.uid)
        if pod.is_terminating:
            self._processes.pop(pod.uid, None)
            ended = [] if view.status.phase in _OVER else [self._said(pod, _ended(view, _KILLED, self._now()))]
            await self._write([*ended, Delete(core.POD, key, grace_seconds=0, uid=pod.uid)])
        elif view.status.phase in _OVER:
            self._processes.pop(pod.uid, None)
        elif process is None and view.status.phase == "Running":  # it ran before the machine was started anew
            await self._write([self._said(pod, _ended(view, _KILLED, self._now()))])
        elif process is None:
            seconds, code = _work(view)
            self._processes[pod.uid] = _Process(pod, self._clock.monotonic() + _START_SECONDS + seconds, code)
            return _START_SECONDS
        elif self._clock.monotonic() >= process.ends_at - 1e-6:
            await self._write([self._said(pod, _ended(view, process.code, self._now()))])
        elif view.status.phase != "Running":
            await self._write([self._said(pod, _started(view, self._now()))])
            return process.ends_at - self._clock.monotonic()
        else:
            return process.ends_at - self._clock.monotonic()
        return None

    async def _write(self, writes: list[Write]) -> None:
        """A pod that has gone meanwhile is no failure; what else is refused is tried again."""
        for result in await self._store.write(writes):
            if isinstance(result, Refused) and not isinstance(result.error, errors.NotFound | errors.Conflict):
                raise result.error

    def _said(self, pod: Object, status: Document) -> Patch:
        """As an agent reports it: what others say of the pod stays, and a pod of the same name is not meant."""
        body = {"metadata": {"uid": pod.uid}, "status": status}
        return Patch(core.POD, pod.key, body, PatchType.STRATEGIC, subresource="status")

    def _now(self) -> str:
        return timestamps.to_text(self._clock.now())


def registration(name: str, shape: NodeShape, now: str) -> list[Write]:
    """What makes a node known."""
    amounts = {
        "cpu": str(shape.cpus),
        "memory": f"{4 * shape.cpus}Gi",
        "pods": "110",
        "nvidia.com/gpu": str(shape.gpus),
    }
    labels = {"kubernetes.io/hostname": name, RACK_LABEL: shape.rack or "r0", POOL_LABEL: POOL}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [_ready(now)]}
    lease = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}
    return [
        Create(core.NODE, {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status}),
        Create(coordination.LEASE, {"metadata": {"name": name, "namespace": LEASES}, "spec": lease}),
    ]


def _ready(now: str) -> Document:
    return {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


def _work(pod: core.Pod) -> tuple[float, int]:
    words = pod.spec.containers[0].command
    return float(words[1]), int(words[2]) if len(words) > 2 else 0


def _node_of(pod: Object) -> str:
    return pod.read(core.Pod).spec.node_name or ""


def _started(pod: core.Pod, now: str) -> Document:
    state = {"running": {"startedAt": now}}
    return {
        "phase": "Running",
        "conditions": _conditions("True", "", now),
        "hostIP": _ADDRESS,
        "podIP": _ADDRESS,
        "podIPs": [{"ip": _ADDRESS}],
        "startTime": now,
        "containerStatuses": _containers(pod, state, is_ready=True),
    }


def _ended(pod: core.Pod, code: int, now: str) -> Document:
    reason = "Completed" if code == 0 else "Error"
    state = {"terminated": {"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}}
    return {
        "phase": "Succeeded" if code == 0 else "Failed",
        "conditions": _conditions("False", "PodCompleted" if code == 0 else "PodFailed", now),
        "containerStatuses": _containers(pod, state, is_ready=False),
    }


def _containers(pod: core.Pod, state: Document, *, is_ready: bool) -> list[Document]:
    fixed = {"ready": is_ready, "started": is_ready, "restartCount": 0, "imageID": "", "lastState": {}}
    return [{"name": found.name, "image": found.image or "", "state": state, **fixed} for found in pod.spec.containers]


def _conditions(ready: str, reason: str, now: str) -> list[Document]:
    initialized = {"type": "Initialized", "status": "True", "lastTransitionTime": now}
    return [initialized] + [
        {"type": type, "status": ready, "reason": reason, "lastTransitionTime": now}
        for type in ("Ready", "ContainersReady")
    ]
