"""Runs Volcano's cron jobs: carries out what `muster.jobs.cron` decides.

A run has a name that follows from its time, so a run that was made and could not be noted is found again, not made
twice; this holds whatever the controller's copies show.
"""

from collections.abc import Sequence

from muster.api import core, errors, raw, volcano
from muster.api.objects import Key, Object
from muster.jobs import cron
from muster.jobs.cron.planning import Told
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
    write_one,
)

_OPTIONS = Options(manager="cronjob-controller")
_WORKERS = 4
_LONGEST_WAIT_SECONDS = 600.0
"""Clocks are set and machines sleep: a run that is days away is looked at in between."""


class CronJobController:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run(self) -> None:
        await _Keeper(self._store, self._clock).run()


class _Keeper:
    """The state of one run."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._events = EventRecorder(store, clock, "cronjob-controller")
        self._reconciler = Reconciler("cron jobs", self._reconcile, clock=clock, workers=_WORKERS)
        self._cron_jobs = Informer(store, Selection(volcano.CRON_JOB), clock=clock)
        self._jobs = Informer(store, Selection(volcano.JOB), clock=clock)
        self._jobs.index_by("cron job", lambda job: [str(key)] if (key := _cron_job_of(job)) else [])
        self._cron_jobs.on_event(self._cron_job_changed)
        self._jobs.on_event(self._job_changed)

    async def run(self) -> None:
        await keep("cron", [self._cron_jobs, self._jobs], self._events.run, self._reconciler.run)

    def _cron_job_changed(self, event: Event) -> None:
        assert event.object is not None
        self._reconciler.queue.add(event.object.key)

    def _job_changed(self, event: Event) -> None:
        assert event.object is not None
        key = _cron_job_of(event.object)
        if key is not None:
            self._reconciler.queue.add(key)

    async def _reconcile(self, key: Key) -> float | None:
        found = self._cron_jobs.get(key)
        if found is None:
            return None
        now = self._clock.now()
        view = found.read(volcano.CronJob)
        owned = [job.read(volcano.Job) for job in self._jobs.by_index("cron job", str(key))]
        jobs = [job for job in owned if cron.is_child_of(job.metadata, view.metadata)]
        plan = cron.plan(view, jobs, now, await self._gone(view, jobs))
        self._tell(found, plan.told)
        outcome = await self._start(found, plan.start) if plan.start is not None else None
        settled = cron.settle(plan, now, outcome)
        self._tell(found, settled.told)
        await self._finish(found, settled, plan.removed)
        if settled.has_failed:
            raise errors.Unavailable(f"the run {plan.start.name if plan.start else ''} could not be started")
        return None if settled.again_after is None else min(settled.again_after, _LONGEST_WAIT_SECONDS)

    async def _gone(self, view: volcano.CronJob, jobs: Sequence[volcano.Job]) -> set[str]:
        """Active jobs that do not exist. Not on the word of a copy: one that lags behind has not heard of a new job."""
        known = {job.metadata.uid for job in jobs}
        gone = set()
        for reference in view.status.active:
            if reference.uid and reference.uid not in known:
                try:
                    key = Key(view.metadata.namespace, reference.name or "")
                    is_there = (await self._store.get(volcano.JOB, key)).uid == reference.uid
                except errors.NotFound:
                    is_there = False
                if not is_there:
                    gone.add(reference.uid)
        return gone

    async def _start(self, found: Object, start: cron.Start) -> cron.Outcome:
        namespace = found.key.namespace
        deletes = [_delete(Key(namespace, old.name or ""), old.uid or "") for old in start.replaced]
        for result in await self._store.write(deletes) if deletes else ():
            if isinstance(result, Refused) and not isinstance(result.error, errors.NotFound):
                return cron.NotReplaced(result.error.message)
        document = cron.make_job(found.document(), start.scheduled, start.timing)
        try:
            made = await write_one(self._store, Create(volcano.JOB, document, _OPTIONS))
            return cron.Started(_reference(made))
        except errors.AlreadyExists:
            return await self._find(found, Key(namespace, start.name))
        except errors.ApiError as error:
            if error.retryable:
                raise
            return cron.Refused(error.message)

    async def _find(self, found: Object, key: Key) -> cron.Outcome:
        holder = await self._store.get(volcano.JOB, key)
        if not cron.is_child_of(holder.meta, found.meta):
            return cron.Taken()
        return cron.Started(_reference(holder), is_new=False)

    async def _finish(self, found: Object, settled: cron.Settled, removed: Sequence[volcano.Job]) -> None:
        writes: list[Write] = []
        if settled.status is not None:
            body = {"status": {"active": None, **raw.copy(settled.status)}}
            based_on = Revision(found.revision)
            patch = Patch(volcano.CRON_JOB, found.key, body, subresource="status", based_on=based_on, options=_OPTIONS)
            writes.append(patch)
        writes += (_delete(Key(job.metadata.namespace, job.metadata.name), job.metadata.uid) for job in removed)
        if not writes:
            return
        results = await self._store.write(writes)
        for job, result in zip(removed, results[len(writes) - len(removed) :], strict=True):
            if not isinstance(result, Refused):
                self._tell(found, [Told("Normal", "SuccessfulDelete", f"Deleted job {job.metadata.name}")])
        _check(results)

    def _tell(self, found: Object, told: Sequence[Told]) -> None:
        for saying in told:
            self._events.record(found, saying.type, saying.reason, saying.message)


def _check(results: Sequence[Result]) -> None:
    for result in results:
        if isinstance(result, Refused) and not isinstance(result.error, errors.NotFound):
            raise result.error


def _delete(key: Key, uid: str) -> Delete:
    return Delete(volcano.JOB, key, "Background", uid=uid or None, options=_OPTIONS)


def _reference(job: Object) -> core.ObjectReference:
    return core.ObjectReference(
        api_version=job.kind.api_version,
        kind=job.kind.name,
        name=job.key.name,
        namespace=job.key.namespace,
        resource_version=str(job.revision),
        uid=job.uid,
    )


def _cron_job_of(job: Object) -> Key | None:
    for owner in job.meta.owner_references:
        if owner.controller and owner.kind == volcano.CRON_JOB.name:
            return Key(job.key.namespace, owner.name)
    return None
