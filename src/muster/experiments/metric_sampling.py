"""What the pods of trials use, brought in from the agents as metrics: groups `cpu`, `memory`, `gpu`, `disk`, `network`.

Each node that runs a trial is asked now and then; one that does not answer is passed over. A trial has them unless its
experiment says `profiling: {enabled: false}` itself.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from sqlalchemy import Connection, select

from muster.agent.sampling import Figures, Samples
from muster.api import core, raw
from muster.api.errors import ApiError
from muster.api.meta import Instant
from muster.api.muster.names import ALLOCATION_LABEL, TASK_LABEL, TASK_TYPE_LABEL
from muster.api.objects import Object
from muster.api.selectors import LabelSelector, Operator, Requirement
from muster.experiments.metric_intake import MetricIntake
from muster.experiments.metric_reports import SYSTEM, Report
from muster.experiments.states import TrialId
from muster.records import Database
from muster.records.tables_experiments import EXPERIMENTS, TRIAL_TASKS, TRIALS
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.store.protocol import Selection, Store
from muster.tasks.task_config import TaskType

_MOST_AT_ONCE: Final = 32
_OF_TRIALS: Final = LabelSelector((Requirement(TASK_TYPE_LABEL, Operator.IN, frozenset({TaskType.TRIAL.value})),))
_log = logging.getLogger(__name__)


class NodeSamples(Protocol):
    """`server.node_samples` has it."""

    async def of(self, node: str) -> Samples:
        """By pod and group. Raises ApiError."""
        ...


@dataclass(frozen=True, slots=True)
class _Part:
    """A pod of a run."""

    uid: str
    node: str
    task: str
    run: int


class SampleCollector:
    """`run` must be kept running. `seconds`: between one sample and the next."""

    def __init__(
        self, store: Store, clock: Clock, database: Database, intake: MetricIntake, nodes: NodeSamples, seconds: float
    ) -> None:  # fmt: skip
        self._clock = clock
        self._database = database
        self._intake = intake
        self._nodes = nodes
        self._seconds = seconds
        self._pods = Informer(store, Selection(core.POD, labels=_OF_TRIALS), clock=clock)
        self._trials: dict[str, TrialId | None] = {}
        """By task; None of those that are not to be sampled."""

    async def run(self) -> None:
        """For ever."""
        await keep("what trials use", [self._pods], self._collect_on)

    async def _collect_on(self) -> None:
        while True:
            await self._clock.sleep(self._seconds)
            await self.collect()

    async def collect(self) -> None:
        """Once, of all nodes."""
        parts = [part for pod in self._pods.items() if (part := _part(pod)) is not None]
        await self._find_trials({part.task for part in parts})
        by_node: dict[str, list[_Part]] = {}
        for part in parts:
            if self._trials[part.task] is not None:
                by_node.setdefault(part.node, []).append(part)
        limit = asyncio.Semaphore(_MOST_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for node, here in by_node.items():
                group.create_task(self._collect(node, here, limit), name=f"what trials use on {node}")

    async def _find_trials(self, tasks: set[str]) -> None:
        """Those that have ended are forgotten, those that are new are looked up."""
        self._trials = {task: trial for task, trial in self._trials.items() if task in tasks}
        unknown = sorted(tasks - self._trials.keys())
        if unknown:
            found = await self._database.read(lambda connection: _sampled(connection, unknown))
            self._trials |= {task: found.get(task) for task in unknown}

    async def _collect(self, node: str, parts: Sequence[_Part], limit: asyncio.Semaphore) -> None:
        try:
            async with limit:
                samples = await self._nodes.of(node)
                now = self._clock.now()
            reports = [report for part in parts for report in self._reports(part, samples.get(part.uid, {}), now)]
            await self._intake.report_all(reports)
        except ApiError as error:
            _log.info("what trials use on node %s is not known: %s", node, error)

    def _reports(self, part: _Part, groups: Mapping[str, Figures], now: Instant) -> list[Report]:
        trial = self._trials.get(part.task)
        if trial is None:
            return []
        return [
            Report(trial, part.run, group, None, now, {part.node: groups[group]})
            for group in SYSTEM
            if groups.get(group)
        ]


def _part(pod: Object) -> _Part | None:
    """None of one that does not run."""
    found, labels = pod.read(core.Pod), pod.meta.labels or {}
    run = labels.get(ALLOCATION_LABEL, "").rpartition(".")[2]
    if found.status.phase != "Running" or not found.spec.node_name or not run.isdigit():
        return None
    return _Part(pod.uid, found.spec.node_name, labels.get(TASK_LABEL, ""), int(run))


def _sampled(connection: Connection, tasks: Sequence[str]) -> Mapping[str, TrialId]:
    rows = connection.execute(
        select(TRIAL_TASKS.c.task_id, TRIAL_TASKS.c.trial_id, EXPERIMENTS.c.original_config)
        .join(TRIALS, TRIALS.c.id == TRIAL_TASKS.c.trial_id)
        .join(EXPERIMENTS, EXPERIMENTS.c.id == TRIALS.c.experiment_id)
        .where(TRIAL_TASKS.c.task_id.in_(list(tasks)))
    )
    return {row.task_id: TrialId(row.trial_id) for row in rows if _is_wanted(row.original_config)}


def _is_wanted(original: str) -> bool:
    """As the user wrote it: with all defaults, it cannot be told who has said nothing."""
    return not any(raw.dig(config, "profiling", "enabled") is False for config in raw.decode_yaml(original))
