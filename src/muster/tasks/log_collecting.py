"""Lines of tasks' pods that do not ship their own, fetched from the agents that keep them.

A pod that has ended without a single line in its task's log could not even start what would have shipped it: what it
said instead is the only clue there is. A pod that is marked is looked at again and again, while it runs.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Final, Protocol

from muster.agent.logs import LogOptions
from muster.api import core, errors
from muster.api.meta import Instant
from muster.api.muster.names import ALLOCATION_LABEL, RANK_LABEL, TASK_LABEL
from muster.api.objects import Key, Object
from muster.api.selectors import LabelSelector, Operator, Requirement
from muster.records import Database
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.store.protocol import Change, Event, Selection, Store
from muster.tasks import log_lines, log_records
from muster.tasks.log_lines import Level, Line, Origin, Piece
from muster.tasks.logs import TaskLogs

COLLECTED: Final = "muster.dev/collect-logs"
"""An annotation: `true` on pods whose output is to be fetched while they run."""
_AGAIN_SECONDS: Final = 1.0
_WORKERS: Final = 8
_MOST_LINES: Final = 5000
_OVER: Final = frozenset({"Succeeded", "Failed"})
_OF_TASKS: Final = LabelSelector((Requirement(TASK_LABEL, Operator.EXISTS, frozenset()),))


class PodLogs(Protocol):
    """`server.logs.NodeLogs` has it."""

    def open(self, pod: Object, container: str, options: LogOptions) -> AsyncIterator[bytes]: ...


class LogCollector:
    """`run` must be kept running."""

    def __init__(self, store: Store, clock: Clock, database: Database, logs: TaskLogs, pod_logs: PodLogs) -> None:
        self._database = database
        self._logs = logs
        self._pod_logs = pod_logs
        self._pods = Informer(store, Selection(core.POD, labels=_OF_TASKS), clock=clock)
        self._reconciler: Reconciler[Key] = Reconciler("logs of pods", self._collect, clock=clock, workers=_WORKERS)
        self._pods.on_event(self._heard)

    async def run(self) -> None:
        """For ever."""
        await keep("logs of pods", [self._pods], self._reconciler.run)

    def _heard(self, event: Event) -> None:
        pod = event.object
        if pod is not None and event.change is not Change.DELETED and (_is_over(pod) or _is_marked(pod)):
            self._reconciler.queue.add(pod.key)

    async def _collect(self, key: Key) -> float | None:
        pod = self._pods.get(key)
        if pod is None:
            return None
        is_over, is_marked = _is_over(pod), _is_marked(pod)
        task = pod.meta.labels.get(TASK_LABEL, "") if pod.meta.labels else ""
        last = await self._database.read(lambda connection: log_records.newest_of(connection, task, key.name))
        if last is None or is_marked:
            await self._fetch(pod, task, last)
        return _AGAIN_SECONDS if is_marked and not is_over else None

    async def _fetch(self, pod: Object, task: str, last: int | None) -> None:
        labels = pod.meta.labels or {}
        spec = pod.read(core.Pod).spec
        origin = Origin(labels.get(ALLOCATION_LABEL, ""), pod.key.name, spec.node_name or "", "agent")
        rank = labels.get(RANK_LABEL, "")
        since = None if last is None else Instant(last / 1_000_000)
        options = LogOptions(timestamps=True, since=since, tail=_MOST_LINES if last is None else None)
        for container in [*spec.init_containers, *spec.containers]:
            try:
                text = b"".join([chunk async for chunk in self._pod_logs.open(pod, container.name, options)])
            except (errors.BadRequest, errors.NotFound):
                continue  # it has not been started, or its node is gone
            lines = [line for line in _lines(text, int(rank) if rank.isdigit() else None) if line.at > (last or 0)]
            if lines:
                await self._logs.append(task, [Piece(origin, lines)])


def _lines(text: bytes, rank: int | None) -> Iterator[Line]:
    for line in text.decode("utf-8", "replace").split("\n"):
        stamp, _, said = line.partition(" ")
        try:
            at = log_lines.micros(stamp)
        except ValueError:
            continue  # the rest of a line that was cut
        yield Line(at, log_lines.cut(f"{said}\n"), Level.UNSPECIFIED, rank)


def _is_over(pod: Object) -> bool:
    return pod.read(core.Pod).status.phase in _OVER


def _is_marked(pod: Object) -> bool:
    return (pod.meta.annotations or {}).get(COLLECTED) == "true"
