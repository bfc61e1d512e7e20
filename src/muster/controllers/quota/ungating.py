"""Lets gated pods of admitted workloads go, each to its own place: carries out `muster.quota.integrations.ungating`."""

from collections.abc import Iterable

from muster.api import core, kueue
from muster.api.kueue import names
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.controllers.quota import carrying
from muster.controllers.quota.metrics import QuotaMetrics
from muster.quota.integrations import slices
from muster.quota.integrations.pods import group_of
from muster.quota.integrations.ungating import Release, active_parts, active_slice, releases
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.store.protocol import Event, Options, Patch, Refused, Revision, Selection, Store

GATHER_SECONDS = 0.02
"""The pods of a job come together: who goes where is better decided when all are there."""
_OPTIONS = Options(manager="muster-quota-ungating")
_SOON_SECONDS = 0.005
_BATCH = 256
_GATES = frozenset({names.TOPOLOGY_GATE, names.ELASTIC_GATE})


class UngatingController:
    def __init__(self, store: Store, clock: Clock, metrics: QuotaMetrics | None = None) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics

    async def run(self) -> None:
        await _Keeper(self._store, self._clock, self._metrics).run()


class _Keeper:
    """Works on keys of workloads; of those that a job had in turn, of the first."""

    def __init__(self, store: Store, clock: Clock, metrics: QuotaMetrics | None) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._pods = Informer(store, Selection(core.POD), clock=clock)
        self._workloads = Informer(store, Selection(kueue.WORKLOAD), clock=clock)
        self._pods.index_by("workload", workload_of)
        self._pods.index_by("gated", lambda pod: workload_of(pod) if is_gated(pod) else ())
        self._workloads.index_by("chain", _chain)
        self._reconciler = Reconciler("quota: ungating", self._reconcile, clock=clock, workers=2, max_delay=10.0)
        self._written: dict[Key, int] = {}
        self._pods.on_event(self._pod_changed)
        self._workloads.on_event(self._workload_changed)

    async def run(self) -> None:
        await keep("quota ungating", [self._pods, self._workloads], self._reconciler.run)

    def _pod_changed(self, event: Event) -> None:
        assert event.object is not None
        for key in workload_of(event.object):
            if self._pods.by_index("gated", key):
                self._reconciler.queue.add_after(_key(key), GATHER_SECONDS)

    def _workload_changed(self, event: Event) -> None:
        assert event.object is not None
        for key in _chain(event.object):
            if self._pods.by_index("workload", key):
                self._reconciler.queue.add_after(_key(key), GATHER_SECONDS)

    async def _reconcile(self, key: Key) -> float | None:
        if self._pods.revision < self._written.get(key, 0):
            return _SOON_SECONDS
        self._written.pop(key, None)
        if not self._pods.by_index("gated", str(key)):
            return None
        found = {pod.uid: pod for pod in self._pods.by_index("workload", str(key))}
        chained = [workload.read(kueue.Workload) for workload in self._workloads.by_index("chain", str(key))]
        workload = active_slice(chained)
        if workload is None:
            return None
        due = releases(workload, [pod.read(core.Pod) for pod in found.values()], active_parts(chained))
        for start in range(0, len(due), _BATCH):
            batch = due[start : start + _BATCH]
            results = await self._store.write([_patch(found[release.pod.metadata.uid], release) for release in batch])
            for release, result in zip(batch, results, strict=True):
                if not isinstance(result, Refused):
                    self._written[key] = max(self._written.get(key, 0), result.object.revision)
                    self._measure(workload, release, result.object)
            carrying.check(results)
        return None

    def _measure(self, workload: kueue.Workload, release: Release, pod: Object) -> None:
        if self._metrics is not None:
            for gate in release.gates:
                self._metrics.gate_removed(workload, gate, self._clock.now(), is_group=bool(group_of(pod)))


def is_gated(pod: Object) -> bool:
    return any(gate.name in _GATES for gate in pod.read(core.Pod).spec.scheduling_gates)


def workload_of(pod: Object) -> Iterable[str]:
    """The key of the workload that the pod belongs to."""
    name = (pod.meta.annotations or {}).get(names.WORKLOAD_ANNOTATION)
    return [f"{pod.key.namespace}/{name}"] if name else []


def _chain(workload: Object) -> Iterable[str]:
    """A part belongs to those that it is part of."""
    part_of = (workload.meta.annotations or {}).get(names.PART_OF_ANNOTATION)
    return [f"{workload.key.namespace}/{part_of or slices.chain(workload)}"]


def _key(text: str) -> Key:
    namespace, _, name = text.partition("/")
    return Key(namespace, name)


def _patch(pod: Object, release: Release) -> Patch:
    kept = [{"name": gate.name} for gate in release.pod.spec.scheduling_gates if gate.name not in release.gates]
    spec: Document = {"schedulingGates": kept or None}
    if release.node_selector:
        spec["nodeSelector"] = dict(release.node_selector)
    return Patch(core.POD, pod.key, {"spec": spec}, based_on=Revision(pod.revision), options=_OPTIONS)
