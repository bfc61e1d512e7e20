"""Jobs of every kind that queue: carries out what `muster.quota.integrations.jobs` decides.

One controller for all kinds: a kind of job is a `JobIntegration`, and nothing here knows more of it.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from muster.api import errors, kueue
from muster.api.errors import ApiError
from muster.api.kinds import Kind
from muster.api.kueue import names
from muster.api.objects import Key, Object
from muster.controllers.quota import carrying
from muster.controllers.quota.ancestry import Ancestry, controller_of
from muster.controllers.quota.metrics import QuotaMetrics
from muster.controllers.quota.surroundings import Surroundings
from muster.quota.integrations import following, jobs, subjects
from muster.quota.integrations.allocation import Allocations
from muster.quota.integrations.batch_job import BatchJobs
from muster.quota.integrations.contract import Conflicting, JobIntegration
from muster.quota.integrations.pytorch_job import PyTorchJobs
from muster.quota.integrations.steps import MakeWorkload, Plan, Start, Step, Stop, World
from muster.quota.integrations.volcano_job import VolcanoJobs
from muster.quota.settings import Settings
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer, by_owner
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.runtime.recording import EventRecorder
from muster.store.protocol import Change, Event, Selection, Store, Write

INTEGRATIONS: tuple[JobIntegration, ...] = (BatchJobs(), PyTorchJobs(), VolcanoJobs(), Allocations())
_WORKERS = 32  # they mostly wait for their writes, and those that wait together share a commit
GATHER_SECONDS = 0.01
"""A job that starts or ends says so in several steps: they are looked at together."""
_SOON_SECONDS = 0.005
_LATER_SECONDS = 10.0


class Job(NamedTuple):
    kind: Kind
    key: Key


class JobsController:
    """`integrations`: the kinds of jobs that queue."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        integrations: Sequence[JobIntegration] = INTEGRATIONS,
        settings: Settings | None = None,
        metrics: QuotaMetrics | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._integrations = integrations
        self._settings = settings or Settings()
        self._metrics = metrics

    async def run(self) -> None:
        await _Keeper(self._store, self._clock, self._integrations, self._settings, self._metrics).run()


class _Keeper:
    """The state of one run."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        integrations: Sequence[JobIntegration],
        settings: Settings,
        metrics: QuotaMetrics | None,
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._integrations = {integration.kind: integration for integration in integrations}
        self._able = {integration.kind: subjects.abilities(integration) for integration in integrations}
        self._by_name = {(kind.api_version, kind.name): kind for kind in self._integrations}
        self._events = EventRecorder(store, clock, "muster-quota-jobs")
        self._reconciler = Reconciler("quota: jobs", self._reconcile, clock=clock, workers=_WORKERS, max_delay=10.0)
        self._surroundings = Surroundings(store, clock, settings)
        self._jobs = {kind: Informer(store, Selection(kind), clock=clock) for kind in self._integrations}
        self._ancestry = Ancestry(store, self._jobs)
        self._workloads = Informer(store, Selection(kueue.WORKLOAD), clock=clock)
        self._workloads.index_by("owner", by_owner)
        self._workloads.index_by("controller", _of_controller)
        self._written: dict[Job, tuple[int, int]] = {}
        for informer in self._jobs.values():
            informer.index_by("prebuilt", _prebuilt)
            informer.on_event(self._job_changed)
        self._workloads.on_event(self._workload_changed)
        self._surroundings.namespaces.on_event(self._namespace_changed)

    async def run(self) -> None:
        informers = [*self._jobs.values(), self._workloads, *self._surroundings.informers]
        await keep("quota jobs", informers, self._events.run, self._reconciler.run)

    # What happens

    def _job_changed(self, event: Event) -> None:
        assert event.object is not None
        job = Job(event.object.kind, event.object.key)
        if event.change is Change.MODIFIED:
            self._reconciler.queue.add_after(job, GATHER_SECONDS)
        else:
            self._reconciler.queue.add(job)

    def _namespace_changed(self, event: Event) -> None:
        """Its jobs may queue from now on."""
        assert event.object is not None
        name = event.object.key.name
        for informer in self._jobs.values():
            for job in informer.items():
                if job.key.namespace == name:
                    self._reconciler.queue.add(Job(job.kind, job.key))

    def _workload_changed(self, event: Event) -> None:
        found = event.object
        assert found is not None
        for owner in found.meta.owner_references:
            kind = self._by_name.get((owner.api_version, owner.kind))
            if kind is not None:
                owning = Job(kind, Key(found.key.namespace, owner.name))
                for told in (owning, *self._ancestry.parts_of(owning)):
                    self._reconciler.queue.add(Job(*told))
        for informer in self._jobs.values():
            for job in informer.by_index("prebuilt", str(found.key)):
                self._reconciler.queue.add(Job(job.kind, job.key))

    # What is done about it

    async def _reconcile(self, ref: Job) -> float | None:
        if not self._is_current(ref):
            return _SOON_SECONDS
        job = self._jobs[ref.kind].get(ref.key)
        world = self._surroundings.now()
        if job is None:
            orphans = list(self._workloads.by_index("controller", _reference(ref.kind, ref.key)))
            await self._take(ref, None, jobs.orphaned(orphans, world), world)
            self._ancestry.forget(ref)
            if not orphans:
                self._written.pop(ref, None)
            return None
        if not self._surroundings.manages(ref.key.namespace):
            return None
        subject = subjects.of_job(self._integrations[ref.kind], job.document(), self._able[ref.kind])
        above = await self._ancestry.above(job)
        if above.problem:
            self._events.record(job, "Warning", "JobNestingTooDeep", above.problem)
        if above.top is not None:
            decided = following.follow(subject, self._owned(job), self._owned(above.top))
        elif above.is_orphan or above.problem:
            return _LATER_SECONDS
        else:
            decided = jobs.plan(subject, self._candidates(job, subject), world)
        try:
            await self._take(ref, job, decided, world)
        except ApiError as error:
            if error.retryable:
                raise
            return self._refused(job, error)
        return decided.again_after

    async def _take(self, ref: Job, job: Object | None, decided: Plan, world: World) -> None:
        if job is not None:
            decided = self._startable(job, decided, world)
        for step in decided.steps:
            written = await carrying.write_all(self._store, self._writes(job, step))
            self._note(ref, written)
            if isinstance(step, MakeWorkload) and job is not None and self._metrics is not None:
                self._metrics.workload_made(job, world.now)
            if isinstance(step, Stop) and not written:
                return  # it has stopped already: there is nothing to tell
        for told in decided.told if job is not None else ():
            assert job is not None
            self._events.record(job, told.type, told.reason, told.message)

    def _startable(self, job: Object, decided: Plan, world: World) -> Plan:
        """The plan; or, where what admission gives cannot be put into the job, the end of its workload."""
        start = next((step for step in decided.steps if isinstance(step, Start)), None)
        if start is None:
            return decided
        try:
            jobs.started(self._integrations[job.kind], job.document(), start, self._able[job.kind])
        except Conflicting as error:
            return jobs.failed_to_start(start.found, str(error), world)
        return decided

    def _writes(self, job: Object | None, step: Step) -> list[Write]:
        if not isinstance(step, Start | Stop):
            return carrying.writes(step)
        assert job is not None
        integration, document, able = self._integrations[job.kind], job.document(), self._able[job.kind]
        made = (
            jobs.stopped(integration, document, step, able)
            if isinstance(step, Stop)
            else jobs.started(integration, document, step, able)
        )
        return carrying.object_patch(job, made)

    def _refused(self, job: Object, error: ApiError) -> float:
        """What trying again at once does not help is told, and tried later: an administrator may have to act."""
        if isinstance(error, errors.AlreadyExists):
            return _SOON_SECONDS  # our copy has not seen it yet
        self._events.record(job, "Warning", "ErrWorkloadCompose", error.message)
        return _LATER_SECONDS

    # What is known

    def _is_current(self, ref: Job) -> bool:
        """Whether the copies show all that was written for this job: else the same would be done again."""
        job_revision, workload_revision = self._written.get(ref, (0, 0))
        return self._jobs[ref.kind].revision >= job_revision and self._workloads.revision >= workload_revision

    def _note(self, ref: Job, written: Iterable[Object]) -> None:
        for found in written:
            job_revision, workload_revision = self._written.get(ref, (0, 0))
            if found.kind is kueue.WORKLOAD:
                workload_revision = max(workload_revision, found.revision)
            else:
                job_revision = max(job_revision, found.revision)
            self._written[ref] = job_revision, workload_revision

    def _owned(self, job: Object) -> list[Object]:
        return list(self._workloads.by_index("owner", job.uid))

    def _candidates(self, job: Object, subject: subjects.Subject) -> list[Object]:
        owned = self._owned(job)
        if subject.prebuilt:
            named = self._workloads.get(Key(job.key.namespace, subject.prebuilt))
            if named is not None and named not in owned:
                owned.append(named)
        return owned


def _prebuilt(job: Object) -> Iterable[str]:
    name = (job.meta.annotations or {}).get(names.PREBUILT) or (job.meta.labels or {}).get(names.PREBUILT)
    return [str(Key(job.key.namespace, name))] if name else []


def _of_controller(workload: Object) -> Iterable[str]:
    owner = controller_of(workload.meta)
    if owner is None:
        return []
    return [f"{owner.api_version} {owner.kind} {Key(workload.key.namespace, owner.name)}"]


def _reference(kind: Kind, key: Key) -> str:
    return f"{kind.api_version} {kind.name} {key}"
