"""Jobs of every dialect as their controllers leave them, for tests."""

from typing import Any

from muster.api.raw import Document
from muster.sdk import dialects
from muster.sdk.dialects import Dialect, Job

CREATED = "2026-01-01T00:00:00Z"


def a_job(dialect: Dialect, name: str = "train", *, labels: Any = None, **sections: Any) -> Job:
    metadata: Document = {"name": name, "namespace": "default", "uid": f"uid-{name}", "creationTimestamp": CREATED}
    if labels:
        metadata["labels"] = labels
    metadata |= sections.pop("metadata", {})
    resource = dialect.resource
    return Job(dialect, {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **sections})


def a_condition(type: str, status: str = "True", message: str = "", at: str = CREATED) -> Document:
    return {"type": type, "status": status, "message": message, "lastTransitionTime": at}


def batch(*conditions: Document, spec: Any = None, labels: Any = None, **status: Any) -> Job:
    asked = {"completions": 4, "parallelism": 2, **(spec or {})}
    return a_job(dialects.BATCH, labels=labels, spec=asked, status={**status, "conditions": list(conditions)})


def volcano(phase: str = "Running", *, spec: Any = None, **status: Any) -> Job:
    tasks = [
        {"name": "ps", "replicas": 1, "minAvailable": 1},
        {"name": "worker", "replicas": 3, "minAvailable": 3},
    ]
    asked = {"queue": "gold", "minAvailable": 4, "tasks": tasks, **(spec or {})}
    return a_job(dialects.VOLCANO, spec=asked, status={"state": {"phase": phase}, **status})


def pytorch(*conditions: Document, spec: Any = None, labels: Any = None, **replicas: Any) -> Job:
    roles = {"Master": {"replicas": 1}, "Worker": {"replicas": 3}}
    asked = {"pytorchReplicaSpecs": roles, "runPolicy": {}, **(spec or {})}
    return a_job(
        dialects.PYTORCH,
        labels=labels,
        spec=asked,
        status={"conditions": list(conditions), "replicaStatuses": replicas},
    )


def flow(phase: str, **status: Any) -> Job:
    flows = [{"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"]}}]
    return a_job(dialects.FLOW, "pipe", spec={"flows": flows}, status={"state": {"phase": phase}, **status})


def cron(*, suspend: bool = False, **status: Any) -> Job:
    return a_job(dialects.CRON, "nightly", spec={"schedule": "0 3 * * *", "suspend": suspend}, status=status)


def a_pod(
    name: str, phase: str = "Running", *, owner: str = "uid-train", code: int | None = None, **more: Any
) -> Document:
    state = {"terminated": {"exitCode": code, "finishedAt": CREATED}} if code is not None else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "creationTimestamp": CREATED,
            "ownerReferences": [{"kind": "Job", "name": "train", "uid": owner, "controller": True}],
            **more.pop("metadata", {}),
        },
        "spec": {"nodeName": more.pop("node", ""), "containers": [{"name": "main"}]},
        "status": {"phase": phase, "containerStatuses": [{"state": state}], **more},
    }


def a_workload(*conditions: Document, active: bool = True, **more: Any) -> Document:
    return {
        "metadata": {"name": "wl-train", "namespace": "default", "ownerReferences": [{"uid": "uid-train"}]},
        "spec": {"active": active, **more.pop("spec", {})},
        "status": {"conditions": list(conditions), **more},
    }
