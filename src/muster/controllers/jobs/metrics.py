"""What Volcano measures of its queues and jobs, under its names.

Counted from what the store shows; what queues deserve, and could use at most, the quota engine says, in which they are
ClusterQueues and Cohorts.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from muster.api import core, volcano
from muster.api.core.requests import pod_requests
from muster.api.objects import Key, Object
from muster.api.volcano.defaults import DEFAULT_QUEUE, ROOT_QUEUE
from muster.api.volcano.grouping import GROUP_ANNOTATION
from muster.api.volcano.queue_naming import quota_name
from muster.api.volcano.queue_tree import parent_of
from muster.jobs.queues.measuring import Book, Books
from muster.quota.amounts import CPU
from muster.quota.amounts import amounts as read_amounts
from muster.quota.engine import Engine
from muster.quota.tree import Node
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.metrics import Family, Registry, Sample
from muster.store.protocol import Change, Event, Selection, Store

PREFIX: Final = "volcano_"
LATENCY_BUCKETS: Final = tuple(5.0 * 2**power for power in range(15))
"""Milliseconds: up to somewhat more than a minute."""
MEMORY: Final = "memory"
_FINISHED: Final = ("Succeeded", "Failed")
_PHASES: Final = ("Inqueue", "Pending", "Running", "Unknown", "Completed")
_ENDS: Final = {"Completed": "completed", "Failed": "failed"}
_FLOW_ENDS: Final = {"Succeed": "succeed", "Failed": "failed"}
_USED: Final = frozenset({"allocated", "request", "inqueue"})
_AMOUNTS: Final[Mapping[str, str]] = {
    "allocated": "What the pods of the queue hold on their nodes",
    "request": "What the pods of the queue ask for, placed or not",
    "deserved": "What the queue may claim, from others too",
    "capacity": "The most that the queue was allowed",
    "real_capacity": "The most that the queue could use, with nothing used elsewhere",
    "inqueue": "What pod groups need that may start and have not",
}


class _Figures(NamedTuple):
    """Of one queue, with those below it. Amounts: cpu in thousandths, everything else in units."""

    amounts: Mapping[str, Mapping[str, int]]
    """As `_AMOUNTS` names them."""
    weight: int

    @property
    def share(self) -> float:
        """Of the resource of which it holds the largest part of what it deserves."""
        held, deserved = self.amounts["allocated"], self.amounts["deserved"]
        parts = (held.get(name, 0) / due if due else float(held.get(name, 0) > 0) for name, due in deserved.items())
        return max(parts, default=0.0)

    @property
    def is_overused(self) -> bool:
        held = self.amounts["allocated"]
        return any(held.get(name, 0) > due for name, due in self.amounts["deserved"].items())


class JobMetrics:
    """`engine`: of the present run."""

    def __init__(self, store: Store, clock: Clock, registry: Registry, engine: Callable[[], Engine]) -> None:
        self._store = store
        self._clock = clock
        self._engine = engine
        self._books = Books()
        self._queues: dict[str, volcano.Queue] = {}
        self._ends = {
            phase: registry.counter(
                f"{PREFIX}job_{name}_phase_count", f"How often the job has {name}", ("job_name", "queue_name")
            )
            for phase, name in _ENDS.items()
        }
        self._flow_ends = {
            phase: registry.counter(
                f"{PREFIX}jobflow_{name}_phase_count", f"Job flows that came to {phase}", ("jobflow_namespace",)
            )
            for phase, name in _FLOW_ENDS.items()
        }
        self._latency = registry.histogram(
            f"{PREFIX}controller_job_to_pod_creation_latency_milliseconds",
            "From when a job was made until each of its pods was",
            (),
            LATENCY_BUCKETS,
        )
        registry.collect(self._families)

    async def run(self) -> None:
        self._books, self._queues = Books(), {}
        run = _Run(self)
        kinds = (volcano.QUEUE, volcano.POD_GROUP, volcano.JOB, volcano.JOB_FLOW, core.POD)
        informers = [Informer(self._store, Selection(kind), clock=self._clock) for kind in kinds]
        handlers = (self._queue_changed, self._group_changed, run.job_changed, run.flow_changed, run.pod_changed)
        for informer, handler in zip(informers, handlers, strict=True):
            informer.on_event(handler)
        await keep("job metrics", informers, run.begin)

    # What happens

    def _queue_changed(self, event: Event) -> None:
        assert event.object is not None
        name = event.object.key.name
        if event.change is Change.DELETED:
            self._queues.pop(name, None)
        else:
            self._queues[name] = event.object.read(volcano.Queue)

    def _group_changed(self, event: Event) -> None:
        found = event.object
        assert found is not None
        if event.change is Change.DELETED:
            self._books.remove_group(str(found.key))
        else:
            view = found.read(volcano.PodGroup)
            minimum = _amounts(view.spec.min_resources)
            self._books.set_group(str(found.key), view.spec.queue or DEFAULT_QUEUE, view.status.phase, minimum)

    def pod_changed(self, found: Object, *, is_gone: bool) -> None:
        group = (found.meta.annotations or {}).get(GROUP_ANNOTATION)
        if not group:
            return
        view = found.read(core.Pod)
        if is_gone or view.status.phase in _FINISHED:
            self._books.remove_pod(found.uid)
            return
        is_placed = bool(view.spec.node_name)
        if self._books.is_placed(found.uid) is not is_placed:
            asked = {**pod_requests(view.spec), "pods": 1}
            self._books.set_pod(found.uid, str(Key(found.key.namespace, group)), asked, is_placed=is_placed)

    def job_ended(self, found: Object, phase: str) -> None:
        queue = found.read(volcano.Job).spec.queue or DEFAULT_QUEUE
        self._ends[phase].add(str(found.key), queue)

    def job_removed(self, found: Object) -> None:
        for counter in self._ends.values():
            counter.forget(job_name=str(found.key))

    def flow_ended(self, found: Object, phase: str) -> None:
        self._flow_ends[phase].add(found.key.namespace)

    def pod_made(self, seconds: float) -> None:
        self._latency.observe(1000.0 * max(0.0, seconds))

    def now(self) -> float:
        return self._clock.monotonic()

    # What is told

    def _families(self) -> Iterator[Family]:
        for phase in _PHASES:
            counts = [((name,), self._book(name).phases[phase]) for name in self._queues]
            help = f"Pod groups of the queue that are {phase}"
            yield Family(f"{PREFIX}queue_pod_group_{phase.lower()}_count", "gauge", help, ("queue_name",), counts)
        figures = self._figures()
        for name, help in _AMOUNTS.items():
            yield from _resources(name, help, {queue: found.amounts[name] for queue, found in figures.items()})
        for name, help, read in _SINGLE:
            samples = [((queue,), read(found)) for queue, found in figures.items()]
            yield Family(f"{PREFIX}queue_{name}", "gauge", help, ("queue_name",), samples)

    def _book(self, queue: str) -> Book:
        return self._books.queues.get(queue) or _EMPTY

    def _figures(self) -> dict[str, _Figures]:
        self._engine().state.settle()
        summed = {name: Book() for name in self._queues}
        for name in self._queues:
            book = self._book(name)
            for above in (name, *self._above(name)):
                if above in summed:
                    summed[above].allocated.update(book.allocated)
                    summed[above].request.update(book.request)
                    summed[above].inqueue.update(book.inqueue)
        found = {}
        for name, view in self._queues.items():
            deserved, most = self._limits(name, view)
            amounts = {
                "allocated": summed[name].allocated,
                "request": summed[name].request,
                "deserved": deserved,
                "capacity": _amounts(view.spec.capability),
                "real_capacity": most,
                "inqueue": summed[name].inqueue,
            }
            found[name] = _Figures(amounts, view.spec.weight or 1)
        return found

    def _above(self, name: str) -> Iterator[str]:
        seen = {name}
        while name != ROOT_QUEUE and name in self._queues:
            name = parent_of(self._queues[name])
            if name in seen:
                return
            seen.add(name)
            yield name

    def _limits(self, name: str, view: volcano.Queue) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """What it deserves, and what it could use at most; what it says itself where quota knows no bound."""
        tree = self._engine().state.tree
        node = tree.queues.get(quota_name(name)) or tree.cohorts.get(quota_name(name))
        if node is None or not node.subtree:
            return _amounts(view.spec.deserved), _amounts(view.spec.capability)
        most: Counter[str] = Counter()
        for what in node.subtree:
            most[what.resource] += node.potentially_available(what)
        return _owned(node), most


class _Run:
    """Events of one run. What was there before it began has happened before: it is not counted."""

    def __init__(self, metrics: JobMetrics) -> None:
        self._metrics = metrics
        self._has_begun = False
        self._phases: dict[str, str | None] = {}  # of jobs and flows, by uid
        self._made: dict[str, float] = {}  # when jobs came, by uid

    async def begin(self) -> None:
        self._has_begun = True

    def job_changed(self, event: Event) -> None:
        found = event.object
        assert found is not None
        if event.change is Change.DELETED:
            self._made.pop(found.uid, None)
            self._phases.pop(found.uid, None)
            self._metrics.job_removed(found)
            return
        if event.change is Change.ADDED and self._has_begun:
            self._made[found.uid] = self._metrics.now()
        phase = found.read(volcano.Job).status.state.phase
        if self._comes_to(found.uid, phase, _ENDS):
            self._metrics.job_ended(found, phase or "")

    def flow_changed(self, event: Event) -> None:
        found = event.object
        assert found is not None
        phase = found.read(volcano.JobFlow).status.state.phase
        if event.change is Change.DELETED:
            self._phases.pop(found.uid, None)
        elif self._comes_to(found.uid, phase, _FLOW_ENDS):
            self._metrics.flow_ended(found, phase or "")

    def pod_changed(self, event: Event) -> None:
        found = event.object
        assert found is not None
        if event.change is Change.ADDED:
            made = (self._made.get(owner.uid) for owner in found.meta.owner_references if owner.controller)
            since = next(made, None)
            if since is not None:
                self._metrics.pod_made(self._metrics.now() - since)
        self._metrics.pod_changed(found, is_gone=event.change is Change.DELETED)

    def _comes_to(self, uid: str, phase: str | None, ends: Mapping[str, str]) -> bool:
        before = self._phases.get(uid)
        self._phases[uid] = phase
        return self._has_begun and phase in ends and phase != before


_EMPTY: Final = Book()
_SINGLE: Final[tuple[tuple[str, str, Callable[[_Figures], float]], ...]] = (
    ("share", "The largest part, of what it deserves, that the queue holds", lambda found: found.share),
    ("weight", "The queue's weight among its siblings", lambda found: found.weight),
    ("overused", "1 where the queue holds more than it deserves", lambda found: float(found.is_overused)),
)


def _resources(name: str, help: str, by_queue: Mapping[str, Mapping[str, int]]) -> Iterator[Family]:
    """What is used is told as 0 where nothing is; a bound that was not set is not told."""
    for suffix, resource in (("milli_cpu", CPU), ("memory_bytes", MEMORY)):
        samples = [
            ((queue,), amounts.get(resource, 0))
            for queue, amounts in by_queue.items()
            if name in _USED or resource in amounts
        ]
        yield Family(f"{PREFIX}queue_{name}_{suffix}", "gauge", help, ("queue_name",), samples)
    others: list[Sample] = [
        ((queue, resource), amount)
        for queue, amounts in by_queue.items()
        for resource, amount in amounts.items()
        if resource not in (CPU, MEMORY)
    ]
    yield Family(f"{PREFIX}queue_{name}_scalar_resources", "gauge", help, ("queue_name", "resource"), others)


def _owned(node: Node) -> Counter[str]:
    """By the queue, or by all below the cohort and itself."""
    found: Counter[str] = Counter()
    for what, quota in node.quotas.items():
        found[what.resource] += quota.nominal
    for child in node.children:
        found.update(_owned(child))
    return found


def _amounts(listed: Mapping[str, str | int | float] | None) -> Mapping[str, int]:
    """What is no amount does not count: validation keeps it out, but not out of what was there before."""
    try:
        return read_amounts(listed)
    except ValueError:
        return {}
