"""Takes reports of trials in: all that follows from a number of them, as one change of the records.

A report that was sent twice is kept once. A second one of the same group and step adds to the first. What a run reports
again that runs before it had reported takes its place; what those had reported beyond the step from which it goes on
is archived. Each report is taken in whole or not at all, whatever becomes of the others.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import Connection

from muster.api import errors
from muster.api.meta import Instant
from muster.api.raw import JSON
from muster.experiments import metric_blocks, metric_records, metric_reports, metric_settling, trial_records
from muster.experiments.inbox import Validated
from muster.experiments.metric_memory import Memory, Remembered
from muster.experiments.metric_records import Head, Kept
from muster.experiments.metric_reports import TRAINING, VALIDATION, Report
from muster.experiments.metric_settling import Touched
from muster.experiments.states import ExperimentId, TrialId

_FIXED: Final = (TRAINING, VALIDATION)
"""Groups whose values no later report of the same step may change."""


class Taking:
    """One change. Reports are taken one after the other, then `finish` writes what came of them."""

    def __init__(
        self, connection: Connection, memory: Memory, heads: Mapping[TrialId, Head], now: Instant
    ) -> None:  # fmt: skip
        self._connection = connection
        self._memory = memory
        self._heads = heads
        self._now = now
        self._touched: dict[TrialId, Touched] = {}
        self._rows: list[dict[str, object]] = []
        self._by_step: dict[tuple[TrialId, str, int], dict[str, object]] = {}
        self._without_step: set[tuple[TrialId, str, float, str]] = set()

    def take(self, report: Report, text: str) -> None:
        """`text`: the report as it is kept. Raises NotFound, Forbidden, Conflict, BadRequest; then nothing of it has
        happened."""
        head = self._heads.get(report.trial)
        if head is None:
            raise trial_records.not_found(report.trial)
        if report.allocation not in ("", f"{head.task}.{report.run}"):
            raise errors.Forbidden(
                f"run {report.run} of trial {report.trial} is not the one that this token belongs to"
            )
        if report.run != head.run:
            self._check_repeated(report, head)
            return
        known = self._memory.get(self._connection, report.trial, head)
        if report.steps is None:
            self._take_without_step(known, report, text)
        else:
            self._take_step(known, report, report.steps, text)

    def _check_repeated(self, report: Report, head: Head) -> None:
        """A run that is over may say again what it has said, as who has not heard the answer does."""
        if any(_has_said(kept, report) for kept in metric_records.of_run(self._connection, report)):
            return
        raise errors.Conflict(
            f"metrics.trialRunId: trial {report.trial} is in its run {head.run}; nothing new is taken from run "
            f"{report.run}"
        )

    # What belongs to no step

    def _take_without_step(self, known: Remembered, report: Report, text: str) -> None:
        group = known.group(report.group)
        identity = (report.trial, report.group, report.at, text)
        if identity in self._without_step:
            return
        if report.at <= group.last_time and any(
            kept.metrics == text for kept in metric_records.of_run(self._connection, report)
        ):
            return
        self._without_step.add(identity)
        group.last_time = report.at if group.last_time == float("inf") else max(group.last_time, report.at)
        self._add(known, report, text)

    # Steps

    def _take_step(self, known: Remembered, report: Report, steps: int, text: str) -> None:
        is_first = report.run > known.run
        pending = self._by_step.get((report.trial, report.group, steps))
        if pending is not None:
            self._merge_pending(known, report, pending)
            return
        kept = self._kept(known, report, steps)
        if kept is not None and kept.run == report.run:
            self._merge(known, report, kept)
            return
        judged = _judged(known, report, report.metrics, steps)
        if is_first:
            kept = self._roll_back(known, report, steps)
        if kept is not None:
            metric_records.archive(self._connection, kept.id)
            self._revise(known, report, kept.id)
        row = self._add(known, report, text)
        self._by_step[report.trial, report.group, steps] = row
        known.group(report.group).last_step = max(known.group(report.group).last_step, steps)
        known.total_batches = max(known.total_batches, steps)
        self._judge(known, report, steps, judged)

    def _kept(self, known: Remembered, report: Report, steps: int) -> Kept | None:
        if steps > known.group(report.group).last_step:
            return None
        return metric_records.find(self._connection, report.trial, report.group, steps)

    def _roll_back(self, known: Remembered, report: Report, steps: int) -> Kept | None:
        """The first report of a run: what runs before it had reported after the step from which it goes on was not so.
        Returns what there still is at the step of the report."""
        before, known.run = known.run, report.run
        if not before:
            return None
        allocation = f"{known.head.task}.{report.run}"
        begun_at = min(metric_records.begun_at(self._connection, report.trial, allocation), steps)
        touched = self._touch(known, report.trial)
        for group in known.groups:
            first = metric_records.archive_after(self._connection, report.trial, group, report.run, begun_at)
            if first is not None:
                metric_blocks.cut(self._connection, report.trial, group, first)
                touched.groups.add(group)
                touched.revised.add(group)
                touched.is_rolled_back = True
        return self._kept(known, report, steps)

    def _add(self, known: Remembered, report: Report, text: str) -> dict[str, object]:
        row = metric_records.row(report, text)
        self._rows.append(row)
        self._touch(known, report.trial).groups.add(report.group)
        group = known.group(report.group)
        group.summary.take(report.metrics)
        group.fresh += 1
        return row

    # Two reports of one step

    def _merge_pending(self, known: Remembered, report: Report, row: dict[str, object]) -> None:
        text = self._merged(known, report, str(row["metrics"]))
        if text is not None:
            row["metrics"] = text

    def _merge(self, known: Remembered, report: Report, kept: Kept) -> None:
        text = self._merged(known, report, kept.metrics)
        if text is not None:
            metric_records.change(self._connection, kept.id, text)
            self._touch(known, report.trial).changed.setdefault(report.group, set()).add(kept.id)

    def _merged(self, known: Remembered, report: Report, text: str) -> str | None:
        """Both as one; None where the second says nothing new."""
        assert report.steps is not None
        had, had_batches = metric_reports.decode(report.group, text)
        new = {name: value for name, value in report.metrics.items() if name not in had or had[name] != value}
        batches = report.batches or had_batches
        if not new and list(batches) == list(had_batches):
            return None
        if report.group in _FIXED:
            _check_fixed(report, had, had_batches)
        together = {**had, **new}
        made = metric_reports.encode(report.group, together, batches)
        judged = _judged(known, report, together, report.steps) if known.aim.metric in new else None
        touched = self._touch(known, report.trial)
        touched.groups.add(report.group)
        if new.keys() & had.keys():
            touched.revised.add(report.group)
        known.group(report.group).summary.take(new)
        self._judge(known, report, report.steps, judged)
        return made

    def _revise(self, known: Remembered, report: Report, row: int) -> None:
        touched = self._touch(known, report.trial)
        touched.changed.setdefault(report.group, set()).add(row)
        touched.revised.add(report.group)
        touched.is_rolled_back |= report.group == VALIDATION

    # Validations

    def _judge(self, known: Remembered, report: Report, steps: int, judged: Validated | None) -> None:
        if report.group != VALIDATION:
            return
        touched = self._touch(known, report.trial)
        if known.latest_validation is None or steps >= known.latest_validation:
            known.latest_validation = touched.validated = steps
        if judged is None:
            return
        touched.validations.append(judged)
        if known.aim.is_better(judged.metric, known.best):
            known.best, touched.improved = judged.metric, steps

    def _touch(self, known: Remembered, trial: TrialId) -> Touched:
        found = self._touched.get(trial)
        if found is None:
            found = self._touched[trial] = Touched(known)
        return found

    def finish(self) -> frozenset[ExperimentId]:
        """Those in whose inboxes there is something now."""
        if self._rows:
            metric_records.add(self._connection, self._rows)
        return metric_settling.settle(self._connection, self._touched, self._now)


def _has_said(kept: Kept, report: Report) -> bool:
    metrics, batches = metric_reports.decode(report.group, kept.metrics)
    is_known = all(name in metrics and metrics[name] == value for name, value in report.metrics.items())
    return is_known and (not report.batches or list(report.batches) == list(batches))


def _check_fixed(report: Report, had: Mapping[str, JSON], had_batches: Sequence[JSON]) -> None:
    """Raises Conflict."""
    for name, value in report.metrics.items():
        if name in had and had[name] != value:
            raise errors.Conflict(
                f"metrics.metrics.avgMetrics.{name[:60]}: {report.group} step {report.steps} of trial {report.trial} "
                f"has it as {str(had[name])[:40]} already, not {str(value)[:40]}"
            )
    if report.batches and had_batches and list(report.batches) != list(had_batches):
        raise errors.Conflict(
            f"metrics.metrics.batchMetrics: {report.group} step {report.steps} of trial {report.trial} has others"
        )


def _judged(known: Remembered, report: Report, metrics: Mapping[str, JSON], steps: int) -> Validated | None:
    """What the search is told. Raises BadRequest where it could not make anything of it, and would wait for ever."""
    aim = known.aim
    if report.group != VALIDATION or aim.metric not in metrics:
        return None
    value = metric_reports.number(metrics[aim.metric])
    if value is None:
        raise errors.BadRequest(
            f"metrics.metrics.avgMetrics.{aim.metric}: is the metric of the search, and must be a number"
        )
    length = float(steps)
    if aim.time_metric:
        found = metric_reports.number(metrics.get(aim.time_metric))
        if found is None:
            raise errors.BadRequest(
                f"metrics.metrics.avgMetrics.{aim.time_metric}: is the time metric of the search, and must be reported "
                f"as a number with {aim.metric}"
            )
        length = found
    return Validated(report.trial, value, length)
