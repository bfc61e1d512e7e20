"""Queues of both dialects, Volcano's `Queue` and Kueue's `ClusterQueue`: look at them, open, close, make, delete."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from muster.api import errors, raw
from muster.api.raw import Document
from muster.sdk import finding, operating, reading
from muster.sdk.client import Client
from muster.sdk.resources import CLUSTER_QUEUES, LOCAL_QUEUES, QUEUES, Resource
from muster.sdk.summaries import Summary

VOLCANO, CLUSTER = "volcano", "cluster"
STANDS_FOR_LABEL = "muster.dev/volcano-queue"
"""On a ClusterQueue that a controller made for a Volcano queue: the latter is what users work with."""

_KINDS: Mapping[str, Resource] = {VOLCANO: QUEUES, CLUSTER: CLUSTER_QUEUES}
_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("volcano", "queue", "queues", "q", "vcqueue"), VOLCANO),
    **dict.fromkeys(("cluster", "clusterqueue", "clusterqueues", "cq"), CLUSTER),
}
_COMMANDS_NAMESPACE = "default"
"""Where orders to queues go, which have no namespace of their own."""


@dataclass(frozen=True, slots=True)
class Queue:
    kind: str
    document: Document

    @property
    def name(self) -> str:
        return reading.text(self.document, "metadata", "name")

    @property
    def shown(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def resource(self) -> Resource:
        return _KINDS[self.kind]

    @property
    def parent(self) -> str:
        return reading.text(self.document, "spec", "parent" if self.kind == VOLCANO else "cohortName")

    @property
    def state(self) -> str:
        """Open, Closing or Closed; of a ClusterQueue that cannot work, the reason."""
        if self.kind == VOLCANO:
            return reading.text(self.document, "status", "state") or "Open"
        stop = reading.text(self.document, "spec", "stopPolicy")
        if stop in ("Hold", "HoldAndDrain"):
            return "Closed" if not self.holding or stop == "Hold" else "Closing"
        for condition in reading.objects(self.document, "status", "conditions"):
            if condition.get("type") == "Active" and condition.get("status") == "False":
                return reading.text(condition, "reason") or "Inactive"
        return "Open"

    @property
    def waiting(self) -> int:
        status = reading.section(self.document, "status")
        if self.kind == VOLCANO:
            return _count(status, "pending") + _count(status, "inqueue")
        return _count(status, "pendingWorkloads")

    @property
    def holding(self) -> int:
        """Jobs that have a share of it now."""
        status = reading.section(self.document, "status")
        return _count(status, "running" if self.kind == VOLCANO else "reservingWorkloads")


@dataclass(frozen=True, slots=True)
class NewQueue:
    """A Volcano queue to make. Amounts by resource: `{"cpu": "8", "nvidia.com/gpu": "4"}`."""

    name: str
    weight: int | None = None
    parent: str = ""
    capability: Mapping[str, str] = field(default_factory=dict)
    deserved: Mapping[str, str] = field(default_factory=dict)
    guarantee: Mapping[str, str] = field(default_factory=dict)
    reclaimable: bool | None = None
    priority: int | None = None

    def document(self) -> Document:
        spec: Document = {
            "weight": self.weight,
            "parent": self.parent or None,
            "capability": dict(self.capability) or None,
            "deserved": dict(self.deserved) or None,
            "guarantee": {"resource": dict(self.guarantee)} if self.guarantee else None,
            "reclaimable": self.reclaimable,
            "priority": self.priority,
        }
        return {
            "apiVersion": QUEUES.api_version,
            "kind": QUEUES.kind,
            "metadata": {"name": self.name},
            "spec": {name: value for name, value in spec.items() if value is not None},
        }


class AmbiguousQueue(errors.BadRequest):
    def __init__(self, name: str, found: Sequence[Queue]) -> None:
        super().__init__(f"both kinds of queues have a {name!r}; write {' or '.join(entry.shown for entry in found)}")
        self.found = tuple(found)


def listed(client: Client) -> list[Queue]:
    """Both kinds by name; a ClusterQueue that stands for a Volcano queue is left out."""
    found = [Queue(kind, document) for kind, resource in _KINDS.items() for document in _list(client, resource)]
    own = [queue for queue in found if not reading.text(queue.document, "metadata", "labels", STANDS_FOR_LABEL)]
    return sorted(own, key=lambda queue: (queue.name, queue.kind))


def find(client: Client, what: str) -> Queue:
    """By name, or by `volcano/NAME`, `cluster/NAME`. Raises NotFound, AmbiguousQueue, BadRequest."""
    word, slash, name = what.rpartition("/")
    if slash and word.lower() not in _WORDS:
        raise errors.BadRequest(f"{word!r} is no kind of queue; write volcano/{name} or cluster/{name}")
    kinds = [_WORDS[word.lower()]] if slash else list(_KINDS)
    found = []
    for kind in kinds:
        try:
            found.append(Queue(kind, client.get(_KINDS[kind], name)))
        except errors.NotFound:
            continue
    if len(found) > 1:
        raise AmbiguousQueue(name, found)
    if not found:
        raise errors.NotFound(f"no queue named {name!r}; `muster queue ls` lists what there is")
    return found[0]


def jobs_in(client: Client, queue: Queue) -> list[Summary]:
    """Jobs in it that are not over, of all namespaces; those of a ClusterQueue came through its LocalQueues."""
    doors = {("", queue.name)}  # by its own name from anywhere
    if queue.kind == CLUSTER:
        for entry in _list(client, LOCAL_QUEUES):
            if reading.text(entry, "spec", "clusterQueue") == queue.name:
                doors.add((reading.text(entry, "metadata", "namespace"), reading.text(entry, "metadata", "name")))
    found = finding.summarise(client, None)
    return [job for job in found if not job.is_over and {(job.namespace, job.queue), ("", job.queue)} & doors]


def create(client: Client, queue: NewQueue) -> Queue:
    """Raises Invalid, AlreadyExists."""
    return Queue(VOLCANO, client.create(queue.document(), QUEUES))


def close(client: Client, queue: Queue, *, drain: bool = False) -> None:
    """No more jobs are let in. What runs goes on, unless `drain` (of a ClusterQueue) ends it. Raises BadRequest."""
    if queue.kind == CLUSTER:
        client.patch(CLUSTER_QUEUES, queue.name, {"spec": {"stopPolicy": "HoldAndDrain" if drain else "Hold"}})
    elif drain:
        raise errors.BadRequest(f"--drain is for ClusterQueues; close {queue.shown} and stop its jobs yourself")
    else:
        operating.command(client, QUEUES, queue.document, "CloseQueue", _COMMANDS_NAMESPACE)


def open_again(client: Client, queue: Queue) -> None:
    if queue.kind == CLUSTER:
        client.patch(CLUSTER_QUEUES, queue.name, {"spec": {"stopPolicy": "None"}})
    else:
        operating.command(client, QUEUES, queue.document, "OpenQueue", _COMMANDS_NAMESPACE)


def delete(client: Client, queue: Queue) -> None:
    """Raises Forbidden or Invalid where the server keeps it: `default`, `root`, one with children."""
    client.delete(queue.resource, queue.name)


def refresh(client: Client, queue: Queue) -> Queue:
    return Queue(queue.kind, client.get(queue.resource, queue.name))


def _list(client: Client, resource: Resource) -> Sequence[Document]:
    try:
        return client.list(resource)
    except errors.NotFound:
        return []


def _count(status: Document, name: str) -> int:
    found = raw.dig(status, name)
    return found if isinstance(found, int) else 0
