"""A store, the quota controllers and somebody who runs what was admitted, on virtual time."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from muster.api import core, kueue, raw, timestamps
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.raw import JSON, Document
from muster.controllers.quota.controller import QuotaController
from muster.controllers.quota.lifecycle import LifecycleController
from muster.controllers.quota.priorities import PriorityController
from muster.controllers.quota.protection import ProtectionController
from muster.controllers.quota.statuses import StatusController
from muster.controllers.quota.writer import status_patch
from muster.quota import status
from muster.quota.settings import Settings
from muster.quota.workloads import EVICTED, FINISHED, QUOTA_RESERVED
from muster.runtime.clock import Clock, VirtualClock
from muster.runtime.informers import Informer
from muster.runtime.reconciling import Reconciler
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Delete, Event, Patch, Selection, Store, write_one
from muster.testing.staging import running

GROUP: Final = "kueue.x-k8s.io/v1beta2"
STOP_SECONDS: Final = 1.0
_EARLY: Final = "2023-01-01T00:00:00Z"
_KINDS: Final = {kind.name: kind for kind in kueue.KINDS}


def a_flavor(name: str = "f", **spec: JSON) -> Document:
    return _document(kueue.RESOURCE_FLAVOR, name, spec)


def a_queue(
    name: str = "cq", cpu: str = "4", flavor: str = "f", more: Document | None = None, **spec: JSON
) -> Document:
    quotas = [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": cpu}]}]
    groups = [{"coveredResources": ["cpu"], "flavors": quotas}]
    return _document(
        kueue.CLUSTER_QUEUE, name, {"resourceGroups": groups, "namespaceSelector": {}, **spec, **(more or {})}
    )


def a_local_queue(name: str = "lq", to: str = "cq", **spec: JSON) -> Document:
    return _document(kueue.LOCAL_QUEUE, name, {"clusterQueue": to, **spec})


def a_check(name: str) -> Document:
    return _document(kueue.ADMISSION_CHECK, name, {"controllerName": "tests"})


def a_workload(name: str = "w", cpu: str = "1", *, queue: str | None = "lq", **spec: JSON) -> Document:
    container = {"name": "main", "image": "host", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    full = {"podSets": [{"name": "main", "count": 1, "template": template}], **spec}
    return _document(kueue.WORKLOAD, name, full | ({"queueName": queue} if queue is not None else {}))


def _document(kind: Kind, name: str, spec: Document) -> Document:
    metadata = {"name": name, **({"namespace": "default"} if kind.namespaced else {})}
    return {"apiVersion": GROUP, "kind": kind.name, "metadata": metadata, "spec": spec}


class Runner:
    """Stands for the jobs: what is evicted stops after a moment and gives back its quota."""

    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._gates = settings.gates
        self._workloads = Informer(store, Selection(kueue.WORKLOAD), clock=clock)
        self._reconciler: Reconciler[Key] = Reconciler("runner", self._reconcile, clock=clock)
        self._workloads.on_event(self._changed)

    async def run(self) -> None:
        async with running(self._workloads.run, self._reconciler.run):
            await self._clock.sleep(10**9)

    def _changed(self, event: Event) -> None:
        assert event.object is not None
        self._reconciler.queue.add_after(event.object.key, STOP_SECONDS)

    async def _reconcile(self, key: Key) -> float | None:
        found = self._workloads.get(key)
        if found is not None:
            view = found.read(kueue.Workload)
            true = {known.type for known in view.status.conditions if known.status == "True"}
            if {EVICTED, QUOTA_RESERVED} <= true and FINISHED not in true:
                made = status.release(found.document(), "PendingEvaluation", self._clock.now(), self._gates)
                await write_one(self._store, status_patch(found, made))
        return None


@dataclass
class World:
    store: EmbeddedStore
    clock: VirtualClock
    quota: QuotaController

    async def make(self, *documents: Document) -> None:
        for document in documents:
            await write_one(self.store, Create(_KINDS[document["kind"]], raw.copy(document)))

    async def change(self, kind: Kind, name: str, body: Document, *, is_status: bool = False) -> None:
        key = _key(kind, name)
        await write_one(self.store, Patch(kind, key, body, subresource="status" if is_status else ""))

    async def delete(self, kind: Kind, name: str) -> None:
        await write_one(self.store, Delete(kind, _key(kind, name)))

    async def get(self, kind: Kind, name: str) -> Object:
        return await self.store.get(kind, _key(kind, name))

    async def status(self, kind: Kind = kueue.WORKLOAD, name: str = "w") -> Document:
        found: Document = (await self.get(kind, name)).document().get("status") or {}
        return found

    async def conditions(self, kind: Kind = kueue.WORKLOAD, name: str = "w") -> dict[str, tuple[str, str]]:
        """Status and reason of each."""
        listed = (await self.status(kind, name)).get("conditions") or []
        return {found["type"]: (found["status"], found["reason"]) for found in listed}

    async def message(self, type: str, kind: Kind = kueue.WORKLOAD, name: str = "w") -> str:
        listed = (await self.status(kind, name)).get("conditions") or []
        return next(str(found["message"]) for found in listed if found["type"] == type)

    async def is_admitted(self, name: str = "w") -> bool:
        return (await self.conditions(name=name)).get("Admitted", ("False",))[0] == "True"

    async def set_check(self, check: str, state: str, workload: str = "w", **more: JSON) -> None:
        """As the check's controller does."""
        listed = (await self.status(name=workload))["admissionChecks"]
        when = timestamps.to_text(self.clock.now())
        for entry in listed:
            if entry["name"] == check:
                entry.update(state=state, message=f"it is {state}", lastTransitionTime=when, **more)
        await self.change(kueue.WORKLOAD, workload, {"status": {"admissionChecks": listed}}, is_status=True)

    async def activate_check(self, name: str) -> None:
        active = {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": _EARLY}
        await self.change(kueue.ADMISSION_CHECK, name, {"status": {"conditions": [active]}}, is_status=True)

    async def pods_are(self, value: str, reason: str, workload: str = "w") -> None:
        """As the workload's job says."""
        document = (await self.get(kueue.WORKLOAD, workload)).document()
        listed = [found for found in document["status"]["conditions"] if found["type"] != "PodsReady"]
        at = timestamps.to_text(self.clock.now())
        listed.append({"type": "PodsReady", "status": value, "reason": reason, "message": "", "lastTransitionTime": at})
        await self.change(kueue.WORKLOAD, workload, {"status": {"conditions": listed}}, is_status=True)

    async def events(self) -> Counter[str]:
        found = [event.read(core.Event) for event in (await self.store.list(Selection(core.EVENT))).items]
        return Counter(event.reason or "" for event in found)


def _key(kind: Kind, name: str) -> Key:
    return Key("default" if kind.namespaced else "", name)


@asynccontextmanager
async def a_world(clock: VirtualClock, settings: Settings | None = None) -> AsyncIterator[World]:
    """With one flavor. All controllers of quota but those of jobs run."""
    settings = settings or Settings()
    async with EmbeddedStore.in_memory(clock=clock) as store:
        quota = QuotaController(store, clock, settings)
        world = World(store, clock, quota)
        await world.make(a_flavor())
        parts = (
            quota,
            LifecycleController(store, clock, settings),
            StatusController(store, clock, quota),
            ProtectionController(store, clock),
            PriorityController(store, clock),
            Runner(store, clock, settings),
        )
        async with running(*(part.run for part in parts)):
            await clock.sleep(1)
            yield world
