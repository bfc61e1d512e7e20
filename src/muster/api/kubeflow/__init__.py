"""kubeflow.org: PyTorchJob of the training operator."""

from muster.api.kubeflow.kinds import KINDS, PYTORCH_JOB
from muster.api.kubeflow.views import (
    ElasticPolicy,
    PyTorchJob,
    PyTorchJobSpec,
    PyTorchJobStatus,
    RDZVConf,
    ReplicaSpec,
    ReplicaStatus,
    RunPolicy,
    SchedulingPolicy,
)

__all__ = [
    "KINDS",
    "PYTORCH_JOB",
    "ElasticPolicy",
    "PyTorchJob",
    "PyTorchJobSpec",
    "PyTorchJobStatus",
    "RDZVConf",
    "ReplicaSpec",
    "ReplicaStatus",
    "RunPolicy",
    "SchedulingPolicy",
]
