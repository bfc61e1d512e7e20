"""What torch.distributed and torchrun read from a pod's environment: who the master is, how many there are, which one
this is, and, for elastic jobs, where they meet. torchrun takes `PET_<OPTION>` for any of its options.

An elastic job is also told its bounds; who its members are at the moment is in a ConfigMap (`making.make_members`)."""

from muster.api import kubeflow
from muster.api.kubeflow.defaults import MASTER, WORKER
from muster.jobs.pytorch import names
from muster.jobs.pytorch.members import Slot


def variables(job: kubeflow.PyTorchJob, role: str, index: int) -> dict[str, str]:
    found = {"PYTHONUNBUFFERED": "1"}  # a log that lags behind is of no use to anybody who watches
    if names.has_master(job):
        address, port = names.pod_name(job.metadata.name, MASTER, 0), str(names.port(job, MASTER))
        rank = str(index + 1 if role == WORKER else index)
        found |= {
            "MASTER_PORT": port,
            "PET_MASTER_PORT": port,
            "MASTER_ADDR": address,
            "PET_MASTER_ADDR": address,
            "WORLD_SIZE": str(names.total_replicas(job) * _processes(job)),
            "RANK": rank,
            "PET_NODE_RANK": rank,
        }
    if job.spec.nproc_per_node is not None:
        found["PET_NPROC_PER_NODE"] = job.spec.nproc_per_node
    if job.spec.elastic_policy is not None:
        return found | _elastic(job, job.spec.elastic_policy, Slot(role, index))
    return {**found, "PET_NNODES": str(names.total_replicas(job))}


def _processes(job: kubeflow.PyTorchJob) -> int:
    """Of each pod, as far as it is known: `auto` is for torchrun to find out."""
    wanted = job.spec.nproc_per_node or ""
    return int(wanted) if wanted.isascii() and wanted.isdecimal() else 1


def _elastic(job: kubeflow.PyTorchJob, policy: kubeflow.ElasticPolicy, slot: Slot) -> dict[str, str]:
    host = policy.rdzv_host or names.pod_name(job.metadata.name, WORKER, 0)
    port = names.port(job, WORKER) if policy.rdzv_port is None else policy.rdzv_port
    backend = policy.rdzv_backend or "c10d"
    low, high = names.bounds(job, policy)
    found = {
        "PET_RDZV_ENDPOINT": f"{host}:{port}",
        "PET_RDZV_BACKEND": backend,
        "PET_NNODES": f"{low}:{high}",
        "MUSTER_MIN_REPLICAS": str(low),
        "MUSTER_MAX_REPLICAS": str(high),
    }
    settings = {setting.key or "": setting.value or "" for setting in policy.rdzv_conf}
    if backend == "c10d" and policy.rdzv_host is None:
        # torchrun would find out by comparing names of machines. Where members share one, whoever comes first would
        # be the host, and the others would lose their meeting point when that one goes.
        settings.setdefault("is_host", "1" if slot == Slot(WORKER, 0) else "0")
    if policy.max_restarts is not None:
        found["PET_MAX_RESTARTS"] = str(policy.max_restarts)
    if policy.n_proc_per_node is not None:
        found["PET_NPROC_PER_NODE"] = str(policy.n_proc_per_node)
    if policy.rdzv_id is not None:
        found["PET_RDZV_ID"] = policy.rdzv_id
    if settings:
        found["PET_RDZV_CONF"] = ",".join(f"{key}={value}" for key, value in settings.items())
    if policy.standalone:
        found["PET_STANDALONE"] = "1"
    return found
