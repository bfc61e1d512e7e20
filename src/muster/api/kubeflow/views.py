"""Views of kubeflow.org/v1 PyTorchJob, as the training operator defines it."""

from collections.abc import Mapping
from typing import Annotated

from muster.api.core import PodTemplateSpec
from muster.api.meta import OPAQUE, Condition, LabelSelector, Resource, View, merge_by
from muster.api.scalars import Int32, Int64, ResourceList


class ReplicaSpec(View, frozen=True):
    """One role of the job (Master or Worker): how many pods and what they look like."""

    replicas: Int32 | None = None
    restart_policy: str | None = None
    template: PodTemplateSpec = PodTemplateSpec()


class SchedulingPolicy(View, frozen=True):
    """How the pods are scheduled as a gang."""

    min_available: Int32 | None = None
    min_resources: ResourceList | None = None
    priority_class: str | None = None
    queue: str | None = None
    schedule_timeout_seconds: Int32 | None = None


class RunPolicy(View, frozen=True):
    """How long the job may take, how often it is retried, and what is cleaned up after it."""

    active_deadline_seconds: Int64 | None = None
    backoff_limit: Int32 | None = None
    clean_pod_policy: str | None = None
    managed_by: str | None = None
    scheduling_policy: SchedulingPolicy | None = None
    suspend: bool | None = None
    ttl_seconds_after_finished: Int32 | None = None


class RDZVConf(View, frozen=True):
    """One setting of the rendezvous backend."""

    key: str | None = None
    value: str | None = None


class ElasticPolicy(View, frozen=True):
    """Lets the number of workers change while the job runs (torchrun)."""

    max_replicas: Int32 | None = None
    max_restarts: Int32 | None = None
    metrics: tuple[Annotated[Mapping[str, object], OPAQUE], ...] = ()
    min_replicas: Int32 | None = None
    n_proc_per_node: Int32 | None = None
    rdzv_backend: str | None = None
    rdzv_conf: tuple[RDZVConf, ...] = ()
    rdzv_host: str | None = None
    rdzv_id: str | None = None
    rdzv_port: Int32 | None = None
    standalone: bool | None = None


class PyTorchJobSpec(View, frozen=True):
    """The roles of the job and how it runs."""

    elastic_policy: ElasticPolicy | None = None
    nproc_per_node: str | None = None
    pytorch_replica_specs: Mapping[str, ReplicaSpec] | None = None
    run_policy: RunPolicy | None = None


class ReplicaStatus(View, frozen=True):
    """How the pods of one role fare."""

    active: Int32 | None = None
    failed: Int32 | None = None
    label_selector: LabelSelector | None = None
    selector: str | None = None
    succeeded: Int32 | None = None


class PyTorchJobStatus(View, frozen=True):
    """How the job fares."""

    completion_time: str | None = None
    conditions: Annotated[tuple[Condition, ...], merge_by("type")] = ()
    last_reconcile_time: str | None = None
    replica_statuses: Mapping[str, ReplicaStatus] | None = None
    start_time: str | None = None


class PyTorchJob(Resource, frozen=True):
    """Distributed PyTorch training: a master and workers that find each other by themselves."""

    spec: PyTorchJobSpec = PyTorchJobSpec()
    status: PyTorchJobStatus = PyTorchJobStatus()
