"""Runs Volcano's Jobs as `muster.jobs.volcano` decides, and deletes finished ones when their time is over.

Many workers, but one job is never with two of them: what happens to it is dealt with in order. It decides only on what
it knows to be current (`currency`), so no pod is made twice.
"""

from collections import deque
from collections.abc import Iterable

from muster.api import core, scheduling, volcano
from muster.api.objects import Key, Object
from muster.api.volcano.defaults import DEFAULT_QUEUE
from muster.api.volcano.waiting import CLAIM_MISSING, CLASS_MISSING, PLUGIN_ERROR
from muster.controllers.belonging import owner_of
from muster.controllers.jobs.carrying import OPTIONS, Carrier
from muster.controllers.jobs.commands import Commands
from muster.controllers.jobs.currency import Currency
from muster.controllers.jobs.obstacles import Obstacles
from muster.controllers.jobs.ssh_keys import MakeKey, make_key
from muster.jobs.volcano import Request, Seen, Told, members, names, noticing, plan
from muster.jobs.volcano.plugins import Loaded, PluginError, UnknownPlugin, load
from muster.jobs.volcano.vocabulary import Happening
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.runtime.recording import EventRecorder
from muster.store.protocol import Change, Event, Patch, Selection, Store

GATHER_SECONDS = 0.01
"""Pods of a job change together: their changes are gathered for so long, and longer where there are many to count."""
GATHER_SECONDS_PER_POD = 100e-6

_WORKERS = 32  # they mostly wait for their writes, and those that wait together share a commit


class VolcanoJobController:
    """`make_key`: for jobs whose members log in to each other."""

    def __init__(self, store: Store, clock: Clock, make_key: MakeKey = make_key) -> None:
        self._store = store
        self._clock = clock
        self._make_key = make_key

    async def run(self) -> None:
        await _Keeper(self._store, self._clock, self._make_key).run()


class _Keeper:
    """The state of one run."""

    def __init__(self, store: Store, clock: Clock, make_key: MakeKey) -> None:
        self._clock = clock
        self._events = EventRecorder(store, clock, OPTIONS.manager)
        self._reconciler = Reconciler("volcano jobs", self._reconcile, clock=clock, workers=_WORKERS)
        self._commands = Commands(store, clock, OPTIONS, self._commanded)
        self._jobs = Informer(store, Selection(volcano.JOB), clock=clock)
        self._pods = Informer(store, Selection(core.POD), clock=clock)
        self._groups = Informer(store, Selection(volcano.POD_GROUP), clock=clock)
        self._queues = Informer(store, Selection(volcano.QUEUE), clock=clock)
        self._classes = Informer(store, Selection(scheduling.PRIORITY_CLASS), clock=clock)
        self._claims = Informer(store, Selection(core.PERSISTENT_VOLUME_CLAIM), clock=clock)
        self._jobs.index_by("queue", lambda job: [job.read(volcano.Job).spec.queue or DEFAULT_QUEUE])
        self._pods.index_by("job", lambda pod: [str(key)] if (key := _job_of(pod)) else [])
        self._current = Currency(store, self._jobs, self._pods, _job_of, [self._groups])
        self._requests: dict[Key, deque[Request]] = {}
        """What happened to a job and leaves no trace, oldest first."""
        self._carrier = Carrier(store, self._current, self._events, make_key)
        self._obstacles = Obstacles(self._queues, self._classes, self._claims)
        self._jobs.on_event(self._job_changed)
        self._pods.on_event(self._pod_changed)
        self._groups.on_event(self._group_changed)
        self._queues.on_event(self._queue_changed)
        self._classes.on_event(lambda event: self._came(event, CLASS_MISSING))
        self._claims.on_event(lambda event: self._came(event, CLAIM_MISSING))

    async def run(self) -> None:
        around = (self._groups, self._queues, self._classes, self._claims, self._commands.informer)
        await keep(
            "volcano",
            (self._jobs, self._pods, *around),
            self._events.run,
            self._commands.reconciler.run,
            self._reconciler.run,
        )

    # What happens

    def _job_changed(self, event: Event) -> None:
        job = event.object
        assert job is not None
        if event.change is Change.DELETED:
            self._carrier.forget(job.uid)
            self._drop_requests(job.key)
        self._reconciler.queue.add(job.key)

    def _pod_changed(self, event: Event) -> None:
        pod = event.object
        assert pod is not None
        key = _job_of(pod)
        if key is None:
            return
        if event.change is Change.DELETED:
            self._pod_gone(key, pod)
        delay = GATHER_SECONDS + GATHER_SECONDS_PER_POD * len(self._pods.by_index("job", str(key)))
        self._reconciler.queue.add_after(key, delay)

    def _pod_gone(self, key: Key, pod: Object) -> None:
        """Only of pods that were not ours to delete, and of jobs that may mind."""
        member = members.read(pod.read(core.Pod))
        job = self._jobs.get(key)
        if job is None or member.is_out_of_sync or owner_of(pod, volcano.JOB).uid != job.uid:
            return
        evicted = noticing.of_pod(Happening.POD_EVICTED, member, self._clock.now())
        self._requests.setdefault(key, deque()).append(evicted)

    def _group_changed(self, event: Event) -> None:
        group = event.object
        assert group is not None
        owners = [owner.name for owner in group.meta.owner_references if owner.kind == volcano.JOB.name]
        name = owners[-1] if owners else group.key.name
        self._reconciler.queue.add(Key(group.key.namespace, name))

    def _queue_changed(self, event: Event) -> None:
        assert event.object is not None
        for name in self._obstacles.queues_concerned(event):
            for job in self._jobs.by_index("queue", name):
                self._reconciler.queue.add(job.key)

    def _came(self, event: Event, awaited: str) -> None:
        """`awaited`: the reason of jobs that wait for such an object."""
        if event.change is Change.ADDED:
            for job in self._jobs.items():
                if job.read(volcano.Job).status.state.reason == awaited:
                    self._reconciler.queue.add(job.key)

    def _commanded(self, key: Key, uid: str, action: str, command: Key) -> bool:
        job = self._jobs.get(key)
        if job is None or (uid and uid != job.uid):
            return False
        request = Request(event=Happening.COMMAND_ISSUED, action=action, command=command, at=self._clock.now())
        self._requests.setdefault(key, deque()).append(request)
        self._reconciler.queue.add(key)
        return True

    # What is done about it

    async def _reconcile(self, key: Key) -> float | None:
        delay = await self._current.wait_for(key)
        if delay:
            return delay
        job = self._jobs.get(key)
        if job is None:
            self._current.forget(key)
            self._drop_requests(key)
            return None
        seen, loaded = self._look(job)
        if seen.is_forwarded and names.JOB_FORWARDING not in (job.meta.annotations or {}):
            await self._current.write(key, [_forwarded(job)])
            return 0.0
        requests = list(self._requests.get(key, ()))
        decided = plan(seen, requests, self._clock.now())
        try:
            await self._carrier.carry_out(job, seen, loaded, decided)
        except PluginError as error:
            self._events.record(job, "Warning", PLUGIN_ERROR, str(error))
            raise
        is_shorter = self._forget(key, decided.handled)
        return 0.0 if is_shorter and key in self._requests else decided.again_after

    def _look(self, job: Object) -> tuple[Seen, Loaded]:
        view = job.read(volcano.Job)
        pods = [pod for pod in self._pods.by_index("job", str(job.key)) if owner_of(pod, volcano.JOB).uid == job.uid]
        loaded, obstacle = _loaded(view)
        queue = self._queues.get(Key("", view.spec.queue or DEFAULT_QUEUE))
        seen = Seen(
            view,
            [pod.read(core.Pod) for pod in sorted(pods, key=lambda pod: pod.key)],
            self._group_of(job),
            {found.key.name: found.read(scheduling.PriorityClass).value for found in self._classes.items()},
            obstacle or self._obstacles.before(view),
            is_forwarded=queue is not None and bool(queue.read(volcano.Queue).spec.extend_clusters),
        )
        return seen, loaded

    def _group_of(self, job: Object) -> volcano.PodGroup | None:
        """Also where it bears only the job's name, as Volcano's older versions made it: if it is this job's at all."""
        for name in (names.group_name(job.read(volcano.Job)), job.key.name):
            found = self._groups.get(Key(job.key.namespace, name))
            if found is not None and _is_owned(found, job):
                return found.read(volcano.PodGroup)
        return None

    def _drop_requests(self, key: Key) -> None:
        """The job is gone."""
        for request in self._requests.pop(key, ()):
            self._finish(request)

    def _finish(self, request: Request) -> None:
        if request.command is not None:
            self._commands.finished(request.command)

    def _forget(self, key: Key, handled: Iterable[Request]) -> bool:
        """Whether there was anything to forget."""
        waiting = self._requests.get(key, deque())
        before = len(waiting)
        for request in handled:
            if request in waiting:
                waiting.remove(request)
                self._finish(request)
        if before and not waiting:
            del self._requests[key]
        return len(waiting) < before


def _is_owned(group: Object, job: Object) -> bool:
    """Not by a job of another kind that has the same name, nor by an earlier one of this name. A group that nobody owns
    was made for the job by hand."""
    owner = next((owner for owner in group.meta.owner_references if owner.controller), None)
    return owner is None or owner.uid == job.uid


def _loaded(job: volcano.Job) -> tuple[Loaded, Told | None]:
    try:
        return load(job), None
    except UnknownPlugin as error:
        return Loaded((), ()), Told("Warning", PLUGIN_ERROR, str(error))


def _forwarded(job: Object) -> Patch:
    body = {"metadata": {"annotations": {names.JOB_FORWARDING: "true"}}}
    return Patch(volcano.JOB, job.key, body, options=OPTIONS)


def _job_of(pod: Object) -> Key | None:
    owner = owner_of(pod, volcano.JOB)
    return Key(pod.key.namespace, owner.name) if owner.uid and members.job_of(pod.meta) else None
