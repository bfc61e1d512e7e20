"""The labels by which the training operator's pods are known, and names that are made of others."""

from collections.abc import Sequence

from msgspec.structs import replace

from muster.api import kubeflow
from muster.api.kubeflow.defaults import CONTAINER, MASTER, PORT, PORT_NAME, WORKER
from muster.api.kueue import sizing

OPERATOR = "training.kubeflow.org/operator-name"
JOB = "training.kubeflow.org/job-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_ROLE = "training.kubeflow.org/job-role"
OPERATOR_NAME = "pytorchjob-controller"
OUR_MANAGER = "kubeflow.org/training-operator"

RESTARTS = "muster.dev/restarts"
"""On a job: how many of its pods were replaced because they had failed. The status of a PyTorchJob has no place for it,
and the pods that it counts are gone. Where the answer to a write is lost one may count twice, but none is missed."""

ROLES = (MASTER, WORKER)


def roles(job: kubeflow.PyTorchJob) -> Sequence[tuple[str, kubeflow.ReplicaSpec]]:
    """Those that the job has, the master first."""
    specs = job.spec.pytorch_replica_specs or {}
    return [(role, specs[role]) for role in ROLES if role in specs]


def replicas(spec: kubeflow.ReplicaSpec) -> int:
    return 1 if spec.replicas is None else spec.replicas


def total_replicas(job: kubeflow.PyTorchJob) -> int:
    return sum(replicas(spec) for _, spec in roles(job))


def sized(job: kubeflow.PyTorchJob) -> kubeflow.PyTorchJob:
    """The job with as many pods as quota lets it have now: never more than it wants."""
    sizes = sizing.read_sizes(job.metadata.annotations)
    if not sizes or job.spec.elastic_policy is None:
        return job
    specs = {
        role: replace(spec, replicas=min(replicas(spec), sizes.get(role.lower(), replicas(spec))))
        for role, spec in roles(job)
    }
    return replace(job, spec=replace(job.spec, pytorch_replica_specs=specs))


def bounds(job: kubeflow.PyTorchJob, policy: kubeflow.ElasticPolicy) -> tuple[int, int]:
    """How few workers an elastic job can do with, and how many it can use."""
    worker = (job.spec.pytorch_replica_specs or {}).get(WORKER, kubeflow.ReplicaSpec(replicas=0))
    count = replicas(worker)
    low = count if policy.min_replicas is None else policy.min_replicas
    return low, max(low, count) if policy.max_replicas is None else policy.max_replicas


def least_members(job: kubeflow.PyTorchJob) -> int:
    """Without which the job does not start: all, or where it is elastic as many as it can do with."""
    elastic = job.spec.elastic_policy
    if elastic is None:
        return total_replicas(job)
    low = bounds(job, elastic)[0]
    return sum(min(replicas(spec), low) if role == WORKER else replicas(spec) for role, spec in roles(job))


def members_name(job: str) -> str:
    """Of the ConfigMap that lists them."""
    return f"{job}-members"


def has_master(job: kubeflow.PyTorchJob) -> bool:
    return MASTER in (job.spec.pytorch_replica_specs or {})


def policy(job: kubeflow.PyTorchJob) -> kubeflow.RunPolicy:
    return job.spec.run_policy or kubeflow.RunPolicy()


def pod_name(job: str, role: str, index: int) -> str:
    """Also that of the Service in front of the pod."""
    return f"{job}-{role.lower()}-{index}"


def role_labels(job: str, role: str) -> dict[str, str]:
    return {JOB: job, OPERATOR: OPERATOR_NAME, REPLICA_TYPE: role.lower()}


def labels(job: str, role: str, index: int) -> dict[str, str]:
    found = {**role_labels(job, role), REPLICA_INDEX: str(index)}
    return {**found, JOB_ROLE: "master"} if role == MASTER else found


def port(job: kubeflow.PyTorchJob, role: str) -> int:
    """Where the pods of this role meet."""
    spec = (job.spec.pytorch_replica_specs or {}).get(role, kubeflow.ReplicaSpec())
    for container in spec.template.spec.containers:
        if container.name == CONTAINER:
            for listed in container.ports:
                if listed.name == PORT_NAME:
                    return listed.container_port or PORT
    return PORT


def meeting_points(job: kubeflow.PyTorchJob) -> Sequence[tuple[str, int]]:
    """Role and index of the pods that the others look for by name: each has a Service. (The operator makes one for
    every pod, although nobody is told the names of the others.)"""
    found = [(MASTER, 0)] if has_master(job) else []
    elastic = job.spec.elastic_policy
    meets_at_worker = elastic is not None and elastic.rdzv_host is None
    worker = (job.spec.pytorch_replica_specs or {}).get(WORKER)
    if worker is not None and replicas(worker) > 0 and (meets_at_worker or not has_master(job)):
        found.append((WORKER, 0))
    return found
