"""What is remembered of trials that report, so that a report costs no reading of what was reported before.

It is made of the records when a trial is heard of first, and is only ever ahead of them inside of one change: whoever
makes the change forgets the trials of one that failed.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection

from muster.api.raw import Document
from muster.experiments import metric_records, metric_reports, metric_summaries
from muster.experiments.metric_records import Aim, Head
from muster.experiments.metric_summaries import GroupSummary
from muster.experiments.states import ExperimentId, TrialId

_MOST: Final = 4096
"""Trials that report at the same time. More are taken in as well, but read more."""


@dataclass(slots=True)
class Group:
    """`last_step`: none higher was reported. `last_time`: of what belongs to no step, none is later. `fresh`: how many
    rows have come since it was last seen to whether they make a block."""

    summary: GroupSummary
    last_step: int
    last_time: float
    fresh: int = 0


@dataclass(slots=True)
class Remembered:
    """`run`: the latest that has reported a step. `best`: of the metric of its search. `latest_validation`: a step.
    Both with the ids of their rows."""

    head: Head
    experiment: ExperimentId
    aim: Aim
    summaries: Document
    total_batches: int
    best: float | None
    best_id: int | None
    latest_validation: int | None
    latest_id: int | None
    run: int = 0
    groups: dict[str, Group] = field(default_factory=dict)

    def group(self, name: str) -> Group:
        found = self.groups.get(name)
        if found is None:
            found = self.groups[name] = Group(GroupSummary(), -1, float("-inf"))
        return found


class Memory:
    def __init__(self) -> None:
        self._trials: OrderedDict[TrialId, Remembered] = OrderedDict()

    def get(self, connection: Connection, trial: TrialId, head: Head) -> Remembered:
        found = self._trials.get(trial)
        if found is None or found.head != head:  # a new run may have another configuration
            found = self._trials[trial] = _load(connection, trial, head)
        self._trials.move_to_end(trial)
        return found

    def forget(self, trials: Iterable[TrialId]) -> None:
        for trial in trials:
            self._trials.pop(trial, None)

    # Between changes only: what is in use must stay as it is.

    def grown(self, trials: Iterable[TrialId], rows: int) -> list[tuple[TrialId, str]]:
        """Groups that have had so many rows more; they are counted anew."""
        found = []
        for trial in trials:
            known = self._trials.get(trial)
            for name, group in known.groups.items() if known is not None else ():
                if group.fresh >= rows:
                    group.fresh = 0
                    found.append((trial, name))
        return found

    def shrink(self) -> None:
        while len(self._trials) > _MOST:
            self._trials.popitem(last=False)


def _load(connection: Connection, trial: TrialId, head: Head) -> Remembered:
    known = metric_records.known(connection, trial)
    found = Remembered(
        head=head,
        experiment=known.experiment,
        aim=known.aim,
        summaries=known.summaries,
        total_batches=known.total_batches,
        best=known.best,
        best_id=known.best_id,
        latest_validation=known.latest_validation,
        latest_id=known.latest_id,
    )
    for key, summary in known.summaries.items():
        name = metric_reports.group_of(key)
        last_step = metric_records.last_step(connection, trial, name)
        # Not known without a search among them; the first report of them is looked for.
        found.groups[name] = Group(metric_summaries.from_document(summary), last_step, float("inf"))
        if last_step >= 0:
            found.run = max(found.run, metric_records.last_run(connection, trial, name))
    return found
