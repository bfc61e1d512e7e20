"""Jobs and their pods for tests of the pure core: short to write, and with what the store would have filled in."""

from collections.abc import Collection, Sequence

from muster.api import batch, core, raw, timestamps
from muster.api.meta import Instant
from muster.api.objects import view_of
from muster.api.raw import JSON, Document
from muster.jobs.batch import Plan, plan

NOW = Instant(1_767_225_600.0)
NOW_TEXT = timestamps.to_text(NOW)
TRACKING = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"


def at(seconds: float) -> str:
    """The text of the instant so many seconds after NOW."""
    return timestamps.to_text(Instant(NOW + seconds))


def job_document(status: Document | None = None, pod: Document | None = None, **spec: JSON) -> Document:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}], **(pod or {})}}
    document: Document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default", "uid": "job-uid", "resourceVersion": "7"},
        "spec": {"template": template, **spec},
        "status": status or {},
    }
    document = raw.copy(document)
    batch.JOB.default(document)
    return document


def a_job(status: Document | None = None, pod: Document | None = None, **spec: JSON) -> batch.Job:
    return as_job(job_document(status, pod, **spec))


def indexed(completions: int, parallelism: int | None = None, **spec: JSON) -> batch.Job:
    many = completions if parallelism is None else parallelism
    return a_job(completionMode="Indexed", completions=completions, parallelism=many, **spec)


def as_job(document: Document) -> batch.Job:
    found = view_of(batch.JOB, document)
    assert isinstance(found, batch.Job)
    return found


def as_pod(document: Document) -> core.Pod:
    found = view_of(core.POD, document)
    assert isinstance(found, core.Pod)
    return found


def a_pod(
    name: str,
    phase: str = "Running",
    *,
    index: int | None = None,
    ended: float | None = None,
    exit_code: int | None = None,
    failures: int | None = None,
    ignored: int = 0,
    deleted: int | None = None,
    tracked: bool = True,
    bound: bool = True,
    restarts: int = 0,
    conditions: Sequence[str] = (),
) -> core.Pod:
    """`ended`: seconds after NOW. `deleted`: with so many seconds to end. `conditions`: those that are true."""
    annotations = {
        key: str(value)
        for key, value in ((INDEX, index), (FAILURES, failures), (IGNORED, ignored or None))
        if value is not None
    }
    metadata: Document = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "creationTimestamp": at(-1000),
        "annotations": annotations,
        "finalizers": [TRACKING] if tracked else [],
    }
    if deleted is not None:
        metadata |= {"deletionTimestamp": at(deleted), "deletionGracePeriodSeconds": deleted}
    container: Document = {"name": "main", "restartCount": restarts, "image": "", "imageID": "", "ready": False}
    if phase in ("Succeeded", "Failed"):
        code = exit_code if exit_code is not None else int(phase == "Failed")
        container["state"] = {"terminated": {"exitCode": code, "finishedAt": at(-500 if ended is None else ended)}}
    return as_pod(
        {
            "metadata": metadata,
            "spec": {"nodeName": "n" if bound else None, "containers": []},
            "status": {
                "phase": phase,
                "conditions": [{"type": type, "status": "True"} for type in conditions],
                "containerStatuses": [container],
            },
        }
    )


def decide(job: batch.Job, pods: Sequence[core.Pod] = (), after: float = 0.0, taken: Collection[str] = ()) -> Plan:
    return plan(job, pods, Instant(NOW + after), taken)


def status_of(decided: Plan) -> Document:
    """What of the status is to change."""
    return decided.status or {}


def settle(job: Document, pods: Sequence[core.Pod] = ()) -> tuple[Plan, Document]:
    """A plan, and the job with its status written."""
    decided = decide(as_job(job), pods)
    return decided, written(job, decided)


def written(job: Document, decided: Plan) -> Document:
    after: Document = raw.copy(job)
    merge(after["status"], decided.status or {})
    return after


def merge(into: Document, patch: Document) -> None:
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


def conditions_of(status: Document) -> dict[str, tuple[str, str, str]]:
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in status.get("conditions") or []}
