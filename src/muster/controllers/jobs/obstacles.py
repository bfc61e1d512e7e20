"""What keeps a Volcano Job from beginning: its queue, or a priority class or claim that it names.

The server refuses a user's job for these at once; but jobs that a CronJob or a JobFlow makes do not pass there, and
queues are closed and deleted while jobs wait for them.
"""

from collections.abc import Iterator

from muster.api import volcano
from muster.api.kueue import sizing
from muster.api.objects import Key
from muster.api.volcano import admission
from muster.api.volcano.defaults import DEFAULT_QUEUE
from muster.api.volcano.queue_tree import QueueTree, parent_of
from muster.api.volcano.waiting import CLAIM_MISSING, CLASS_MISSING, QUEUE_CLOSED, QUEUE_MISSING
from muster.jobs.volcano import Told, claiming
from muster.quota.integrations.ranking import BUILT_IN
from muster.runtime.informers import Informer
from muster.store.protocol import Change, Event


class Obstacles:
    def __init__(self, queues: Informer, classes: Informer, claims: Informer) -> None:
        self._queues = queues
        self._classes = classes
        self._claims = claims
        self._known: dict[str, str | None] = {}
        """States of the queues, by name: the rest of what their status says changes all the time."""
        self._tree: QueueTree | None = None

    def queues_concerned(self, event: Event) -> Iterator[str]:
        """Queues whose jobs may begin now, or may not any longer."""
        assert event.object is not None
        queue = event.object.read(volcano.Queue)
        name, state = event.object.key.name, queue.status.state
        if event.change is Change.MODIFIED and self._known.get(name) == state:
            return
        self._tree = None
        if event.change is Change.DELETED:
            self._known.pop(name, None)
        else:
            self._known[name] = state
        yield name
        yield parent_of(queue)

    def before(self, job: volcano.Job) -> Told | None:
        queue = job.spec.queue or DEFAULT_QUEUE
        if self._queues.get(Key("", queue)) is None and queue != DEFAULT_QUEUE:
            message = f'there is no queue "{queue}": create it, or name another in a new job'
            return Told("Warning", QUEUE_MISSING, message)
        namespace = job.metadata.namespace
        missing = claiming.missing(job, lambda name: self._claims.get(Key(namespace, name)) is not None)
        if missing is not None:
            message = f"pvc {missing} is not found, the job will be in the Pending state until the PVC is created"
            return Told("Warning", CLAIM_MISSING, message)
        if not _is_looked_at(job):
            return None
        classes = [*BUILT_IN, *(found.key.name for found in self._classes.items())]
        if self._tree is None:
            self._tree = QueueTree.of(found.read(volcano.Queue) for found in self._queues.items())
        problem = next(iter(admission.check_job(job, self._tree, classes)), None)
        if problem is None:
            return None
        reason = QUEUE_CLOSED if problem.path == "spec.queue" else CLASS_MISSING
        return Told("Warning", reason, f"{problem.path}: {problem.message}")


def _is_looked_at(job: volcano.Job) -> bool:
    """As long as it waits for quota; where nobody asks for quota, if it did not come from a user. What has been let in
    begins, whatever becomes of its queue."""
    meta = job.metadata
    if sizing.is_held(meta.annotations):
        return True
    return sizing.read_sizes(meta.annotations) is None and any(owner.controller for owner in meta.owner_references)
