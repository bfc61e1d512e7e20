"""What torch.distributed and torchrun read from a pod's environment: who the master is, how many there are, which one
this is, and, for elastic jobs, where they meet. torchrun takes `PET_<OPTION>` for any of its options."""

from muster.api import kubeflow
from muster.api.kubeflow.defaults import MASTER, WORKER
from muster.jobs.pytorch import names


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
        return found | _elastic(job, job.spec.elastic_policy)
    return {**found, "PET_NNODES": str(names.total_replicas(job))}


def _processes(job: kubeflow.PyTorchJob) -> int:
    """Of each pod, as far as it is known: `auto` is for torchrun to find out."""
    wanted = job.spec.nproc_per_node or ""
    return int(wanted) if wanted.isascii() and wanted.isdecimal() else 1


def _elastic(job: kubeflow.PyTorchJob, policy: kubeflow.ElasticPolicy) -> dict[str, str]:
    host = policy.rdzv_host or names.pod_name(job.metadata.name, WORKER, 0)
    port = names.port(job, WORKER) if policy.rdzv_port is None else policy.rdzv_port
    found = {
        "PET_RDZV_ENDPOINT": f"{host}:{port}",
        "PET_RDZV_BACKEND": policy.rdzv_backend or "c10d",
        "PET_NNODES": _nodes(job, policy),
    }
    if policy.max_restarts is not None:
        found["PET_MAX_RESTARTS"] = str(policy.max_restarts)
    if policy.n_proc_per_node is not None:
        found["PET_NPROC_PER_NODE"] = str(policy.n_proc_per_node)
    if policy.rdzv_id is not None:
        found["PET_RDZV_ID"] = policy.rdzv_id
    if policy.rdzv_conf:
        found["PET_RDZV_CONF"] = ",".join(f"{setting.key}={setting.value}" for setting in policy.rdzv_conf)
    if policy.standalone:
        found["PET_STANDALONE"] = ""
    return found


def _nodes(job: kubeflow.PyTorchJob, policy: kubeflow.ElasticPolicy) -> str:
    worker = (job.spec.pytorch_replica_specs or {}).get(WORKER, kubeflow.ReplicaSpec(replicas=0))
    count = names.replicas(worker)
    low = count if policy.min_replicas is None else policy.min_replicas
    high = max(low, count) if policy.max_replicas is None else policy.max_replicas
    return f"{low}:{high}"
