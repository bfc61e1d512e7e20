"""Watches over workloads that were placed by topology: carries out `muster.quota.integrations.failures`."""

from collections.abc import Iterable

from muster.api import conditions, core, kueue
from muster.api.objects import Key, Object
from muster.controllers.quota import carrying
from muster.controllers.quota.ungating import workload_of
from muster.controllers.quota.writer import status_patch
from muster.quota.integrations import failures, slices
from muster.quota.integrations.ungating import active_slice
from muster.quota.settings import Settings
from muster.quota.topology.assignments import HOSTNAME
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.runtime.recording import EventRecorder
from muster.store.protocol import Change, Event, Options, Patch, Selection, Store, Write

GATHER_SECONDS = 0.05
_OPTIONS = Options(manager="muster-quota-failures")


class FailuresController:
    def __init__(self, store: Store, clock: Clock, settings: Settings | None = None) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings or Settings()

    async def run(self) -> None:
        await _Keeper(self._store, self._clock, self._settings).run()


class _Keeper:
    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._events = EventRecorder(store, clock, "muster-quota-failures")
        self._nodes = Informer(store, Selection(core.NODE), clock=clock)
        self._pods = Informer(store, Selection(core.POD), clock=clock)
        self._flavors = Informer(store, Selection(kueue.RESOURCE_FLAVOR), clock=clock)
        self._workloads = Informer(store, Selection(kueue.WORKLOAD), clock=clock)
        self._informers = (self._nodes, self._pods, self._flavors, self._workloads)
        self._pods.index_by("workload", workload_of)
        self._workloads.index_by("placed", _placed)
        self._workloads.index_by("chain", lambda found: [str(_first(found))])
        self._nodes.index_by("host", lambda found: [(found.meta.labels or {}).get(HOSTNAME, found.key.name)])
        self._reconciler = Reconciler("quota: failures", self._reconcile, clock=clock, max_delay=10.0)
        self._health: dict[Key, object] = {}
        self._nodes.on_event(self._node_changed)
        self._pods.on_event(self._pod_changed)
        self._workloads.on_event(self._workload_changed)

    async def run(self) -> None:
        await keep("quota failures", self._informers, self._events.run, self._reconciler.run)

    # What happens

    def _node_changed(self, event: Event) -> None:
        node = event.object
        assert node is not None
        health = None if event.change is Change.DELETED else _health(node.read(core.Node))
        if self._health.get(node.key) == health and health is not None:
            return  # a heartbeat
        self._health[node.key] = health
        for workload in self._workloads.by_index("placed", _PLACED):
            self._reconciler.queue.add_after(_first(workload), GATHER_SECONDS)

    def _pod_changed(self, event: Event) -> None:
        assert event.object is not None
        for chain in workload_of(event.object):
            for workload in self._workloads.by_index("chain", chain):
                if any(_placed(workload)):
                    self._reconciler.queue.add_after(_first(workload), GATHER_SECONDS)

    def _workload_changed(self, event: Event) -> None:
        assert event.object is not None
        if event.change is not Change.DELETED and any(_placed(event.object)):
            self._reconciler.queue.add_after(_first(event.object), GATHER_SECONDS)

    # What is done about it

    async def _reconcile(self, key: Key) -> float | None:
        chained = self._workloads.by_index("chain", str(key))
        active = active_slice([found.read(kueue.Workload) for found in chained])
        if active is None:
            return None
        found = next(found for found in chained if found.uid == active.metadata.uid)
        pods = [pod.read(core.Pod) for pod in self._pods.by_index("workload", str(key))]
        tolerations = {
            flavor.key.name: flavor.read(kueue.ResourceFlavor).spec.tolerations for flavor in self._flavors.items()
        }
        verdict = failures.judge(active, pods, self._node_at, tolerations, self._settings, self._clock.now())
        writes: list[Write] = [_fail(pod) for pod in verdict.stranded]
        if verdict.change is not None:
            writes.append(status_patch(found, verdict.change(found.document())))
        await carrying.write_all(self._store, writes)
        if verdict.event is not None:
            self._events.record(found, "Normal", *verdict.event)
        return verdict.look_again

    def _node_at(self, host: str) -> core.Node | None:
        return next((found.read(core.Node) for found in self._nodes.by_index("host", host)), None)


_PLACED = "placed"


def _placed(workload: Object) -> Iterable[str]:
    admission = workload.read(kueue.Workload).status.admission
    is_placed = admission is not None and any(
        given.topology_assignment is not None for given in admission.pod_set_assignments
    )
    return [_PLACED] if is_placed else []


def _first(workload: Object) -> Key:
    """What its pods know it by."""
    return Key(workload.key.namespace, slices.chain(workload))


def _health(node: core.Node) -> object:
    ready = conditions.find(node.status.conditions, "Ready")
    return (ready.status if ready is not None else None, node.spec.taints)


def _fail(pod: core.Pod) -> Patch:
    status = {
        "phase": "Failed",
        "reason": "NodeFailure",
        "message": "The node that the pod was meant for failed before the pod got there",
    }
    key = Key(pod.metadata.namespace, pod.metadata.name)
    body = {"metadata": {"uid": pod.metadata.uid}, "status": status}
    return Patch(core.POD, key, body, subresource="status", options=_OPTIONS)
