"""Tables of the kinds of Kueue, Volcano and Kubeflow, with the columns that their own CRDs print; and of our own."""

from collections.abc import Callable, Mapping, Sequence

from muster.api import kubeflow, kueue, muster, volcano
from muster.api.kinds import Kind
from muster.api.meta import Instant
from muster.api.objects import Object
from muster.api.raw import JSON
from muster.server.columns.printing import AGE, NAME, Column, Printer, age, condition


def _printer(columns: Sequence[Column], cells: Callable[[Object], Sequence[JSON]]) -> Printer:
    """Name first, age last: so all of these have it. Columns of wide output follow the age."""
    shown = tuple(column for column in columns if column.priority == 0)
    wide = tuple(column for column in columns if column.priority)

    def row(found: Object, now: Instant) -> Sequence[JSON]:
        values = list(cells(found))
        return (found.key.name, *values[: len(shown)], age(found, now), *values[len(shown) :])

    return Printer((NAME, *shown, AGE, *wide), row)


def _cluster_queue(found: Object) -> Sequence[JSON]:
    queue = found.read(kueue.ClusterQueue)
    spec, status = queue.spec, queue.status
    return (
        spec.cohort_name or "",
        status.pending_workloads or 0,
        spec.queueing_strategy or "",
        status.admitted_workloads or 0,
    )


def _local_queue(found: Object) -> Sequence[JSON]:
    queue = found.read(kueue.LocalQueue)
    return queue.spec.cluster_queue, queue.status.pending_workloads or 0, queue.status.admitted_workloads or 0


def _workload(found: Object) -> Sequence[JSON]:
    workload = found.read(kueue.Workload)
    status = workload.status
    admission = status.admission
    return (
        workload.spec.queue_name or "",
        admission.cluster_queue if admission else "",
        condition(status.conditions, "Admitted"),
        condition(status.conditions, "Finished"),
    )


def _flavor(found: Object) -> Sequence[JSON]:
    return (found.read(kueue.ResourceFlavor).spec.topology_name or "",)


def _cohort(found: Object) -> Sequence[JSON]:
    return (found.read(kueue.Cohort).spec.parent_name or "",)


def _workload_priority_class(found: Object) -> Sequence[JSON]:
    return (found.read(kueue.WorkloadPriorityClass).value or 0,)


def _admission_check(found: Object) -> Sequence[JSON]:
    check = found.read(kueue.AdmissionCheck)
    return check.spec.controller_name, condition(check.status.conditions, "Active")


def _topology(found: Object) -> Sequence[JSON]:
    return (",".join(level.node_label for level in found.read(kueue.Topology).spec.levels),)


def _volcano_job(found: Object) -> Sequence[JSON]:
    job = found.read(volcano.Job)
    return job.status.state.phase or "", job.status.min_available or 0, job.status.running or 0, job.spec.queue or ""


def _cron_job(found: Object) -> Sequence[JSON]:
    job = found.read(volcano.CronJob)
    return job.spec.schedule, bool(job.spec.suspend), len(job.status.active), job.status.last_schedule_time or ""


def _pod_group(found: Object) -> Sequence[JSON]:
    group = found.read(volcano.PodGroup)
    return group.status.phase or "", group.spec.min_member or 0, group.status.running or 0, group.spec.queue or ""


def _queue(found: Object) -> Sequence[JSON]:
    queue = found.read(volcano.Queue)
    return queue.status.state or "", queue.spec.parent or "", queue.spec.weight or 0


def _command(found: Object) -> Sequence[JSON]:
    command = found.read(volcano.Command)
    target = command.target
    return command.action or "", f"{target.kind.lower()}/{target.name}" if target else ""


def _job_flow(found: Object) -> Sequence[JSON]:
    return (found.read(volcano.JobFlow).status.state.phase or "",)


def _hyper_node(found: Object) -> Sequence[JSON]:
    node = found.read(volcano.HyperNode)
    return node.spec.tier or 0, node.spec.tier_name or "", node.status.node_count or 0


def _pytorch_job(found: Object) -> Sequence[JSON]:
    conditions = found.read(kubeflow.PyTorchJob).status.conditions
    current = [c.type for c in conditions if c.status == "True"]
    return (current[-1] if current else "",)


def _allocation(found: Object) -> Sequence[JSON]:
    allocation = found.read(muster.Allocation)
    spec, status = allocation.spec, allocation.status
    nodes = sorted({resource.node for resource in status.resources if resource.node})
    return (
        status.phase or "",
        spec.task_type,
        spec.slots or 0,
        f"{status.pods_ready or 0}/{spec.pods or 1}",
        spec.pool or "",
        spec.owner or "",
        spec.task_id,
        ",".join(nodes),
    )


PRINTERS: Mapping[Kind, Printer] = {
    kueue.CLUSTER_QUEUE: _printer(
        (
            Column("Cohort"), Column("Pending Workloads", "integer"), Column("Strategy", priority=1),
            Column("Admitted Workloads", "integer", 1),
        ),
        _cluster_queue,
    ),
    kueue.LOCAL_QUEUE: _printer(
        (Column("ClusterQueue"), Column("Pending Workloads", "integer"), Column("Admitted Workloads", "integer")),
        _local_queue,
    ),
    kueue.WORKLOAD: _printer(
        (Column("Queue"), Column("Reserved in"), Column("Admitted"), Column("Finished")), _workload
    ),
    kueue.RESOURCE_FLAVOR: _printer((Column("Topology", priority=1),), _flavor),
    kueue.COHORT: _printer((Column("Parent"),), _cohort),
    kueue.WORKLOAD_PRIORITY_CLASS: _printer((Column("Value", "integer"),), _workload_priority_class),
    kueue.ADMISSION_CHECK: _printer((Column("Controller"), Column("Active")), _admission_check),
    kueue.TOPOLOGY: _printer((Column("Levels", priority=1),), _topology),
    volcano.JOB: _printer(
        (
            Column("Status"), Column("minAvailable", "integer"), Column("RUNNINGS", "integer"),
            Column("Queue", priority=1),
        ),
        _volcano_job,
    ),
    volcano.CRON_JOB: _printer(
        (
            Column("Schedule"), Column("Suspend", "boolean"), Column("Active", "integer"),
            Column("Last Schedule", priority=1),
        ),
        _cron_job,
    ),
    volcano.POD_GROUP: _printer(
        (Column("Status"), Column("minMember", "integer"), Column("RUNNINGS", "integer"), Column("Queue", priority=1)),
        _pod_group,
    ),
    volcano.QUEUE: _printer((Column("State"), Column("Parent"), Column("Weight", "integer", 1)), _queue),
    volcano.COMMAND: _printer((Column("Action"), Column("Target")), _command),
    volcano.JOB_FLOW: _printer((Column("Status"),), _job_flow),
    volcano.HYPER_NODE: _printer(
        (Column("Tier", "integer"), Column("TierName"), Column("NodeCount", "integer")), _hyper_node
    ),
    kubeflow.PYTORCH_JOB: _printer((Column("State"),), _pytorch_job),
    muster.ALLOCATION: _printer(
        (
            Column("Phase"), Column("Type"), Column("Slots", "integer"), Column("Ready"), Column("Pool"),
            Column("Owner", priority=1), Column("Task", priority=1), Column("Nodes", priority=1),
        ),
        _allocation,
    ),
}  # fmt: skip
