"""All that is known of one job: what it consists of, its pods, its place in the queue, and what happened when."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from muster.api import errors
from muster.api.raw import Document
from muster.sdk import dialects, finding, gangs, reading, resources, summaries
from muster.sdk.client import Client
from muster.sdk.dialects import Job
from muster.sdk.gangs import Member
from muster.sdk.resources import Selection
from muster.sdk.summaries import Summary, Surroundings, Task


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened to the job."""

    at: str
    what: str
    said: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    member: Member
    task: str
    created: str


@dataclass(frozen=True, slots=True)
class Details:
    job: Job
    summary: Summary
    tasks: Sequence[Task]
    pods: Sequence[Pod]
    children: Sequence[Summary]
    """The jobs that a flow or a cron job has made."""
    workload: Document
    explanation: Document
    """What the quota engine says about the workload; empty where there is none."""
    timeline: Sequence[Moment]
    events: Sequence[Document] = field(default_factory=list)
    """Of the job, its workload and its pods, the oldest first."""


def describe(client: Client, job: Job) -> Details:
    """Raises NotFound where it is gone."""
    fresh = finding.refresh(client, job)
    pods, workload = finding.pods_of(client, fresh), finding.workload_of(client, fresh)
    beside = Surroundings(pods, workload, finding.group_of(client, fresh))
    children = [finding.summary(client, child) for child in finding.children(client, fresh)]
    return Details(
        job=fresh,
        summary=summaries.observe(fresh, beside),
        tasks=summaries.tasks(fresh),
        pods=sorted((_pod(fresh, pod) for pod in pods), key=_order),
        children=children,
        workload=workload,
        explanation=_explanation(client, workload, fresh.namespace),
        timeline=timeline(fresh, workload, pods),
        events=_events(client, fresh.namespace, [fresh.document, workload, beside.group, *pods]),
    )


def _pod(job: Job, document: Document) -> Pod:
    task = reading.text(document, "metadata", "labels", job.dialect.task_label) if job.dialect.task_label else ""
    return Pod(gangs.observe_pod(document), task, reading.text(document, "metadata", "creationTimestamp"))


def _order(pod: Pod) -> tuple[str, str, int, str]:
    stem, _, number = pod.member.pod.rpartition("-")
    return pod.task, stem, int(number) if number.isdecimal() else 0, number


def _explanation(client: Client, workload: Document, namespace: str) -> Document:
    if not workload:
        return {}
    try:
        return client.explain(reading.text(workload, "metadata", "name"), namespace)
    except errors.NotFound:
        return {}


def _events(client: Client, namespace: str, about: Sequence[Document]) -> Sequence[Document]:
    """One list of the namespace's events: a job may have thousands of pods."""
    uids = {reading.text(document, "metadata", "uid") for document in about if document}
    found = client.list(resources.EVENTS, Selection(namespace))
    return sorted((event for event in found if reading.text(event, "involvedObject", "uid") in uids), key=when)


def when(event: Document) -> str:
    for name in ("lastTimestamp", "eventTime", "firstTimestamp"):
        if event.get(name):
            return str(event[name])
    return reading.text(event, "metadata", "creationTimestamp")


def timeline(job: Job, workload: Document, pods: Sequence[Document]) -> list[Moment]:
    """The turns that its life has taken, the oldest first. Pure."""
    found = [
        Moment(reading.text(job.document, "metadata", "creationTimestamp"), "created"),
        *_of_workload(workload),
        *(_of_pods(pods) if job.dialect not in dialects.MAKERS else ()),
        *(_of_phases(job) if job.dialect is dialects.VOLCANO else _of_conditions(job)),
    ]
    known = [moment for moment in dict.fromkeys(found) if moment.at]
    return sorted(known, key=lambda moment: moment.at)  # stable: what is listed first comes first in a second


def _of_workload(workload: Document) -> Iterator[Moment]:
    words = {
        "QuotaReserved": "quota reserved",
        "Admitted": "admitted",
        "Evicted": "evicted",
        "Requeued": "queued again",
    }
    for condition in reading.objects(workload, "status", "conditions"):
        word = words.get(reading.text(condition, "type"))
        if word and condition.get("status") == "True":
            said = reading.text(condition, "message") if word != "admitted" else ""
            yield Moment(reading.text(condition, "lastTransitionTime"), word, said)


def _of_pods(pods: Sequence[Document]) -> Iterator[Moment]:
    members = [gangs.observe_pod(pod) for pod in pods]
    started = sorted(member.started_at for member in members if member.started_at)
    if started:
        yield Moment(started[0], "first pod started")
    if len(started) > 1 and len(started) == len(members):
        yield Moment(started[-1], "last pod started", f"{len(started)} of them")
    failed = gangs.Status("", 0, tuple(members)).first_failure()
    if failed is not None and failed.finished_at:
        yield Moment(failed.finished_at, "first pod failed", f"{failed.pod}: exit code {failed.exit_code}")


def _of_phases(job: Job) -> Iterator[Moment]:
    for number, entry in enumerate(reading.objects(job.document, "status", "conditions")):
        if number or entry.get("status") != "Pending":  # how every job begins: it is created
            yield Moment(reading.text(entry, "lastTransitionTime"), reading.text(entry, "status"))


def _of_conditions(job: Job) -> Iterator[Moment]:
    for condition in reading.objects(job.document, "status", "conditions"):
        if condition.get("status") == "True" and condition.get("type") != "Created":
            at = reading.text(condition, "lastTransitionTime")
            yield Moment(at, reading.text(condition, "type"), reading.text(condition, "message"))
    if job.dialect is dialects.CRON:
        yield Moment(reading.text(job.document, "status", "lastScheduleTime"), "last run")
        yield Moment(reading.text(job.document, "status", "lastSuccessfulTime"), "last success")
    if job.dialect is dialects.FLOW:
        for entry in reading.objects(job.document, "status", "jobStatusList"):
            for turn in reading.objects(entry, "runningHistories"):
                name, state = reading.text(entry, "name"), reading.text(turn, "state")
                yield Moment(reading.text(turn, "startTimestamp"), f"{name} {state}")
