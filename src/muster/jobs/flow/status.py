"""The status of a flow: its jobs by what they are doing, how each fared, and the phase of the whole."""

import contextlib
from collections.abc import Mapping, Sequence

from muster.api import raw, timestamps, volcano
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.api.volcano import durations
from muster.jobs.flow.making import job_name
from muster.jobs.flow.planning import COMPLETED, Problem, steps_of, was_completed
from muster.jobs.flow.states import Counts, step

_LISTS = {
    "Pending": "pendingJobs",
    "Running": "runningJobs",
    "Failed": "failedJobs",
    COMPLETED: "completedJobs",
    "Terminated": "terminatedJobs",
}
_UNKNOWN = "unKnowJobs"  # spelled so by Volcano
_OVER = ("Failed", COMPLETED, "Terminated")


def status_of(
    flow: volcano.JobFlow, jobs: Mapping[str, volcano.Job], problems: Mapping[str, Problem], now: Instant
) -> Document:
    """The whole status, lists that are empty left out. `jobs`: those of the flow, by name."""
    names = [job_name(flow.metadata.name, name) for name in steps_of(flow)]
    known = {entry.name: entry for entry in flow.status.job_status_list}
    listed: list[Document] = []
    conditions: dict[str, Document] = {}
    by_state: dict[str, list[str]] = {}
    for name in names:
        job = jobs.get(name)
        if job is not None:
            listed.append(_entry(job, running_histories(known.get(name), job, timestamps.to_text(now))))
            conditions[name] = _condition(job)
        elif was_completed(flow, name):
            listed.append(raw.copy(known[name]))
            conditions[name] = raw.copy((flow.status.conditions or {}).get(name) or {"phase": COMPLETED})
        elif name in problems:
            conditions[name] = {"phase": "Pending", **_told(problems[name])}
            continue
        else:
            continue
        by_state.setdefault(_LISTS.get(listed[-1]["state"], _UNKNOWN), []).append(name)
    counts = Counts(
        len(names),
        len(by_state.get("runningJobs", ())),
        len(by_state.get("completedJobs", ())),
        len(by_state.get("failedJobs", ())) + len(by_state.get("terminatedJobs", ())),
    )
    status: Document = {**by_state, "state": {"phase": str(step(flow.status.state.phase, counts))}}
    if listed:
        status["jobStatusList"] = listed
    if conditions:
        status["conditions"] = conditions
    return status


def _told(problem: Problem) -> Document:
    return {"reason": problem.reason, "message": problem.message}


def _entry(job: volcano.Job, histories: Sequence[Document]) -> Document:
    created = job.metadata.creation_timestamp
    entry: Document = {"name": job.metadata.name, "state": _phase(job)}
    if created:
        entry["startTimestamp"] = created
    if created and job.status.running_duration:
        with contextlib.suppress(durations.BadDuration):  # whoever wrote it, the flow goes on
            ended = Instant(timestamps.parse(created) + durations.parse(job.status.running_duration))
            entry["endTimestamp"] = timestamps.to_text(ended)
    if job.status.retry_count:
        entry["restartCount"] = job.status.retry_count
    entry["runningHistories"] = list(histories)
    return entry


def _phase(job: volcano.Job) -> str:
    """A job that nobody has looked at yet is pending."""
    return job.status.state.phase or "Pending"


def _condition(job: volcano.Job) -> Document:
    found: Document = {"phase": _phase(job)}
    if job.metadata.creation_timestamp:
        found["createTime"] = job.metadata.creation_timestamp
    if job.status.running_duration:
        found["runningDuration"] = job.status.running_duration
    if job.status.task_status_count:
        found["taskStatusCount"] = raw.copy(job.status.task_status_count)
    return found


def running_histories(known: volcano.FlowJobStatus | None, job: volcano.Job, now: str) -> Sequence[Document]:
    """What phases the job has gone through, as far as it was seen, and when."""
    histories: list[Document] = [raw.copy(entry) for entry in known.running_histories] if known else []
    phase = _phase(job)
    if histories and histories[-1].get("state") == phase:
        return histories
    if histories:
        histories[-1].setdefault("endTimestamp", now)
    fresh: Document = {"startTimestamp": now, "state": phase}
    if phase in _OVER:
        fresh["endTimestamp"] = now
    return [*histories, fresh]
