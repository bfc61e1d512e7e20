"""The documents of what a job consists of: its pods, the Services by which they find each other, and their gang."""

from collections.abc import Mapping, Sequence

from muster.api import kubeflow, patching, raw, volcano
from muster.api.documents import child, objects
from muster.api.kubeflow.defaults import PORT_NAME
from muster.api.raw import JSON, Document
from muster.jobs.pytorch import environment, names
from muster.jobs.pytorch.members import Slot
from muster.jobs.volcano import minimum
from muster.jobs.volcano.names import GROUP, TASK
from muster.jobs.volcano.plugins.changing import set_variables

MEMBERS_VOLUME = "muster-members"
MEMBERS_PATH = "/etc/muster"


def make_pods(job: kubeflow.PyTorchJob, document: Document, wanted: Sequence[Slot]) -> list[Document]:
    """`document`: the job as stored."""
    return [_pod(job, document, slot) for slot in wanted]


def owner_reference(job: kubeflow.PyTorchJob) -> Document:
    return {
        "apiVersion": kubeflow.PYTORCH_JOB.api_version,
        "kind": kubeflow.PYTORCH_JOB.name,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _pod(job: kubeflow.PyTorchJob, document: Document, slot: Slot) -> Document:
    role = child(document, "spec", "pytorchReplicaSpecs", slot.role)
    template: Document = raw.copy(child(role, "template"))
    metadata, spec = child(template, "metadata"), child(template, "spec")
    restarts = role.get("restartPolicy")
    # Kubelets know nothing of exit codes: there the job decides, and replaces the pod.
    spec["restartPolicy"] = "Never" if restarts == "ExitCode" else restarts
    added = environment.variables(job, slot.role, slot.number)
    for container in objects(spec, "containers"):
        set_variables(container, added)
    if job.spec.elastic_policy is not None:
        _show_members(job, spec)
    annotations = {**child(metadata, "annotations"), TASK: slot.role.lower(), GROUP: job.metadata.name}
    made = _metadata(job, slot)
    made["labels"] = {**child(metadata, "labels"), **made["labels"]}
    return {"metadata": {**made, "annotations": annotations}, "spec": spec}


def _show_members(job: kubeflow.PyTorchJob, spec: Document) -> None:
    source = {"name": MEMBERS_VOLUME, "configMap": {"name": names.members_name(job.metadata.name), "optional": True}}
    spec["volumes"] = [*objects(spec, "volumes"), source]
    for container in objects(spec, "containers"):
        mount = {"name": MEMBERS_VOLUME, "mountPath": MEMBERS_PATH}
        container["volumeMounts"] = [*objects(container, "volumeMounts"), mount]


def make_members(job: kubeflow.PyTorchJob) -> Document | None:
    """A ConfigMap of who is in an elastic job, by role and line by line, for them to read while they run. None: the job
    is not elastic, and all know from the beginning."""
    if job.spec.elastic_policy is None:
        return None
    listed = {
        f"{role.lower()}.host": "".join(
            f"{names.pod_name(job.metadata.name, role, index)}\n" for index in range(names.replicas(spec))
        )
        for role, spec in names.roles(job)
    }
    return {
        "metadata": {
            "name": names.members_name(job.metadata.name),
            "namespace": job.metadata.namespace,
            "ownerReferences": [owner_reference(job)],
        },
        "data": listed,
    }


def make_service(job: kubeflow.PyTorchJob, slot: Slot) -> Document:
    """Headless: the name stands for the pod itself."""
    port = names.port(job, slot.role)
    return {
        "metadata": _metadata(job, slot),
        "spec": {
            "clusterIP": "None",
            "selector": names.labels(job.metadata.name, slot.role, slot.number),
            "ports": [{"name": PORT_NAME, "port": port, "protocol": "TCP", "targetPort": port}],
        },
    }


def _metadata(job: kubeflow.PyTorchJob, slot: Slot) -> Document:
    return {
        "name": names.pod_name(job.metadata.name, slot.role, slot.number),
        "namespace": job.metadata.namespace,
        "labels": names.labels(job.metadata.name, slot.role, slot.number),
        "ownerReferences": [owner_reference(job)],
    }


def make_group(job: kubeflow.PyTorchJob) -> Document:
    return {
        "metadata": {
            "name": job.metadata.name,
            "namespace": job.metadata.namespace,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": _group_spec(job),
    }


def group_changes(job: kubeflow.PyTorchJob, group: volcano.PodGroup) -> Document | None:
    """What to merge into the gang after the job was edited. Its queue stays."""
    wanted = _group_spec(job)
    found: Document = {
        "minMember": group.spec.min_member or 0,
        "minResources": dict(group.spec.min_resources or {}),
    }
    changed = patching.difference(found, {name: wanted[name] for name in found})
    return {"spec": changed} if changed else None


def _group_spec(job: kubeflow.PyTorchJob) -> Document:
    policy = names.policy(job).scheduling_policy or kubeflow.SchedulingPolicy()
    members = names.least_members(job) if policy.min_available is None else policy.min_available
    least: Mapping[str, JSON] | None = policy.min_resources
    if least is None:
        parts = [
            minimum.Part(minimum.usage(spec.template.spec), names.replicas(spec), None) for _, spec in names.roles(job)
        ]
        least = {name: str(amount) for name, amount in minimum.by_priority(parts, members).items()}
    spec: Document = {"minMember": members, "minResources": dict(least)}
    if policy.queue:
        spec["queue"] = policy.queue
    if policy.priority_class:
        spec["priorityClassName"] = policy.priority_class
    return spec
