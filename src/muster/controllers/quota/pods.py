"""Plain pods and pod groups that queue: carries out what `muster.quota.integrations.pods` makes of the plan for any
job."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from muster.api import core, errors, kueue, timestamps
from muster.api.errors import ApiError
from muster.api.kueue import names
from muster.api.objects import Key, Object
from muster.api.selectors import parse_labels
from muster.controllers.quota import carrying
from muster.controllers.quota.metrics import QuotaMetrics
from muster.controllers.quota.surroundings import Surroundings
from muster.quota.integrations import jobs, making, pods
from muster.quota.integrations.contract import Conflicting
from muster.quota.integrations.matching import is_finished, is_reserved
from muster.quota.integrations.pods import Member, Unfit
from muster.quota.integrations.steps import NOTHING, ChangeWorkload, MakeWorkload, Plan, Start, Stop, World
from muster.quota.integrations.subjects import Subject
from muster.quota.settings import Settings
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.runtime.recording import EventRecorder
from muster.store.protocol import Delete, Event, Options, Patch, PatchType, Selection, Store, Write

GATHER_SECONDS = 0.01
_OPTIONS = Options(manager="muster-quota-pods")
_SOON_SECONDS = 0.005
_LATER_SECONDS = 10.0
_WORKERS = 4


class Unit(NamedTuple):
    """A pod, or a group of pods."""

    is_group: bool
    key: Key


class PodsController:
    def __init__(
        self, store: Store, clock: Clock, settings: Settings | None = None, metrics: QuotaMetrics | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings or Settings()
        self._metrics = metrics

    async def run(self) -> None:
        await _Keeper(self._store, self._clock, self._settings, self._metrics).run()


class _Keeper:
    """The state of one run."""

    def __init__(self, store: Store, clock: Clock, settings: Settings, metrics: QuotaMetrics | None) -> None:
        self._store = store
        self._metrics = metrics
        self._events = EventRecorder(store, clock, "muster-quota-pods")
        self._reconciler = Reconciler("quota: pods", self._reconcile, clock=clock, workers=_WORKERS, max_delay=10.0)
        self._surroundings = Surroundings(store, clock, settings)
        managed = parse_labels(f"{names.MANAGED}=true")
        self._pods = Informer(store, Selection(core.POD, labels=managed), clock=clock)
        self._workloads = Informer(store, Selection(kueue.WORKLOAD), clock=clock)
        self._pods.index_by("group", _group)
        self._workloads.index_by("pod", _lone_pod)
        self._written: dict[Unit, tuple[int, int]] = {}
        self._pods.on_event(self._pod_changed)
        self._workloads.on_event(self._workload_changed)

    async def run(self) -> None:
        informers = [self._pods, self._workloads, *self._surroundings.informers]
        await keep("quota pods", informers, self._events.run, self._reconciler.run)

    # What happens

    def _pod_changed(self, event: Event) -> None:
        pod = event.object
        assert pod is not None
        group = pods.group_of(pod)
        if group:
            self._reconciler.queue.add_after(Unit(True, Key(pod.key.namespace, group)), GATHER_SECONDS)
        else:
            self._reconciler.queue.add(Unit(False, pod.key))

    def _workload_changed(self, event: Event) -> None:
        workload = event.object
        assert workload is not None
        if pods.is_ours(workload):
            self._reconciler.queue.add(Unit(True, workload.key))
        for text in _lone_pod(workload):
            namespace, _, name = text.partition("/")
            self._reconciler.queue.add(Unit(False, Key(namespace, name)))

    # What is done about it

    async def _reconcile(self, unit: Unit) -> float | None:
        if not self._is_current(unit):
            return _SOON_SECONDS
        world = self._surroundings.now()
        found = self._members(unit)
        workload = self._workload(unit, found)
        if not found:
            orphans = [workload] if workload is not None else []
            await self._take(unit, found, jobs.orphaned(orphans, world), world)
            if not orphans:
                self._written.pop(unit, None)
            return None
        try:
            return await self._manage(unit, found, workload, world)
        except Unfit as error:
            self._events.record(found[0].found, "Warning", "ErrWorkloadCompose", str(error))
            return None
        except ApiError as error:
            if error.retryable:
                raise
            if isinstance(error, errors.AlreadyExists):
                return _SOON_SECONDS
            self._events.record(found[0].found, "Warning", "ErrWorkloadCompose", error.message)
            return _LATER_SECONDS

    async def _manage(self, unit: Unit, found: Sequence[Member], workload: Object | None, world: World) -> float | None:
        if unit.is_group and workload is not None and not pods.is_ours(workload):
            message = f"The workload {workload.key} is not of this group; give the group another name"
            self._events.record(found[0].found, "Warning", "WorkloadNameConflict", message)
            return None
        released = pods.to_release(found, workload, is_group=unit.is_group)
        await self._write(unit, [_release(pod) for pod in released])
        if await self._remove_excess(unit, found, workload):
            return None
        subject = self._subject(unit, found, workload, world)
        if subject is None:
            return None
        decided = jobs.plan(subject, [workload] if workload is not None else [], world)
        if decided is NOTHING and workload is not None:
            decided = _owned(subject, workload)
        await self._take(unit, found, decided, world)
        waits = [decided.again_after, _next_end(found, world)]
        return min((wait for wait in waits if wait is not None), default=None)

    def _subject(self, unit: Unit, found: Sequence[Member], workload: Object | None, world: World) -> Subject | None:
        gates = world.settings.gates
        if unit.is_group:
            return pods.of_group(unit.key.name, found, workload, world.now, gates)
        return pods.of_pod(found[0], world.now, gates)

    async def _remove_excess(self, unit: Unit, found: Sequence[Member], workload: Object | None) -> bool:
        if not unit.is_group or workload is None or is_finished(workload) or not is_reserved(workload):
            return False
        many = pods.excess(found, [*workload.document().get("spec", {}).get("podSets", ())])
        await self._write(unit, [write for pod in many for write in (_release(pod), _delete(pod))])
        for pod in many:
            self._events.record(pod.found, "Normal", "ExcessPodDeleted", "Excess pod deleted")
        return bool(many)

    async def _take(self, unit: Unit, found: Sequence[Member], decided: Plan, world: World) -> None:
        for step in decided.steps:
            match step:
                case Start():
                    written = await self._start(unit, found, step, world)
                case Stop():
                    written = await self._stop(unit, found, step)
                case _:
                    written = await self._write(unit, carrying.writes(step))
                    if written and isinstance(step, MakeWorkload) and self._metrics is not None:
                        self._metrics.workload_made(found[0].found, world.now)
            if isinstance(step, Start | Stop) and not written:
                return
        for told in decided.told if found else ():
            self._events.record(found[0].found, told.type, told.reason, told.message)

    async def _start(self, unit: Unit, found: Sequence[Member], start: Start, world: World) -> bool:
        infos = {info.name: info for info in start.infos}
        try:
            made = [(pod, pods.started(pod, infos)) for pod in found]
        except Conflicting as error:
            failed = jobs.failed_to_start(start.found, str(error), world)
            await self._take(unit, found, failed, world)
            return False
        let_go = [(pod, document) for pod, document in made if document is not None]
        written = await self._write(
            unit, [write for pod, document in let_go for write in carrying.object_patch(pod.found, document)]
        )
        if written and self._metrics is not None:
            workload = start.found.read(kueue.Workload)
            for _ in let_go:
                self._metrics.gate_removed(workload, names.ADMISSION_GATE, world.now, is_group=unit.is_group)
        return written

    async def _stop(self, unit: Unit, found: Sequence[Member], stop: Stop) -> bool:
        ended = pods.to_stop(found)
        writes = [write for pod in ended for write in (_target(pod, stop.message), _delete(pod))]
        return await self._write(unit, writes)

    async def _write(self, unit: Unit, writes: Sequence[Write]) -> bool:
        written = await carrying.write_all(self._store, writes)
        for found in written:
            pod, workload = self._written.get(unit, (0, 0))
            if found.kind is kueue.WORKLOAD:
                workload = max(workload, found.revision)
            else:
                pod = max(pod, found.revision)
            self._written[unit] = pod, workload
        return bool(written)

    # What is known

    def _is_current(self, unit: Unit) -> bool:
        pod, workload = self._written.get(unit, (0, 0))
        return self._pods.revision >= pod and self._workloads.revision >= workload

    def _members(self, unit: Unit) -> list[Member]:
        if unit.is_group:
            return [pods.member(found) for found in self._pods.by_index("group", str(unit.key))]
        found = self._pods.get(unit.key)
        return [pods.member(found)] if found is not None else []

    def _workload(self, unit: Unit, found: Sequence[Member]) -> Object | None:
        if unit.is_group:
            return self._workloads.get(unit.key)
        uid = found[0].found.uid if found else ""
        for workload in self._workloads.by_index("pod", str(unit.key)):
            if not uid or any(owner.uid == uid for owner in workload.meta.owner_references):
                return workload
        return None


def _owned(subject: Subject, workload: Object) -> Plan:
    """A pod that came later owns the workload of its group like the others."""
    known = {owner.uid for owner in workload.meta.owner_references}
    if workload.is_terminating or is_finished(workload) or known >= {owner["uid"] for owner in subject.owners}:
        return NOTHING
    return Plan((ChangeWorkload(workload, making.owned(workload.document(), subject)),))


def _next_end(found: Sequence[Member], world: World) -> float | None:
    """When the time is over that a pod on its way out was given."""
    ends = [
        timestamps.parse(pod.found.meta.deletion_timestamp or "") - world.now
        for pod in found
        if pod.is_active(world.now, world.settings.gates) and pod.is_deleting
    ]
    return max(0.01, min(ends)) if ends else None


def _group(pod: Object) -> Iterable[str]:
    name = pods.group_of(pod)
    return [str(Key(pod.key.namespace, name))] if name else []


def _lone_pod(workload: Object) -> Iterable[str]:
    owner = next((owner for owner in workload.meta.owner_references if owner.controller), None)
    return [str(Key(workload.key.namespace, owner.name))] if owner is not None and owner.kind == "Pod" else []


def _release(pod: Member) -> Patch:
    body = {"metadata": {"uid": pod.found.uid, "$deleteFromPrimitiveList/finalizers": [names.MANAGED]}}
    return Patch(core.POD, pod.found.key, body, PatchType.STRATEGIC, options=_OPTIONS)


def _target(pod: Member, message: str) -> Patch:
    """Says why the pod ends, before it does."""
    condition = {"type": pods.TERMINATION_TARGET, "status": "True", "reason": pods.STOPPED, "message": message}
    body = {"metadata": {"uid": pod.found.uid}, "status": {"conditions": [condition]}}
    return Patch(core.POD, pod.found.key, body, PatchType.STRATEGIC, subresource="status", options=_OPTIONS)


def _delete(pod: Member) -> Delete:
    return Delete(core.POD, pod.found.key, uid=pod.found.uid, options=_OPTIONS)
