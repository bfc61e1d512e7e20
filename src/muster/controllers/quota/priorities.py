"""A WorkloadPriorityClass whose value changes, or that is made anew, changes the priority of every workload that refers
to it and is not over.
"""

from collections.abc import Iterable
from typing import Final

from muster.api import conditions, kueue
from muster.api.objects import Key, Object
from muster.quota.workloads import FINISHED
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.store.protocol import Change, Event, Options, Patch, Refused, Revision, Selection, Store

_OPTIONS: Final = Options(manager="muster-quota")
_BATCH: Final = 256


class PriorityController:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run(self) -> None:
        await _Run(self._store, self._clock).run()


class _Run:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._reconciler: Reconciler[str] = Reconciler("priorities", self._reconcile, clock=clock)
        self._classes = Informer(store, Selection(kueue.WORKLOAD_PRIORITY_CLASS), clock=clock)
        self._workloads = Informer(store, Selection(kueue.WORKLOAD), clock=clock)
        self._workloads.index_by("class", _class_of)
        self._classes.on_event(self._class_changed)

    async def run(self) -> None:
        await keep("priorities", [self._classes, self._workloads], self._reconciler.run)

    def _class_changed(self, event: Event) -> None:
        assert event.object is not None
        if event.change is not Change.DELETED:
            self._reconciler.queue.add(event.object.key.name)

    async def _reconcile(self, name: str) -> float | None:
        found = self._classes.get(Key("", name))
        if found is None:
            return None
        value = found.read(kueue.WorkloadPriorityClass).value or 0
        due = [workload for workload in self._workloads.by_index("class", name) if _differs(workload, value)]
        refused: list[Refused] = []
        for start in range(0, len(due), _BATCH):
            results = await self._store.write([_patch(workload, value) for workload in due[start : start + _BATCH]])
            refused += [result for result in results if isinstance(result, Refused)]
        lost = next((result.error for result in refused if result.error.retryable), None)
        if lost is not None:
            raise lost  # somebody was faster: the rest is looked at again after a moment
        return None


def _patch(workload: Object, value: int) -> Patch:
    body = {"spec": {"priority": value}}
    return Patch(workload.kind, workload.key, body, based_on=Revision(workload.revision), options=_OPTIONS)


def _differs(workload: Object, value: int) -> bool:
    view = workload.read(kueue.Workload)
    return (view.spec.priority or 0) != value and not conditions.is_true(view.status.conditions, FINISHED)


def _class_of(found: Object) -> Iterable[str]:
    reference = found.read(kueue.Workload).spec.priority_class_ref
    is_ours = reference is not None and (reference.group, reference.kind) == (
        kueue.GROUP,
        kueue.WORKLOAD_PRIORITY_CLASS.name,
    )
    return [reference.name] if reference is not None and is_ours else []
