"""Runs kubeflow.org PyTorchJobs: carries out what `muster.jobs.pytorch` decides, and deletes finished ones in time.

It decides only on what it knows to be current (`currency`), so no pod is made twice. The status is written first: it is
refused where the job has changed meanwhile, and then nothing of the plan is done.
"""

from collections.abc import Iterator, Sequence

from muster.api import core, errors, kubeflow, volcano
from muster.api.errors import ApiError
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.controllers.belonging import owner_key, owner_of
from muster.controllers.jobs.currency import Currency
from muster.controllers.refusals import check
from muster.jobs.pytorch import Plan, Seen, make_members, make_pods, names, plan
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.runtime.recording import EventRecorder
from muster.store.protocol import (
    Create,
    Delete,
    Event,
    Options,
    Patch,
    Refused,
    Result,
    Revision,
    Selection,
    Store,
    Write,
)

GATHER_SECONDS = 0.01
"""Pods of a job change together: their changes are gathered for so long, and longer where there are many to count."""
GATHER_SECONDS_PER_POD = 50e-6

_OPTIONS = Options(manager=names.OPERATOR_NAME)
_WORKERS = 32  # they mostly wait for their writes, and those that wait together share a commit
_NOUNS = {core.POD: "pod", core.SERVICE: "service", volcano.POD_GROUP: "PodGroup"}


class PyTorchJobController:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run(self) -> None:
        await _Keeper(self._store, self._clock).run()


class _Keeper:
    """The state of one run."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._clock = clock
        self._events = EventRecorder(store, clock, names.OPERATOR_NAME)
        self._reconciler = Reconciler("pytorch jobs", self._reconcile, clock=clock, workers=_WORKERS)
        self._jobs = Informer(store, Selection(kubeflow.PYTORCH_JOB), clock=clock)
        self._pods = Informer(store, Selection(core.POD), clock=clock)
        self._services = Informer(store, Selection(core.SERVICE), clock=clock)
        self._groups = Informer(store, Selection(volcano.POD_GROUP), clock=clock)
        self._parts = (self._pods, self._services, self._groups)
        self._current = Currency(store, self._jobs, self._pods, _job_of, [self._services, self._groups])
        self._listed: dict[Key, tuple[str, Document]] = {}
        """By job: whose members, and which, its ConfigMap shows."""
        self._jobs.on_event(self._job_changed)
        for informer in self._parts:
            informer.index_by("owner", lambda part: [uid] if (uid := owner_of(part, kubeflow.PYTORCH_JOB).uid) else [])
            informer.on_event(self._part_changed)

    async def run(self) -> None:
        await keep("pytorch", [self._jobs, *self._parts], self._events.run, self._reconciler.run)

    # What happens

    def _job_changed(self, event: Event) -> None:
        assert event.object is not None
        self._reconciler.queue.add(event.object.key)

    def _part_changed(self, event: Event) -> None:
        part = event.object
        assert part is not None
        key = _job_of(part)
        if key is not None:
            delay = GATHER_SECONDS + GATHER_SECONDS_PER_POD * len(
                self._pods.by_index("owner", owner_of(part, kubeflow.PYTORCH_JOB).uid)
            )
            self._reconciler.queue.add_after(key, delay)

    # What is done about it

    async def _reconcile(self, key: Key) -> float | None:
        delay = await self._current.wait_for(key)
        if delay:
            return delay
        job = self._jobs.get(key)
        if job is None:
            self._current.forget(key)
            self._listed.pop(key, None)
            return None
        pods, services, groups = (list(informer.by_index("owner", job.uid)) for informer in self._parts)
        group = next((found for found in groups if found.key.name == key.name), None)
        seen = Seen(
            names.sized(job.read(kubeflow.PyTorchJob)),
            [pod.read(core.Pod) for pod in sorted(pods, key=lambda pod: pod.key)],
            frozenset(service.key.name for service in services),
            group.read(volcano.PodGroup) if group is not None else None,
        )
        decided = plan(seen, self._clock.now())
        if decided.status is not None:
            check(await self._current.write(key, [_status(job, decided.status)]))
        for told in decided.told:
            self._events.record(job, told.type, told.reason, told.message)
        if decided.restarts is not None:
            check(await self._current.write(key, [_restarts(job, decided.restarts)]))
        await self._list_members(job, seen, is_running=bool(decided.created or pods))
        writes = [
            *_deletes(seen, decided, {found.key.name: found.uid for found in services}),
            *_creates(job, seen, decided),
        ]
        results = await self._current.write(key, writes)
        self._tell(job, writes, results)
        check(results)
        if decided.is_expired:
            # In the foreground: its pods go first, so that nothing of it is left when it is gone.
            expired = Delete(kubeflow.PYTORCH_JOB, key, "Foreground", uid=job.uid, options=_OPTIONS)
            check(await self._current.write(key, [expired]))
        return decided.again_after

    async def _list_members(self, job: Object, seen: Seen, *, is_running: bool) -> None:
        """Before the pods that read it; once for each change."""
        wanted = make_members(seen.job) if is_running else None
        if wanted is None or self._listed.get(job.key) == (job.uid, wanted["data"]):
            return
        key = Key(job.key.namespace, wanted["metadata"]["name"])
        result = (await self._current.write(job.key, [Create(core.CONFIG_MAP, wanted, _OPTIONS)]))[0]
        if isinstance(result, Refused) and isinstance(result.error, errors.AlreadyExists):
            # Its owner as well: what a job of the same name left must not go with that one.
            body = {"metadata": {"ownerReferences": wanted["metadata"]["ownerReferences"]}, "data": wanted["data"]}
            result = (await self._current.write(job.key, [Patch(core.CONFIG_MAP, key, body, options=_OPTIONS)]))[0]
        check([result])
        self._listed[job.key] = (job.uid, wanted["data"])

    def _tell(self, job: Object, writes: Sequence[Write], results: Sequence[Result]) -> None:
        for write, result in zip(writes, results, strict=True):
            error = result.error if isinstance(result, Refused) else None
            if isinstance(write, Create):
                self._tell_one(job, "Create", "Created", _NOUNS[write.kind], write.document["metadata"]["name"], error)
            elif isinstance(write, Delete) and not isinstance(error, errors.NotFound):
                self._tell_one(job, "Delete", "Deleted", _NOUNS[write.kind], write.key.name, error)

    def _tell_one(self, job: Object, verb: str, done: str, noun: str, name: str, error: ApiError | None) -> None:
        subject = noun[0].upper() + noun[1:]
        if error is None:
            self._events.record(job, "Normal", f"Successful{verb}{subject}", f"{done} {noun}: {name}")
        else:
            message = f"Error {verb.lower()[:-1]}ing {noun} {name}: {error.message}"
            self._events.record(job, "Warning", f"Failed{verb}{subject}", message)


def _creates(job: Object, seen: Seen, decided: Plan) -> Iterator[Write]:
    """The gang before its members: a pod alone would be placed alone."""
    if decided.group_created is not None:
        yield Create(volcano.POD_GROUP, decided.group_created, _OPTIONS)
    if decided.group_changed is not None:
        yield Patch(volcano.POD_GROUP, job.key, decided.group_changed, options=_OPTIONS)
    for service in decided.services_created:
        yield Create(core.SERVICE, service, _OPTIONS)
    if decided.created:
        for pod in make_pods(seen.job, job.document(), decided.created):
            yield Create(core.POD, pod, _OPTIONS)


def _deletes(seen: Seen, decided: Plan, services: dict[str, str]) -> Iterator[Write]:
    """`services`: uids, by name."""
    namespace = seen.job.metadata.namespace
    if decided.is_group_deleted and seen.group is not None:
        meta = seen.group.metadata
        yield Delete(volcano.POD_GROUP, Key(namespace, meta.name), uid=meta.uid, options=_OPTIONS)
    for pod in decided.ended:
        yield Delete(core.POD, Key(namespace, pod.metadata.name), uid=pod.metadata.uid, options=_OPTIONS)
    for name in decided.services_deleted:
        yield Delete(core.SERVICE, Key(namespace, name), uid=services[name], options=_OPTIONS)


def _status(job: Object, status: Document) -> Patch:
    body, based_on = {"status": status}, Revision(job.revision)
    return Patch(kubeflow.PYTORCH_JOB, job.key, body, subresource="status", based_on=based_on, options=_OPTIONS)


def _restarts(job: Object, count: int) -> Patch:
    """The uid in it is a precondition: another job of that name is left alone."""
    body = {"metadata": {"uid": job.uid, "annotations": {names.RESTARTS: str(count)}}}
    return Patch(kubeflow.PYTORCH_JOB, job.key, body, options=_OPTIONS)


def _job_of(part: Object) -> Key | None:
    return owner_key(part, kubeflow.PYTORCH_JOB)
