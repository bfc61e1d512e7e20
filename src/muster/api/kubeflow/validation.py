"""Checks of PyTorchJob, as the training operator makes them, and of its pods' templates."""

import re
from collections.abc import Iterator

from muster.api import fields
from muster.api.core.validation import validate_pod_template
from muster.api.errors import FieldError
from muster.api.kubeflow.defaults import CONTAINER, MASTER, WORKER
from muster.api.kubeflow.views import PyTorchJob, PyTorchJobSpec, ReplicaSpec, RunPolicy
from muster.api.kueue.labels import validate_label_update, validate_labels

_ROLES = frozenset({MASTER, WORKER})
_RESTART_POLICIES = frozenset({"Always", "OnFailure", "Never", "ExitCode"})
_CLEAN_POLICIES = frozenset({"None", "Running", "All"})
_MANAGERS = frozenset({"kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"})
_SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LONGEST_NAME = 63 - len("-master-0")
_DEVICES = frozenset({"auto", "cpu", "gpu"})


def validate_pytorch_job(job: PyTorchJob) -> list[FieldError]:
    return list(_job(job))


def _job(job: PyTorchJob) -> Iterator[FieldError]:
    if len(job.metadata.name) > _LONGEST_NAME or _SERVICE_NAME.fullmatch(job.metadata.name) is None:
        yield fields.invalid(
            "metadata.name",
            job.metadata.name,
            f"its services are named after it, so it must be a DNS-1035 label: at most {_LONGEST_NAME} lower case "
            "alphanumeric characters or '-', starting with a letter and ending with an alphanumeric character",
        )
    yield from validate_labels(job.metadata)
    yield from _run_policy("spec.runPolicy", job.spec.run_policy or RunPolicy())
    yield from _processes(job.spec)
    path = "spec.pytorchReplicaSpecs"
    roles = job.spec.pytorch_replica_specs
    if not roles:
        yield fields.required(path)
    for name, role in (roles or {}).items():
        if name not in _ROLES:
            yield fields.unsupported(path, name, _ROLES)
        yield from _role(f"{path}[{name}]", role)
        if name == MASTER and role.replicas not in (None, 1):
            yield fields.invalid(f"{path}[{name}].replicas", role.replicas, "must be 1")
    yield from _elastic(job.spec)
    yield from _gang(job.spec)


def _role(path: str, role: ReplicaSpec) -> Iterator[FieldError]:
    yield from fields.non_negative(f"{path}.replicas", role.replicas)
    yield from fields.one_of(f"{path}.restartPolicy", role.restart_policy, _RESTART_POLICIES)
    yield from validate_pod_template(f"{path}.template", role.template)
    containers = role.template.spec.containers
    if containers and all(container.name != CONTAINER for container in containers):
        yield fields.required(
            f"{path}.template.spec.containers",
            f'Required value: must have at least one container with name "{CONTAINER}"',
        )


def _run_policy(path: str, policy: RunPolicy) -> Iterator[FieldError]:
    yield from fields.one_of(f"{path}.cleanPodPolicy", policy.clean_pod_policy, _CLEAN_POLICIES)
    for name, value in (
        ("activeDeadlineSeconds", policy.active_deadline_seconds),
        ("backoffLimit", policy.backoff_limit),
        ("ttlSecondsAfterFinished", policy.ttl_seconds_after_finished),
    ):
        yield from fields.non_negative(f"{path}.{name}", value)
    yield from fields.one_of(f"{path}.managedBy", policy.managed_by, _MANAGERS)
    if policy.scheduling_policy is not None:
        at = f"{path}.schedulingPolicy"
        yield from fields.non_negative(f"{at}.minAvailable", policy.scheduling_policy.min_available)
        yield from fields.non_negative(
            f"{at}.scheduleTimeoutSeconds", policy.scheduling_policy.schedule_timeout_seconds
        )
        for name, amount in (policy.scheduling_policy.min_resources or {}).items():
            yield from fields.amount(f"{at}.minResources.{name}", amount)


def _gang(spec: PyTorchJobSpec) -> Iterator[FieldError]:
    """More than there are would be waited for without end."""
    gang = (spec.run_policy or RunPolicy()).scheduling_policy
    roles = (spec.pytorch_replica_specs or {}).values()
    total = sum(1 if role.replicas is None else role.replicas for role in roles)
    if gang is not None and gang.min_available is not None and gang.min_available > total:
        message = f"must be at most the number of replicas, which is {total}"
        yield fields.invalid("spec.runPolicy.schedulingPolicy.minAvailable", gang.min_available, message)


def _processes(spec: PyTorchJobSpec) -> Iterator[FieldError]:
    wanted = spec.nproc_per_node
    if (
        wanted is not None
        and wanted not in _DEVICES
        and not (wanted.isascii() and wanted.isdecimal() and int(wanted[:9]))
    ):
        yield fields.invalid("spec.nprocPerNode", wanted, 'must be ["auto", "cpu", "gpu", int]')
    if wanted is not None and spec.elastic_policy is not None and spec.elastic_policy.n_proc_per_node is not None:
        yield fields.forbidden("spec.elasticPolicy.nProcPerNode", "must not be used with spec.nprocPerNode")


def _elastic(spec: PyTorchJobSpec) -> Iterator[FieldError]:
    elastic = spec.elastic_policy
    if elastic is None:
        return
    path = "spec.elasticPolicy"
    if WORKER not in (spec.pytorch_replica_specs or {}):
        yield fields.required("spec.pytorchReplicaSpecs[Worker]", "Required value: workers are what is elastic")
    for name, value in (("minReplicas", elastic.min_replicas), ("nProcPerNode", elastic.n_proc_per_node)):
        yield from fields.positive(f"{path}.{name}", value)
    yield from fields.non_negative(f"{path}.maxRestarts", elastic.max_restarts)
    if elastic.rdzv_port is not None and not 0 < elastic.rdzv_port < 2**16:
        yield fields.invalid(f"{path}.rdzvPort", elastic.rdzv_port, "must be between 1 and 65535, inclusive")
    low, high = elastic.min_replicas, elastic.max_replicas
    if low is not None and high is not None and low > high:
        yield fields.invalid(f"{path}.maxReplicas", high, f"must be at least minReplicas, which is {low}")


def validate_pytorch_job_update(old: PyTorchJob, new: PyTorchJob) -> list[FieldError]:
    before, after = old.spec.run_policy or RunPolicy(), new.spec.run_policy or RunPolicy()
    was, now = bool(before.suspend), bool(after.suspend)
    return [
        *validate_label_update(old.metadata, new.metadata, was_suspended=was, is_suspended=now),
        *fields.immutable("spec.runPolicy.managedBy", before.managed_by, after.managed_by),
    ]
