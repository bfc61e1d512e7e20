"""Runs batch/v1 Jobs: carries out what `muster.jobs.batch` decides, and deletes finished jobs when their time is over.

It decides only on what it knows to be current: after its own writes it waits until its copies show them, and where an
answer was lost it asks the store what became of the write (`currency`). So no pod is made twice; and because a pod is
let go only once it is counted, none is counted twice or not at all (see `muster.jobs.batch.counting`).
"""

from collections.abc import Sequence

from muster.api import batch, core, errors, selectors
from muster.api.batch.names import TRACKING_FINALIZER
from muster.api.errors import ApiError
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.controllers.belonging import owner_key, owner_of
from muster.controllers.jobs.currency import Currency
from muster.controllers.refusals import check
from muster.jobs.batch import Plan, claims, is_tracked, make_pods, plan
from muster.jobs.batch.making import owner_reference
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.runtime.recording import EventRecorder
from muster.store.protocol import (
    Change,
    Create,
    Delete,
    Event,
    Options,
    Patch,
    PatchType,
    Refused,
    Result,
    Revision,
    Selection,
    Store,
    Write,
)

GATHER_SECONDS = 0.01
"""Pods of a job change together: their changes are gathered for so long, and longer where there are many to count."""
GATHER_SECONDS_PER_POD = 100e-6

_OPTIONS = Options(manager="job-controller")
_WORKERS = 32  # they mostly wait for their writes, and those that wait together share a commit
_MOST_TAKEN = 1000


class BatchJobController:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run(self) -> None:
        await _Keeper(self._store, self._clock).run()


class _Keeper:
    """The state of one run."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._clock = clock
        self._store = store
        self._events = EventRecorder(store, clock, "job-controller")
        self._reconciler = Reconciler("batch jobs", self._reconcile, clock=clock, workers=_WORKERS)
        self._jobs = Informer(store, Selection(batch.JOB), clock=clock)
        self._pods = Informer(store, Selection(core.POD), clock=clock)
        self._jobs.index_by("manual", _namespace_of_manual)
        self._pods.index_by("job", lambda pod: [str(key)] if (key := _job_of(pod)) else [])
        self._pods.index_by("uid", lambda pod: [uid] if (uid := owner_of(pod, batch.JOB).uid) else [])
        self._pods.index_by("lone", _namespace_of_lone)
        self._current = Currency(store, self._jobs, self._pods, _job_of)
        self._owners: dict[str, Key] = {}  # a pod that changes hands concerns the job that it leaves as well
        self._taken: dict[str, set[str]] = {}
        self._jobs.on_event(self._job_changed)
        self._pods.on_event(self._pod_changed)

    async def run(self) -> None:
        await keep("batch", [self._jobs, self._pods], self._events.run, self._reconciler.run)

    # What happens

    def _job_changed(self, event: Event) -> None:
        assert event.object is not None
        if event.change is Change.DELETED:
            self._taken.pop(event.object.uid, None)
        self._reconciler.queue.add(event.object.key)

    def _pod_changed(self, event: Event) -> None:
        pod = event.object
        assert pod is not None
        before = self._owners.pop(pod.uid, None)
        key = _job_of(pod)
        if key is not None and event.change is not Change.DELETED:
            self._owners[pod.uid] = key
        for job in {before, key} - {None}:
            assert job is not None
            delay = GATHER_SECONDS + GATHER_SECONDS_PER_POD * len(self._pods.by_index("job", str(job)))
            self._reconciler.queue.add_after(job, delay)
        if key is None and not pod.meta.owner_references:
            self._tell_manual_jobs(pod)

    def _tell_manual_jobs(self, pod: Object) -> None:
        for job in self._jobs.by_index("manual", pod.key.namespace):
            if selectors.from_view(job.read(batch.Job).spec.selector).matches(pod.meta.labels or {}):
                self._reconciler.queue.add_after(job.key, GATHER_SECONDS)

    # What is done about it

    async def _reconcile(self, key: Key) -> float | None:
        delay = await self._current.wait_for(key)
        if delay:
            return delay
        job = self._jobs.get(key)
        owned = self._pods.by_index("uid", job.uid) if job is not None else ()
        if len(self._pods.by_index("job", str(key))) > len(owned):
            await self._release_orphans(key, job)
        if job is None:
            self._current.forget(key)
            return None
        view = job.read(batch.Job)
        lone = self._pods.by_index("lone", key.namespace) if view.spec.manual_selector else ()
        claimed = claims(view, owned, lone)
        if claimed.adopted or claimed.disowned:
            adopted = [_adopt(pod, job) for pod in claimed.adopted]
            await self._write(key, [*adopted, *(_disown(pod, job) for pod in claimed.disowned)])
            return GATHER_SECONDS
        pods = [pod.read(core.Pod) for pod in claimed.kept]
        return await self._carry_out(job, plan(view, pods, self._clock.now(), self._taken.get(job.uid, ())))

    async def _carry_out(self, job: Object, decided: Plan) -> float | None:
        pods = make_pods(job.document(), decided.created) if decided.created else ()
        writes: list[Write] = [Create(core.POD, pod, _OPTIONS) for pod in pods]
        # Not if it has changed: what has meanwhile succeeded counts after all.
        writes += (_release(pod, based_on=_revision(pod)) for pod in decided.removed)
        writes += (_delete(pod) for pod in decided.ended)
        if decided.status is not None:
            writes.append(_status(job, decided.status))
        results = await self._write(job.key, writes)
        self._tell(job, writes, results)
        useless = [
            _delete(pod)
            for pod, result in zip(decided.removed, results[len(pods) :], strict=False)
            if not isinstance(result, Refused)
        ]
        if decided.status is not None and isinstance(results[-1], Refused):
            await self._end(job, useless)
            check(results[-1:])
            return None
        for told in decided.told:
            self._events.record(job, told.type, told.reason, told.message)
        await self._end(job, [*useless, *(_release(pod) for pod in decided.released)])
        if decided.is_expired:
            # In the foreground: its pods go first, so that nothing of it is left when it is gone.
            expired = Delete(batch.JOB, job.key, "Foreground", uid=job.uid, based_on=Revision(job.revision))
            check(await self._write(job.key, [expired]))
        check(results)
        return decided.again_after

    async def _end(self, job: Object, writes: Sequence[Write]) -> None:
        results = await self._write(job.key, writes)
        self._tell(job, writes, results)
        check(results)

    async def _release_orphans(self, key: Key, job: Object | None) -> None:
        """Pods whose job is gone count nowhere any more: nothing must hold them."""
        uid = job.uid if job is not None else ""
        named = self._pods.by_index("job", str(key))
        held = [pod for pod in named if owner_of(pod, batch.JOB).uid != uid and is_tracked(pod.meta)]
        if not held:
            return
        try:
            # Not on the word of a copy: one that lags behind has not heard of a new job yet.
            uid = (await self._store.get(batch.JOB, key)).uid
        except errors.NotFound:
            uid = ""
        orphans = [pod.read(core.Pod) for pod in held if owner_of(pod, batch.JOB).uid != uid]
        check(await self._write(key, [_release(pod) for pod in orphans]))

    async def _write(self, key: Key, writes: Sequence[Write]) -> Sequence[Result]:
        return await self._current.write(key, writes)

    def _tell(self, job: Object, writes: Sequence[Write], results: Sequence[Result]) -> None:
        for write, result in zip(writes, results, strict=True):
            error = result.error if isinstance(result, Refused) else None
            if isinstance(write, Create):
                self._tell_created(job, write, error)
            elif isinstance(write, Delete) and not isinstance(error, errors.NotFound):
                if error is None:
                    self._events.record(job, "Normal", "SuccessfulDelete", f"Deleted pod: {write.key.name}")
                else:
                    self._events.record(job, "Warning", "FailedDelete", f"Error deleting: {error.message}")

    def _tell_created(self, job: Object, write: Create, error: ApiError | None) -> None:
        name: str = write.document["metadata"]["name"]
        if error is None:
            self._events.record(job, "Normal", "SuccessfulCreate", f"Created pod: {name}")
        elif isinstance(error, errors.AlreadyExists):
            taken = self._taken.setdefault(job.uid, set())
            if len(taken) < _MOST_TAKEN:
                taken.add(name)
        else:
            self._events.record(job, "Warning", "FailedCreate", f"Error creating: {error.message}")


def _job_of(pod: Object) -> Key | None:
    return owner_key(pod, batch.JOB)


def _namespace_of_lone(pod: Object) -> list[str]:
    return [] if any(owner.controller for owner in pod.meta.owner_references) else [pod.key.namespace]


def _namespace_of_manual(job: Object) -> list[str]:
    return [job.key.namespace] if job.read(batch.Job).spec.manual_selector else []


def _status(job: Object, status: Document) -> Patch:
    body = {"status": status}
    return Patch(batch.JOB, job.key, body, subresource="status", based_on=Revision(job.revision), options=_OPTIONS)


def _delete(pod: core.Pod) -> Delete:
    return Delete(core.POD, _key(pod), uid=pod.metadata.uid, options=_OPTIONS)


def _release(pod: core.Pod, *, based_on: Revision | None = None) -> Patch:
    body = {"uid": pod.metadata.uid, "$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER]}
    return _patch(_key(pod), body, based_on)


def _adopt(pod: Object, job: Object) -> Patch:
    reference = owner_reference(job.document())
    return _patch(pod.key, {"uid": pod.uid, "ownerReferences": [reference], "finalizers": [TRACKING_FINALIZER]})


def _disown(pod: Object, job: Object) -> Patch:
    return _patch(
        pod.key,
        {
            "uid": pod.uid,
            "ownerReferences": [{"$patch": "delete", "uid": job.uid}],
            "$deleteFromPrimitiveList/finalizers": [TRACKING_FINALIZER],
        },
    )


def _patch(key: Key, metadata: Document, based_on: Revision | None = None) -> Patch:
    """The uid in it is a precondition: another pod of that name is left alone."""
    body = {"metadata": metadata}
    return Patch(core.POD, key, body, PatchType.STRATEGIC, based_on=based_on, options=_OPTIONS)


def _revision(pod: core.Pod) -> Revision:
    return Revision(int(pod.metadata.resource_version))


def _key(pod: core.Pod) -> Key:
    return Key(pod.metadata.namespace, pod.metadata.name)
