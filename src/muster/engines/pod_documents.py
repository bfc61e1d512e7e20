"""The objects that stand for a request: an Allocation, the Secret of its variables, its LocalQueue and priority."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from muster.api import kueue, muster, raw
from muster.api.documents import made_child, objects
from muster.api.kueue.names import PRIORITY_CLASS_LABEL
from muster.api.muster.names import ALLOCATION_LABEL, RANK_LABEL, TASK_LABEL, TASK_TYPE_LABEL
from muster.api.raw import Document
from muster.api.selectors import Operator, Requirement
from muster.api.volcano.preemptable import PREEMPTABLE
from muster.engines.protocol import DEFAULT_PRIORITY, Request
from muster.engines.sizing import DEFAULT_POOL, Shape

ENGINE_LABEL: Final = "muster.dev/engine"
"""On what an engine has made: only that is its to clean up."""
GRACE_SECONDS: Final = 3
"""Between asking a program to end and killing it, where its template says nothing. Who can save its work is asked long
before that, by a preemption; the others are waited for by whoever killed them."""


@dataclass(frozen=True, slots=True)
class Customs:
    """How things are done in a cluster. `scheduler`: by name, the one that places our pods; empty for the usual one.
    `has_services`: whether Services lead to pods there; `is_proxied_by_service`: whether we reach pods by them.
    `engine`: by which we know our own, where other servers have tasks as well."""

    scheduler: str = ""
    has_services: bool = False
    is_proxied_by_service: bool = False
    engine: str = "pods"

    def ours(self) -> Requirement:
        """Of what we have made."""
        return Requirement(ENGINE_LABEL, Operator.IN, frozenset({self.engine}))


USUAL: Final = Customs()


def allocation(request: Request, shape: Shape, secrets: Mapping[str, str], customs: Customs = USUAL) -> Document:
    pool = request.pool or DEFAULT_POOL
    metadata: Document = {
        "name": request.allocation,
        "namespace": request.namespace,
        "labels": {
            ENGINE_LABEL: customs.engine,
            TASK_LABEL: request.task,
            TASK_TYPE_LABEL: request.task_type,
            PRIORITY_CLASS_LABEL: priority_class_name(request.priority),
        },
    }
    template = _template(request, shape, secrets)
    made_child(made_child(template, "metadata"), "labels")[ENGINE_LABEL] = customs.engine
    if customs.scheduler:
        template["spec"].setdefault("schedulerName", customs.scheduler)
    if not request.is_preemptible:
        metadata["annotations"] = {PREEMPTABLE: "false"}
        made_child(made_child(template, "metadata"), "annotations").setdefault(PREEMPTABLE, "false")
    return {
        "metadata": metadata,
        "spec": {
            "taskId": request.task,
            "jobId": request.job,
            "name": request.name,
            "taskType": request.task_type,
            "pool": pool,
            "queueName": pool,
            "priority": request.priority,
            "slots": request.slots,
            "pods": shape.pods,
            "template": template,
            "isPreemptible": request.is_preemptible,
            "preemptionTimeoutSeconds": request.preemption_timeout_seconds,
            "owner": request.owner,
        },
    }


def _template(request: Request, shape: Shape, secrets: Mapping[str, str]) -> Document:
    template: Document = raw.copy(request.template)
    spec = made_child(template, "spec")
    spec.setdefault("terminationGracePeriodSeconds", GRACE_SECONDS)
    slots = raw.encode(list(range(shape.slots_per_pod))).decode()
    added: list[Document] = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": request.allocation, "key": name}}}
        for name in sorted(secrets)
    ]
    added.append({"name": "DET_SLOT_IDS", "value": slots})
    names = {variable["name"] for variable in added}
    containers = [*objects(spec, "initContainers"), *objects(spec, "containers")]
    for container in containers:
        kept = [variable for variable in objects(container, "env") if variable.get("name") not in names]
        container["env"] = [*added, *kept]
    for container in list(objects(spec, "containers"))[:1]:
        asked = made_child(container, "resources")
        for part, amounts in shape.resources().items():
            section = made_child(asked, part)
            for name, amount in amounts.items():
                section.setdefault(name, amount)
    return template


def secret(request: Request, secrets: Mapping[str, str], customs: Customs = USUAL) -> Document:
    data = {name: base64.b64encode(value.encode()).decode() for name, value in secrets.items()}
    return {
        "metadata": {
            "name": request.allocation,
            "namespace": request.namespace,
            "labels": {ENGINE_LABEL: customs.engine, ALLOCATION_LABEL: request.allocation},
        },
        "data": data,
    }


def service(request: Request, customs: Customs) -> Document:
    """Leads to the first of its pods."""
    return {
        "metadata": {
            "name": service_name(request),
            "namespace": request.namespace,
            "labels": {ENGINE_LABEL: customs.engine, ALLOCATION_LABEL: request.allocation, TASK_LABEL: request.task},
        },
        "spec": {
            "selector": {ALLOCATION_LABEL: request.allocation, RANK_LABEL: "0"},
            "ports": [{"name": f"port-{port}", "port": port, "protocol": "TCP"} for port in request.services],
        },
    }


def service_name(request: Request) -> str:
    """Those of Services have no dots, and begin with a letter."""
    return f"task-{request.allocation.replace('.', '-')}"


def service_host(request: Request, address: str) -> str:
    """Where its Service is; where it has none, `address`."""
    return f"{service_name(request)}.{request.namespace}.svc" if request.services else address


def owned_by(owner_uid: str, name: str) -> Document:
    """So that it goes with the allocation."""
    kind = muster.ALLOCATION
    reference = {"apiVersion": kind.api_version, "kind": kind.name, "name": name, "uid": owner_uid}
    return {"metadata": {"ownerReferences": [reference]}}


def local_queue(namespace: str, pool: str) -> Document:
    return {"metadata": {"name": pool, "namespace": namespace}, "spec": {"clusterQueue": pool}}


def priority_class_name(priority: int) -> str:
    return f"task-priority-{priority}"


def priority_class(priority: int) -> Document:
    """The lower the number the more urgent; the usual one counts as a job that names no class."""
    return {
        "apiVersion": kueue.WORKLOAD_PRIORITY_CLASS.api_version,
        "kind": kueue.WORKLOAD_PRIORITY_CLASS.name,
        "metadata": {"name": priority_class_name(priority)},
        "value": DEFAULT_PRIORITY - priority,
        "description": f"tasks of priority {priority}, as Determined counts it",
    }
