"""What a Volcano job must look like. Whether its queue exists and is open is asked where queues can be seen."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from muster.api import core, fields, quantity
from muster.api.errors import FieldError
from muster.api.kueue.labels import validate_labels
from muster.api.volcano import graphs
from muster.api.volcano.defaults import ROOT_QUEUE
from muster.api.volcano.policy_validation import validate_duration, validate_policies
from muster.api.volcano.topology_validation import validate_network_topology
from muster.api.volcano.views import Job, JobSpec, JobTemplate, PartitionPolicySpec, TaskSpec, VolumeSpec

PLUGINS = frozenset({"env", "ssh", "svc", "tensorflow", "pytorch", "mpi", "ray", "jax", "hcclrank"})
NUMA_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
ITERATIONS = ("any", "all")
MPI_MASTER_OPTION = "--master"
MPI_MASTER = "master"
_NOT_A_DAG = "job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG)"


def validate_job(job: Job) -> list[FieldError]:
    name = job.metadata.name or f"{job.metadata.generate_name or ''}xxxxx"
    return [*_job_name(name), *validate_labels(job.metadata), *validate_job_spec("spec", job.spec, name)]


def _job_name(name: str) -> Iterator[FieldError]:
    if not fields.is_qualified_name(name):
        yield fields.invalid(
            "metadata.name", name, f"create job with name {name} validate failed: {fields.QUALIFIED_NAME_RULE}"
        )


def validate_job_template(template: JobTemplate) -> list[FieldError]:
    return list(validate_job_spec("spec", template.spec, ""))


def validate_job_spec(path: str, spec: JobSpec, name: str) -> Iterator[FieldError]:
    """`name` is the job's, or empty for a template that has no jobs yet."""
    if not spec.tasks:
        yield fields.required(f"{path}.tasks", "Required value: No task specified in job spec")
        return
    yield from _numbers(path, spec)
    yield from _unique(f"{path}.tasks", "name", "duplicated task name ", [task.name or "" for task in spec.tasks])
    for index, task in enumerate(spec.tasks):
        yield from _task(f"{path}.tasks[{index}]", task, name, index)
    if (spec.min_available or 0) > sum(task.replicas or 0 for task in spec.tasks):
        yield fields.invalid(
            f"{path}.minAvailable",
            spec.min_available,
            "job 'minAvailable' should not be greater than total replicas in tasks",
        )
    yield from validate_policies(f"{path}.policies", spec.policies)
    yield from validate_network_topology(f"{path}.networkTopology", spec.network_topology)
    yield from _plugins(f"{path}.plugins", spec)
    yield from _volumes(f"{path}.volumes", spec.volumes, name)
    yield from _dependencies(f"{path}.tasks", spec.tasks)


def _numbers(path: str, spec: JobSpec) -> Iterator[FieldError]:
    yield from fields.non_negative(f"{path}.minAvailable", spec.min_available)
    yield from fields.positive(f"{path}.minSuccess", spec.min_success)
    yield from fields.non_negative(f"{path}.maxRetry", spec.max_retry)
    yield from fields.non_negative(f"{path}.ttlSecondsAfterFinished", spec.ttl_seconds_after_finished)
    yield from validate_duration(f"{path}.runningEstimate", spec.running_estimate)
    if spec.queue:
        yield from fields.qualified_name(f"{path}.queue", spec.queue)
    if spec.queue == ROOT_QUEUE:
        yield fields.invalid(f"{path}.queue", spec.queue, "can not submit job to root queue")


def _task(path: str, task: TaskSpec, job: str, index: int) -> Iterator[FieldError]:
    where = f"in task: {task.name}, job: {job}"
    if task.name:
        yield from fields.dns_label(f"{path}.name", task.name)
    pod = f"{job}-{task.name}-{index}"
    if job and not fields.is_qualified_name(pod):
        yield fields.invalid(
            f"{path}.name",
            pod,
            f"create pod with name {pod} validate failed: at most 63 characters, of letters, digits, '-' and '.'",
        )
    yield from fields.non_negative(f"{path}.replicas", task.replicas)
    yield from fields.non_negative(f"{path}.minAvailable", task.min_available)
    if (task.min_available or 0) > (task.replicas or 0) >= 0:
        yield fields.invalid(
            f"{path}.minAvailable", task.min_available, f"'minAvailable' is greater than 'replicas' {where}"
        )
    if task.max_retry is not None and task.max_retry < -1:
        yield fields.invalid(
            f"{path}.maxRetry", task.max_retry, "must be greater than or equal to -1, which means never"
        )
    yield from validate_policies(f"{path}.policies", task.policies)
    if task.partition_policy is not None:
        yield from _partitions(f"{path}.partitionPolicy", task.partition_policy, task, where)
    if task.topology_policy:
        yield from _numa(path, task, task.topology_policy)
    if task.depends_on is not None and task.depends_on.iteration:
        yield from fields.one_of(f"{path}.dependsOn.iteration", task.depends_on.iteration, ITERATIONS)
    yield from core.validate_pod_template(f"{path}.template", task.template)


def _partitions(path: str, policy: PartitionPolicySpec, task: TaskSpec, where: str) -> Iterator[FieldError]:
    total, size, least = policy.total_partitions or 0, policy.partition_size or 0, policy.min_partitions or 0
    if total <= 0:
        yield fields.invalid(f"{path}.totalPartitions", total, f"'TotalPartitions' must be greater than 0 {where}")
    if size <= 0:
        yield fields.invalid(f"{path}.partitionSize", size, f"'PartitionSize' must be greater than 0 {where}")
    if total > 0 and size > 0 and (task.replicas or 0) != total * size:
        yield fields.invalid(path, task.replicas, f"'Replicas' are not equal to TotalPartitions*PartitionSize {where}")
    yield from fields.non_negative(f"{path}.minPartitions", policy.min_partitions)
    if least > 0 and size > 0 and task.min_available is not None and task.min_available != least * size:
        yield fields.invalid(
            f"{path}.minPartitions", least, f"'MinAvailable' is not equal to MinPartitions*PartitionSize {where}"
        )
    yield from validate_network_topology(f"{path}.networkTopology", policy.network_topology)


def _numa(path: str, task: TaskSpec, policy: str) -> Iterator[FieldError]:
    yield from fields.one_of(f"{path}.topologyPolicy", policy, NUMA_POLICIES)
    if policy == "none":
        return
    for index, container in enumerate(task.template.spec.containers):
        if not _is_whole_cpus(container):
            yield fields.invalid(
                f"{path}.template.spec.containers[{index}].resources.requests[cpu]",
                container.name,
                "the cpu request must be a whole number greater than 0 where topologyPolicy is set",
            )


def _is_whole_cpus(container: core.Container) -> bool:
    resources = container.resources or core.ResourceRequirements()
    asked = (resources.requests or {}).get("cpu") or (resources.limits or {}).get("cpu") or "0"
    try:
        amount = quantity.parse(asked)
    except quantity.BadQuantity:
        return True  # an error of its own
    return amount.is_whole and amount > quantity.ZERO


def _plugins(path: str, spec: JobSpec) -> Iterator[FieldError]:
    for name in spec.plugins or {}:
        if name not in PLUGINS:
            yield fields.invalid(f"{path}.{name}", name, f"unable to find job plugin: {name}")
    if spec.plugins is not None and "mpi" in spec.plugins:
        master = _option(spec.plugins["mpi"] or (), MPI_MASTER_OPTION) or MPI_MASTER
        if master not in [task.name for task in spec.tasks]:
            yield fields.invalid(f"{path}.mpi", master, "The specified mpi master task was not found")


def _option(arguments: tuple[str, ...], option: str) -> str:
    """The value of `--option=value` or `--option value`; the last one counts."""
    found = ""
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name.lstrip("-") == option.lstrip("-"):
            found = value if equals else "".join(arguments[index + 1 : index + 2])
    return found


def _unique(path: str, field: str, message: str, values: Sequence[str]) -> Iterator[FieldError]:
    """Each value at most once, told in Volcano's words; an absent one is an error of its own."""
    seen: set[str] = set()
    for index, value in enumerate(values):
        if value and value in seen:
            error = fields.duplicate(f"{path}[{index}].{field}", value)
            yield replace(error, message=f"{error.message}: {message}{value}")
        seen.add(value)


def _volumes(path: str, volumes: tuple[VolumeSpec, ...], job: str) -> Iterator[FieldError]:
    yield from _unique(path, "mountPath", "duplicated mountPath: ", [volume.mount_path for volume in volumes])
    for index, volume in enumerate(volumes):
        at = f"{path}[{index}]"
        if not volume.mount_path:
            yield fields.required(f"{at}.mountPath", "Required value: mountPath is required")
        claim, name = volume.volume_claim is not None, volume.volume_claim_name
        if not claim and not name:
            yield fields.required(at, "Required value: either VolumeClaim or VolumeClaimName must be specified")
        # The controller writes the name of the claim that it made for the job back into the spec.
        if claim and name and not name.startswith(f"{job}-pvc-"):
            yield fields.invalid(
                at,
                name,
                "conflict: give volumeClaimName to use a claim that exists, or volumeClaim to have one made, not both",
            )
        if name:
            for error in fields.dns_subdomain(f"{at}.volumeClaimName", name):
                yield replace(error, message=f"{error.message}: invalid VolumeClaimName {name}")


def _dependencies(path: str, tasks: tuple[TaskSpec, ...]) -> Iterator[FieldError]:
    graph = {task.name or "": task.depends_on.name if task.depends_on else () for task in tasks}
    undefined, cycle = graphs.find_undefined(graph), graphs.find_cycle(graph)
    if undefined:
        yield fields.invalid(path, undefined[0], f"{_NOT_A_DAG}: there is no task of this name")
    if cycle:
        yield fields.invalid(path, " -> ".join(cycle), _NOT_A_DAG)
