"""How a job of any dialect is doing, in one vocabulary. Pure: from documents alone.

The dialects say the same things in different words and places; here is where that ends. What a dialect calls it stays
readable in `Summary.phase`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypedDict

from muster.api import raw
from muster.api.raw import Document
from muster.sdk import dialects, gangs, reading
from muster.sdk.dialects import Dialect, Job

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
QUEUED_ANNOTATION = "muster.dev/queued"
HELD_ANNOTATION = "muster.dev/held"


class State(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    SCHEDULED = "Scheduled"
    """A cron job between its times."""
    STOPPING = "Stopping"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    STOPPED = "Stopped"


OVER = frozenset({State.SUCCEEDED, State.FAILED, State.STOPPED})
WAITING = frozenset({State.PENDING, State.RESTARTING})


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else is known of a job."""

    pods: Sequence[Document] = ()
    workload: Document = field(default_factory=dict)
    group: Document = field(default_factory=dict)


ALONE = Surroundings()


@dataclass(frozen=True, slots=True)
class Task:
    """Pods of one role. Of a flow or a cron job: one of its jobs."""

    name: str
    wanted: int
    least: int
    """How few will do."""
    counts: Mapping[str, int]
    """How many are in which phase."""


@dataclass(frozen=True, slots=True)
class Summary:
    kind: str
    namespace: str
    name: str
    state: State
    phase: str
    """In the dialect's own words."""
    ready: int
    """Pods that run or have done their work; jobs, of a flow or a cron job."""
    done: int
    wanted: int
    created: str
    queue: str = ""
    why: str = ""
    """Why it waits, or how it failed."""
    nodes: tuple[str, ...] = ()
    exit_code: int | None = None
    """Once it is over: 0, or that of the pod that failed first."""
    schedule: str = ""
    """Of a cron job; `time_zone` and `last_run` too."""
    time_zone: str = ""
    last_run: str = ""

    @property
    def is_over(self) -> bool:
        return self.state in OVER


@dataclass(frozen=True, slots=True)
class _Read:
    state: State
    phase: str
    ready: int
    done: int
    wanted: int
    said: str = ""
    """What its status says about it: mostly why it failed."""


def observe(job: Job, beside: Surroundings = ALONE) -> Summary:
    found = _READERS[job.dialect](job.document, beside)
    members = [gangs.observe_pod(pod) for pod in beside.pods]
    state = _state(job, found.state, beside.workload)
    failed = gangs.Status(job.name, 0, tuple(members)).first_failure() if state is State.FAILED else None
    return Summary(
        kind=job.dialect.word,
        namespace=job.namespace,
        name=job.name,
        state=state,
        phase=found.phase,
        ready=found.ready,
        done=found.done,
        wanted=found.wanted,
        created=reading.text(job.document, "metadata", "creationTimestamp"),
        queue=queue_of(job, beside),
        why=_why(state, found, members, beside),
        nodes=tuple(dict.fromkeys(member.node for member in members if member.node)),
        exit_code=_exit_code(state, failed),
        **_times(job),
    )


class _Times(TypedDict, total=False):
    schedule: str
    time_zone: str
    last_run: str


def _times(job: Job) -> _Times:
    if job.dialect is not dialects.CRON:
        return {}
    spec = reading.section(job.document, "spec")
    return {
        "schedule": reading.text(spec, "schedule"),
        "time_zone": reading.text(spec, "timeZone"),
        "last_run": reading.text(job.document, "status", "lastScheduleTime"),
    }


def queue_of(job: Job, beside: Surroundings = ALONE) -> str:
    """The queue that it names, else the one in which its quota is."""
    document = job.document
    named = reading.text(document, "metadata", "labels", QUEUE_LABEL)
    if job.dialect in (dialects.VOLCANO, dialects.GANG):
        named = named or reading.text(document, "spec", "queue")
    elif job.dialect is dialects.CRON:
        named = reading.text(document, "spec", "jobTemplate", "spec", "queue")
    elif job.dialect is dialects.PYTORCH:
        named = named or reading.text(document, "spec", "runPolicy", "schedulingPolicy", "queue")
    return named or reading.text(beside.workload, "status", "admission", "clusterQueue")


def tasks(job: Job) -> list[Task]:
    """Of what it consists, in the order in which the document says it."""
    read = _TASKS.get(job.dialect)
    return read(job.document) if read else []


def is_held(job: Job, workload: Document) -> bool:
    """Whether a user keeps it from starting: not whether it waits for quota."""
    if raw.dig(workload, "spec", "active") is False:
        return True
    if job.dialect is dialects.CRON:
        return raw.dig(job.document, "spec", "suspend") is True
    path = {dialects.BATCH: ("spec",), dialects.PYTORCH: ("spec", "runPolicy")}.get(job.dialect)
    if path is None or raw.dig(job.document, *path, "suspend") is not True:
        return False
    metadata = reading.section(job.document, "metadata")
    return not (raw.dig(metadata, "labels", QUEUE_LABEL) or raw.dig(metadata, "annotations", QUEUED_ANNOTATION))


def _state(job: Job, found: State, workload: Document) -> State:
    if raw.dig(job.document, "metadata", "deletionTimestamp"):
        return State.STOPPING
    if found in OVER or found in (State.SUSPENDING, State.SUSPENDED):
        return found
    if job.dialect is not dialects.CRON and is_held(job, workload):
        return State.SUSPENDING if found is State.RUNNING else State.SUSPENDED
    return found


def _exit_code(state: State, failed: gangs.Member | None) -> int | None:
    if state not in OVER:
        return None
    if state is State.SUCCEEDED:
        return 0
    if state is State.STOPPED:
        return gangs.EXIT_STOPPED
    return (failed.exit_code if failed else None) or 1


# Why


def _why(state: State, found: _Read, members: Sequence[gangs.Member], beside: Surroundings) -> str:
    if state is State.FAILED:
        return _failure(found, members)
    if state in WAITING:
        return _quota_reason(beside.workload) or _node_reason(found, members, beside) or found.said
    return found.said if state not in (State.RUNNING, State.SUCCEEDED) else ""


def _failure(found: _Read, members: Sequence[gangs.Member]) -> str:
    failed = gangs.Status("", 0, tuple(members)).first_failure()
    if failed is None:
        return found.said
    where = f"{failed.pod}: " if len(members) > 1 else ""
    reason = f", {failed.reason}" if failed.reason else ""
    code = f"{where}exit code {failed.exit_code}{reason}"
    return f"{code}; {found.said}" if found.said else code


def _quota_reason(workload: Document) -> str:
    """Empty where it has quota, or needs none."""
    found = {reading.text(entry, "type"): entry for entry in reading.objects(workload, "status", "conditions")}
    if not workload or reading.text(found.get("QuotaReserved"), "status") == "True":
        return ""
    for name, status in (("Waiting", "True"), ("QuotaReserved", "False")):
        if reading.text(found.get(name), "status") == status:
            return reading.text(found[name], "message")
    return "waits for quota"


def _node_reason(found: _Read, members: Sequence[gangs.Member], beside: Surroundings) -> str:
    for member in members:
        if member.phase is gangs.Phase.PENDING and member.reason:
            return member.reason
    waiting = gangs.observe("", (), beside.group or None).waiting
    missing = found.wanted - len(members)
    return waiting or (f"waits for {missing} more pods" if missing > 0 and beside.group else "")


# What each dialect says


def _true(document: Document, *names: str) -> Document:
    """The first of these conditions that holds; empty where none does."""
    for entry in reading.objects(document, "status", "conditions"):
        if entry.get("type") in names and entry.get("status") == "True":
            return entry
    return {}


def _said(condition: Document) -> str:
    reason, message = reading.text(condition, "reason"), reading.text(condition, "message")
    return message or reason


def _count(document: Document, *path: str) -> int:
    found = raw.dig(document, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def _batch(document: Document, _beside: Surroundings) -> _Read:
    succeeded, ready = _count(document, "status", "succeeded"), _count(document, "status", "ready")
    asked = raw.dig(document, "spec", "completions")
    parallel = raw.dig(document, "spec", "parallelism")
    wanted = asked if isinstance(asked, int) else max(parallel if isinstance(parallel, int) else 1, succeeded)
    over = _true(document, "Complete", "Failed")
    if over:
        is_well = over["type"] == "Complete"
        return _Read(
            State.SUCCEEDED if is_well else State.FAILED,
            str(over["type"]),
            succeeded,
            succeeded,
            wanted,
            "" if is_well else _said(over),
        )
    if _true(document, "Suspended"):
        return _Read(State.PENDING, "Suspended", succeeded, succeeded, wanted)
    if ready or succeeded or _true(document, "SuccessCriteriaMet", "FailureTarget"):
        return _Read(State.RUNNING, "Running", succeeded + ready, succeeded, wanted)
    failed = _count(document, "status", "failed")
    if failed and not _count(document, "status", "active"):
        return _Read(State.RESTARTING, "Running", 0, 0, wanted, f"{failed} failed; waits before the next attempt")
    return _Read(State.PENDING, "", 0, 0, wanted)


_VOLCANO_STATES: Mapping[str, State] = {
    "": State.PENDING,
    "Pending": State.PENDING,
    "Running": State.RUNNING,
    "Restarting": State.RESTARTING,
    "Aborting": State.SUSPENDING,
    "Aborted": State.SUSPENDED,
    "Completing": State.STOPPING,
    "Completed": State.SUCCEEDED,
    "Terminating": State.STOPPING,
    "Terminated": State.STOPPED,
    "Failed": State.FAILED,
}


def _volcano(document: Document, _beside: Surroundings) -> _Read:
    phase = reading.text(document, "status", "state", "phase")
    done = _count(document, "status", "succeeded")
    wanted = sum(_count(task, "replicas") for task in reading.objects(document, "spec", "tasks"))
    ready = done + _count(document, "status", "running")
    said = _said(reading.section(document, "status", "state"))
    return _Read(_VOLCANO_STATES.get(phase, State.RUNNING), phase, ready, done, wanted, said)


def _pytorch(document: Document, _beside: Surroundings) -> _Read:
    statuses = [value for value in reading.section(document, "status", "replicaStatuses").values() if value]
    done = sum(_count(entry, "succeeded") for entry in statuses)
    ready = done + sum(_count(entry, "active") for entry in statuses)
    wanted = sum(task.wanted for task in _pytorch_tasks(document))
    for name, state in _PYTORCH_STATES.items():
        found = _true(document, name)
        if found:
            return _Read(state, name, ready, done, wanted, _said(found) if state is State.FAILED else "")
    return _Read(State.PENDING, "Created" if _true(document, "Created") else "", ready, done, wanted)


_PYTORCH_STATES: Mapping[str, State] = {
    "Succeeded": State.SUCCEEDED,
    "Failed": State.FAILED,
    "Suspended": State.PENDING,  # by its queue, unless a user holds it
    "Restarting": State.RESTARTING,
    "Running": State.RUNNING,
}


_FLOW_STATES: Mapping[str, State] = {
    "Succeed": State.SUCCEEDED,
    "Failed": State.FAILED,
    "Running": State.RUNNING,
    "Terminating": State.STOPPING,
}


def _flow(document: Document, _beside: Surroundings) -> _Read:
    status = reading.section(document, "status")
    phase = reading.text(status, "state", "phase")
    done, running = _names(status, "completedJobs"), _names(status, "runningJobs")
    bad = [*_names(status, "failedJobs"), *_names(status, "terminatedJobs")]
    said = f"{', '.join(bad)} failed" if bad else ""
    for name, entry in reading.section(status, "conditions").items():
        message = _said(raw.as_object(entry)) if isinstance(entry, dict) else ""
        said = said or (f"{name}: {message}" if message else "")
    wanted = len(reading.objects(document, "spec", "flows"))
    state = _FLOW_STATES.get(phase, State.PENDING)
    return _Read(state, phase, len(done) + len(running), len(done), wanted, said)


def _names(status: Document, name: str) -> list[str]:
    found = status.get(name)
    return [str(entry) for entry in found] if isinstance(found, list) else []


def _cron(document: Document, _beside: Surroundings) -> _Read:
    active = len(reading.objects(document, "status", "active"))
    if raw.dig(document, "spec", "suspend") is True:
        return _Read(State.SUSPENDED, "", active, 0, active)
    return _Read(State.RUNNING if active else State.SCHEDULED, "", active, 0, active)


def _gang(document: Document, beside: Surroundings) -> _Read:
    return _of_gang(gangs.observe("", beside.pods, document))


def _pod(document: Document, _beside: Surroundings) -> _Read:
    return _of_gang(gangs.observe("", [document]))


def _of_gang(status: gangs.Status) -> _Read:
    done = status.count(gangs.Phase.SUCCEEDED)
    ready = done + status.count(gangs.Phase.RUNNING)
    return _Read(State(str(status.phase)), str(status.phase), ready, done, status.size)


_READERS: Mapping[Dialect, Callable[[Document, Surroundings], _Read]] = {
    dialects.BATCH: _batch,
    dialects.VOLCANO: _volcano,
    dialects.PYTORCH: _pytorch,
    dialects.CRON: _cron,
    dialects.FLOW: _flow,
    dialects.GANG: _gang,
    dialects.POD: _pod,
}


# Tasks


def _batch_tasks(document: Document) -> list[Task]:
    counts = {
        word: _count(document, "status", name)
        for word, name in (("Running", "active"), ("Succeeded", "succeeded"), ("Failed", "failed"))
    }
    parallel = raw.dig(document, "spec", "parallelism")
    wanted = parallel if isinstance(parallel, int) else 1
    return [Task("", wanted, 1, {word: count for word, count in counts.items() if count})]


def _volcano_tasks(document: Document) -> list[Task]:
    counted = reading.section(document, "status", "taskStatusCount")
    found = []
    for task in reading.objects(document, "spec", "tasks"):
        name, wanted = reading.text(task, "name"), _count(task, "replicas")
        least = _count(task, "minAvailable") if "minAvailable" in task else wanted
        found.append(Task(name, wanted, least, _numbers(reading.section(counted, name, "phase"))))
    return found


def _pytorch_tasks(document: Document) -> list[Task]:
    roles = reading.section(document, "spec", "pytorchReplicaSpecs")
    least = raw.dig(document, "spec", "elasticPolicy", "minReplicas")
    found = []
    for name in sorted(roles):
        replicas = raw.dig(roles, name, "replicas")
        wanted = replicas if isinstance(replicas, int) else 1
        status = reading.section(document, "status", "replicaStatuses", name)
        words = (("Running", "active"), ("Succeeded", "succeeded"), ("Failed", "failed"))
        counts = {word: _count(status, key) for word, key in words if _count(status, key)}
        is_elastic = name == "Worker" and isinstance(least, int)
        found.append(Task(name, wanted, least if is_elastic else wanted, counts))
    return found


def _flow_tasks(document: Document) -> list[Task]:
    conditions = reading.section(document, "status", "conditions")
    found = []
    for flow in reading.objects(document, "spec", "flows"):
        name = reading.text(flow, "name")
        job = f"{reading.text(document, 'metadata', 'name')}-{name}"
        found.append(Task(name, 1, 1, {reading.text(conditions, job, "phase") or "Waiting": 1}))
    return found


def _numbers(document: Document) -> dict[str, int]:
    return {name: count for name, count in document.items() if isinstance(count, int)}


_TASKS: Mapping[Dialect, Callable[[Document], list[Task]]] = {
    dialects.BATCH: _batch_tasks,
    dialects.VOLCANO: _volcano_tasks,
    dialects.PYTORCH: _pytorch_tasks,
    dialects.FLOW: _flow_tasks,
}
