"""Takes the start time of suspended batch Jobs back, on clusters whose own controller runs them.

Kubernetes lets a suspended Job be sent elsewhere (another node selector) only while it has no start time, and leaves it
to whoever suspends to remove that. Quota takes its absence as the sign that no more pods of the Job will come (see
`quota.integrations.batch_job`), so it is removed only once the Job's controller has seen the suspension.
"""

import contextlib

from muster.api import batch, conditions, errors
from muster.api.objects import Key, Object
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.store.protocol import Change, Event, Options, Patch, Revision, Selection, Store, write_one

_OPTIONS = Options(manager="muster-jobs")


class StartTimeController:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run(self) -> None:
        jobs = Informer(self._store, Selection(batch.JOB), clock=self._clock)

        async def reconcile(key: Key) -> None:
            job = jobs.get(key)
            if job is not None and is_due(job):
                body, based_on = {"status": {"startTime": None}}, Revision(job.revision)
                patch = Patch(batch.JOB, key, body, subresource="status", based_on=based_on, options=_OPTIONS)
                with contextlib.suppress(errors.NotFound):
                    await write_one(self._store, patch)

        reconciler = Reconciler("start times", reconcile, clock=self._clock)

        def heard(event: Event) -> None:
            if event.change is not Change.DELETED and event.object is not None and is_due(event.object):
                reconciler.queue.add(event.object.key)

        jobs.on_event(heard)
        await keep("start times", [jobs], reconciler.run)


def is_due(found: Object) -> bool:
    job = found.read(batch.Job)
    suspended = conditions.find(job.status.conditions, "Suspended")
    return (
        job.spec.suspend is True
        and job.status.start_time is not None
        and not job.status.active
        and not job.status.terminating
        and suspended is not None
        and suspended.status == conditions.TRUE
    )
