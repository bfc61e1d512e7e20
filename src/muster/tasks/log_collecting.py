"""Lines of tasks' pods that do not ship their own, fetched from the agents that keep them.

A pod that has ended without a single line in its task's log could not even start what would have shipped it: what it
said instead is the only clue there is. A pod that is marked is looked at again and again, while it runs.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
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
_MOST_BYTES: Final = 16 * 1024 * 1024
"""At once."""
_OVER: Final = frozenset({"Succeeded", "Failed"})
_OF_TASKS: Final = Requirement(TASK_LABEL, Operator.EXISTS, frozenset())


class PodLogs(Protocol):
    """`server.logs.NodeLogs` has it."""

    def open(self, pod: Object, container: str, options: LogOptions) -> AsyncIterator[bytes]: ...


class LogCollector:
    """`run` must be kept running. `ours`: which of the pods of tasks; others are of other servers."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        database: Database,
        logs: TaskLogs,
        pod_logs: PodLogs,
        ours: Sequence[Requirement] = (),
    ) -> None:
        self._database = database
        self._logs = logs
        self._pod_logs = pod_logs
        self._reached: dict[Key, dict[str, int]] = {}
        """Of pods that are looked at again and again, by container: the time of the last line that was kept."""
        self._pods = Informer(store, Selection(core.POD, labels=LabelSelector((_OF_TASKS, *ours))), clock=clock)
        self._reconciler: Reconciler[Key] = Reconciler("logs of pods", self._collect, clock=clock, workers=_WORKERS)
        self._pods.on_event(self._heard)

    async def run(self) -> None:
        """For ever."""
        await keep("logs of pods", [self._pods], self._reconciler.run)

    def _heard(self, event: Event) -> None:
        pod = event.object
        if pod is None:
            return
        if event.change is Change.DELETED:
            self._reached.pop(pod.key, None)
        elif _is_over(pod) or _is_marked(pod):
            self._reconciler.queue.add(pod.key)

    async def _collect(self, key: Key) -> float | None:
        pod = self._pods.get(key)
        if pod is None:
            return None
        is_over, is_marked, has_more = _is_over(pod), _is_marked(pod), False
        task = pod.meta.labels.get(TASK_LABEL, "") if pod.meta.labels else ""
        if is_marked or await self._newest(task, key.name) is None:
            spec = pod.read(core.Pod).spec
            containers = [container.name for container in (*spec.init_containers, *spec.containers)]
            for container in containers:
                # Each has a log of its own, in which one writes while another is silent.
                source = key.name if len(containers) == 1 else f"{key.name}/{container}"
                has_more |= await self._fetch(pod, task, container, source)
        return _AGAIN_SECONDS if has_more or (is_marked and not is_over) else None

    async def _newest(self, task: str, source: str) -> int | None:
        return await self._database.read(lambda connection: log_records.newest_of(connection, task, source))

    async def _fetch(self, pod: Object, task: str, container: str, source: str) -> bool:
        """Whether there is more. `source`: what its lines are known by."""
        reached = self._reached.setdefault(pod.key, {})
        last = reached[container] if container in reached else await self._newest(task, source)
        since = None if last is None else Instant(last / 1_000_000)
        most = _MOST_LINES if last is None else None
        options = LogOptions(timestamps=True, since=since, tail=most, limit_bytes=_MOST_BYTES)
        try:
            text = b"".join([chunk async for chunk in self._pod_logs.open(pod, container, options)])
        except (errors.BadRequest, errors.NotFound):
            return False  # it has not been started, or its node is gone
        has_more = len(text) >= _MOST_BYTES
        if has_more:
            text = text[: text.rfind(b"\n") + 1]  # the last line may have been cut; it comes with the rest
        labels = pod.meta.labels or {}
        rank = labels.get(RANK_LABEL, "")
        lines = [line for line in _lines(text, int(rank) if rank.isdigit() else None) if line.at > (last or 0)]
        if lines:
            node = pod.read(core.Pod).spec.node_name or ""
            origin = Origin(labels.get(ALLOCATION_LABEL, ""), source, node, "agent")
            await self._logs.append(task, [Piece(origin, lines)])
            reached[container] = max(line.at for line in lines)
        return has_more and bool(lines)


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
