"""Experiments and their trials: made, looked at, stopped. Views are small; `document` has all that the server says."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from muster.api import errors, raw, timestamps
from muster.api.meta import Instant
from muster.api.raw import JSON, Document
from muster.sdk import reading
from muster.sdk.determined import Determined, Query, Told, number

ACTIONS: Final = ("pause", "activate", "cancel", "kill", "archive", "unarchive")
VALIDATION: Final = "validation"
GROUPS: Final[Mapping[str, str]] = {"avg_metrics": "training", "validation_metrics": VALIDATION}
"""How the wire calls groups in summaries; others are called what they are."""
_ENDED: Final = ("Completed", "Canceled", "Error", "Deleted", "Delete failed")
_EXCEEDED: Final = "LAUNCH_WARNING_CURRENT_SLOTS_EXCEEDED"
_MOST_POINTS: Final = 500


@dataclass(frozen=True, slots=True)
class Experiment:
    """`state` as people read it: `Running`, `Completed`. `progress`: from 0 to 1. Times as the wire has them."""

    id: int
    name: str
    state: str
    user: str
    trial_count: int
    progress: float
    started: str
    ended: str
    searcher: str
    metric: str
    is_smaller_better: bool
    document: Document

    @property
    def is_over(self) -> bool:
        return self.state in _ENDED

    @property
    def config(self) -> Document:
        return reading.section(self.document, "config")


@dataclass(frozen=True, slots=True)
class Trial:
    """`metric`: the best that the searcher has seen of it. `checkpoint`: that belongs to it."""

    id: int
    experiment: int
    state: str
    hparams: Mapping[str, JSON]
    steps: int
    restarts: int
    started: str
    ended: str
    metric: float | None
    checkpoint: str
    document: Document

    @property
    def is_over(self) -> bool:
        return self.state in _ENDED


@dataclass(frozen=True, slots=True)
class NewExperiment:
    """`config`: YAML. `files`: its model definition, as `experiments_files` packs it."""

    config: str
    files: Sequence[Document] = ()
    template: str = ""
    project: int | None = None
    is_paused: bool = False
    is_checked_only: bool = False


@dataclass(frozen=True, slots=True)
class Created:
    """`experiment`: None where it was only to be checked. `warnings`: for people."""

    experiment: Experiment | None
    config: Document
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True)
class Series:
    """Of one metric of one trial, in order; thinned out where there is much of it. `times`: seconds since its first
    point."""

    trial: int
    steps: Sequence[int]
    times: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class MetricSummary:
    trial: int
    group: str
    name: str
    count: int
    last: JSON
    least: float | None
    most: float | None


# One and all


def create(server: Determined, new: NewExperiment, told: Told = lambda _size: None) -> Created:
    """Raises BadRequest with all that is wrong."""
    body: Document = {
        "config": new.config,
        "modelDefinition": list(new.files),
        "activate": not new.is_paused,
        "validateOnly": new.is_checked_only,
        "template": new.template or None,
        "projectId": new.project,
    }
    answer = server.upload("/experiments", body, told)
    found = reading.section(answer, "experiment")
    warnings = [_warning(each) for each in answer.get("warnings") or ()]
    made = None if new.is_checked_only else _experiment(found)
    return Created(made, reading.section(answer, "config"), warnings)


def _warning(word: str) -> str:
    if word == _EXCEEDED:
        return "it needs more slots than its pool has now, and waits until there are more"
    return word


def get(server: Determined, experiment: int) -> Experiment:
    """Raises NotFound."""
    return _experiment(reading.section(server.get(f"/experiments/{experiment}"), "experiment"))


def listed(server: Determined, query: Query, most: int | None = None) -> list[Experiment]:
    """The newest first."""
    asked: Query = {**query, "sortBy": "SORT_BY_ID", "orderBy": "ORDER_BY_DESC"}
    if most is None:
        return [_experiment(found) for found in server.pages("/experiments", "experiments", asked)]
    page = server.get("/experiments", {**asked, "limit": most})
    return [_experiment(found) for found in reading.objects(page, "experiments")]


def act(server: Determined, experiment: int, action: str) -> None:
    """`action`: one of `ACTIONS`. Raises NotFound, Conflict."""
    server.send("POST", f"/experiments/{experiment}/{action}")


def delete(server: Determined, experiment: int) -> None:
    """With all that is left of it. Raises NotFound, Conflict."""
    server.send("DELETE", f"/experiments/{experiment}")


def preview(server: Determined, config: Document) -> Document:
    """How many trials would train how long. Raises BadRequest."""
    return reading.section(server.send("POST", "/preview-hp-search", {"config": config}), "summary")


# Trials


def trials(server: Determined, experiment: Experiment) -> list[Trial]:
    """In the order in which they were made."""
    found = server.pages(f"/experiments/{experiment.id}/trials", "trials", {"sortBy": "SORT_BY_ID"})
    return [_trial(document, experiment.metric) for document in found]


def trial(server: Determined, id: int) -> Trial:
    """Raises NotFound."""
    document = reading.section(server.get(f"/trials/{id}"), "trial")
    return _trial(document, get(server, int(document["experimentId"])).metric)


def ranked(experiment: Experiment, found: Sequence[Trial]) -> list[Trial]:
    """The best first; those without a metric, or with one that is no number, last."""

    def key(trial: Trial) -> tuple[bool, float, int]:
        value = trial.metric
        if value is None or math.isnan(value):
            return True, 0.0, trial.id
        return False, value if experiment.is_smaller_better else -value, trial.id

    return sorted(found, key=key)


def best(experiment: Experiment, found: Sequence[Trial]) -> Trial | None:
    """None where none has reported the searcher's metric yet."""
    first = next(iter(ranked(experiment, found)), None)
    return None if first is None or first.metric is None or math.isnan(first.metric) else first


def best_checkpoint(server: Determined, experiment: Experiment) -> Document:
    """Of all of its trials. Raises NotFound."""
    order = "ORDER_BY_ASC" if experiment.is_smaller_better else "ORDER_BY_DESC"
    query: Query = {
        "sortByAttr": "SORT_BY_SEARCHER_METRIC",
        "orderBy": order,
        "states": ["STATE_COMPLETED", "STATE_PARTIALLY_DELETED"],
        "limit": 1,
    }
    found = reading.objects(server.get(f"/experiments/{experiment.id}/checkpoints", query), "checkpoints")
    if not found:
        raise errors.NotFound(f"experiment {experiment.id} has no checkpoint; its trials have not saved any")
    return found[0]


# Metrics


def summaries(trial: Trial) -> Iterator[MetricSummary]:
    """Those that have one value at a time: what machines measure of themselves has a value for each device."""
    for key, metrics in reading.section(trial.document, "summaryMetrics").items():
        if not isinstance(metrics, dict):
            continue
        for name in sorted(metrics):
            told = reading.section(metrics, name)
            if isinstance(told.get("last"), dict):
                continue
            count = told.get("count")
            yield MetricSummary(
                trial=trial.id,
                group=GROUPS.get(key, key),
                name=name,
                count=count if isinstance(count, int) else 0,
                last=told.get("last"),
                least=number(told.get("min")),
                most=number(told.get("max")),
            )


def reports(server: Determined, trial: int, group: str) -> Iterator[tuple[int, str, Mapping[str, JSON]]]:
    """Step, time and values of all that a trial has reported to a group."""
    for message in server.follow("/trials/metrics/trial_metrics", {"trialIds": [trial], "group": group}):
        for report in reading.objects(message, "metrics"):
            values = reading.section(report, "metrics")
            named = reading.section(values, "validation_metrics") or reading.section(values, "avg_metrics")
            yield int(report["totalBatches"]), reading.text(report, "endTime"), named


def series(server: Determined, trials: Sequence[int], group: str, metric: str) -> list[Series]:
    query: Query = {"trialIds": trials, "group": group, "metricNames": [metric], "maxDatapoints": _MOST_POINTS}
    answer = server.get("/trials/time-series", query)
    return [_series(each, metric) for each in reading.objects(answer, "trials")]


def _series(compared: Document, metric: str) -> Series:
    points = [point for part in reading.objects(compared, "metrics") for point in reading.objects(part, "data")]
    known = [(point, value) for point in points if (value := number(raw.dig(point, "values", metric))) is not None]
    times = [timestamps.parse(reading.text(point, "time")) for point, _ in known]
    return Series(
        trial=int(raw.dig(compared, "trial", "id")),
        steps=[int(point["batches"]) for point, _ in known],
        times=[time - times[0] for time in times],
        values=[value for _, value in known],
    )


# Logs


def logs(server: Determined, trial: int, *, follow: bool = False, tail: int | None = None) -> Iterator[Document]:
    """Entries, the oldest first; with `follow` until the trial has ended."""
    path, since = f"/trials/{trial}/logs", None
    known: set[JSON] = set()
    if tail is not None:
        # At least one is asked for, to know where to go on.
        last = [*server.follow(path, {"limit": max(tail, 1), "orderBy": "ORDER_BY_DESC"})][::-1]
        yield from last[len(last) - tail :] if tail < len(last) else last
        if not follow:
            return
        if last:
            # Others may have come in the same instant: from a little before, without those that were told.
            since = timestamps.to_micro_text(Instant(timestamps.parse(reading.text(last[-1], "timestamp")) - 0.001))
            known = {entry.get("id") for entry in last}
    for entry in server.follow(path, {"follow": follow or None, "timestampAfter": since}):
        if entry.get("id") not in known:
            yield entry


# Views


def state_word(wire: str) -> str:
    """`STATE_STOPPING_CANCELED` is `Stopping` to people."""
    words = wire.removeprefix("STATE_").split("_")
    shown = words[:1] if words[0] == "STOPPING" else words
    return " ".join(shown).capitalize() or "Unknown"


def _experiment(document: Document) -> Experiment:
    config = reading.section(document, "config")
    return Experiment(
        id=int(document["id"]),
        name=reading.text(document, "name"),
        state=state_word(reading.text(document, "state")),
        user=reading.text(document, "displayName") or reading.text(document, "username"),
        trial_count=int(document.get("numTrials") or 0),
        progress=number(document.get("progress")) or 0.0,
        started=reading.text(document, "startTime"),
        ended=reading.text(document, "endTime"),
        searcher=reading.text(document, "searcherType") or reading.text(config, "searcher", "name"),
        metric=reading.text(document, "searcherMetric") or reading.text(config, "searcher", "metric"),
        is_smaller_better=raw.dig(config, "searcher", "smaller_is_better") is not False,
        document=document,
    )


def _trial(document: Document, metric: str) -> Trial:
    found = number(raw.dig(document, "bestValidation", "metrics", "avgMetrics", metric))
    checkpoint = raw.dig(document, "bestCheckpoint", "uuid")
    return Trial(
        id=int(document["id"]),
        experiment=int(document["experimentId"]),
        state=state_word(reading.text(document, "state")),
        hparams=reading.section(document, "hparams"),
        steps=int(document.get("totalBatchesProcessed") or 0),
        restarts=int(document.get("restarts") or 0),
        started=reading.text(document, "startTime"),
        ended=reading.text(document, "endTime"),
        metric=number(document.get("searcherMetricValue")) if found is None else found,
        checkpoint="" if checkpoint is None else str(checkpoint),
        document=document,
    )
