"""Evicts pods from nodes with NoExecute taints that they do not tolerate, or no longer: Kubernetes' taint eviction.

Taints that say a node is lost are the node controller's: nobody is there to end those pods. How long a pod has
been tolerating something is measured by this process's own clock from when it first saw so, as Kubernetes does.
"""

from collections.abc import Sequence

from muster.api import core, timestamps
from muster.api.objects import Key, Object
from muster.controllers.losses import NOT_READY, UNREACHABLE
from muster.placement.plugins.taint_toleration import tolerates
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.runtime.recording import EventRecorder
from muster.store.protocol import Change, Delete, Event, Options, Patch, PatchType, Refused, Selection, Store, Write

REASON = "TaintManagerEviction"
_LOST = (UNREACHABLE, NOT_READY)
_FINISHED = ("Succeeded", "Failed")
_OPTIONS = Options(manager="muster-taints")


class TaintEvictionController:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run(self) -> None:
        await _Run(self._store, self._clock).run()


def evicting_taints(node: core.Node) -> Sequence[core.Taint]:
    return [taint for taint in node.spec.taints if taint.effect == "NoExecute" and taint.key not in _LOST]


def patience(taints: Sequence[core.Taint], tolerations: Sequence[core.Toleration]) -> float | None:
    """How many seconds a pod stays under these taints; None: for ever. Of each taint the first toleration that matches
    counts, and the shortest time of all."""
    limits: list[int] = []
    for taint in taints:
        found = next((toleration for toleration in tolerations if tolerates(toleration, taint)), None)
        if found is None:
            return 0.0
        if found.toleration_seconds is not None:
            limits.append(found.toleration_seconds)
    return float(max(0, min(limits))) if limits else None


class _Run:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._since: dict[str, dict[str, float]] = {}  # by node and uid: pods that will have to go, and since when
        self._events = EventRecorder(store, clock, "muster-taints")
        self._reconciler = Reconciler("taints", self._reconcile, clock=clock)
        self._nodes = Informer(store, Selection(core.NODE), clock=clock)
        self._pods = Informer(store, Selection(core.POD), clock=clock)
        self._pods.index_by("node", lambda pod: [pod.read(core.Pod).spec.node_name or ""])
        self._nodes.on_event(self._node_changed)
        self._pods.on_event(self._pod_changed)

    async def run(self) -> None:
        informers = [self._nodes, self._pods]
        await keep("taints", informers, self._events.run, self._reconciler.run)

    def _node_changed(self, event: Event) -> None:
        assert event.object is not None
        name = event.object.key.name
        if event.change is Change.DELETED:
            self._since.pop(name, None)
        elif name in self._since or evicting_taints(event.object.read(core.Node)):
            self._reconciler.queue.add(name)

    def _pod_changed(self, event: Event) -> None:
        assert event.object is not None
        name = event.object.read(core.Pod).spec.node_name
        # Most nodes have no such taint, and most events are of their pods.
        if name and (name in self._since or self._taints_of(name)):
            self._reconciler.queue.add(name)

    def _taints_of(self, name: str) -> Sequence[core.Taint]:
        node = self._nodes.get(Key("", name))
        return evicting_taints(node.read(core.Node)) if node is not None else ()

    async def _reconcile(self, name: str) -> float | None:
        taints, now = self._taints_of(name), self._clock.monotonic()
        before, waiting, late = self._since.pop(name, {}), dict[str, float](), list[Object]()
        left: list[float] = []
        for pod in sorted(self._pods.by_index("node", name), key=lambda pod: pod.key):
            view = pod.read(core.Pod)
            if pod.is_terminating or view.status.phase in _FINISHED:
                continue
            seconds = patience(taints, view.spec.tolerations)
            if seconds is None:
                if pod.uid in before:
                    self._events.record(pod, "Normal", REASON, f"Cancelling deletion of Pod {pod.key}")
                continue
            waiting[pod.uid] = before.get(pod.uid, now)
            remaining = waiting[pod.uid] + seconds - now
            if remaining > 0:
                left.append(remaining)
            else:
                late.append(pod)
        if waiting:
            self._since[name] = waiting
        await self._evict(late)
        return min(left, default=None)

    async def _evict(self, pods: Sequence[Object]) -> None:
        """Told why, then deleted with their own grace. Raises the first refusal that is worth another attempt."""
        if not pods:
            return
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": timestamps.to_text(self._clock.now()),
        }
        writes: list[Write] = []
        for pod in pods:
            self._events.record(pod, "Normal", REASON, f"Marking for deletion Pod {pod.key}")
            body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
            writes.append(Patch(core.POD, pod.key, body, PatchType.STRATEGIC, "status", options=_OPTIONS))
            writes.append(Delete(core.POD, pod.key, uid=pod.uid, options=_OPTIONS))
        refused = [result.error for result in await self._store.write(writes) if isinstance(result, Refused)]
        again = next((error for error in refused if error.retryable), None)
        if again is not None:
            raise again
