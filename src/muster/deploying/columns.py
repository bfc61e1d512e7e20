"""What `kubectl get` prints of our custom resources: the columns that users of Kueue, Volcano and Kubeflow know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.api import kubeflow, kueue, muster, volcano
from muster.api.kinds import Kind
from muster.api.raw import Document


@dataclass(frozen=True, slots=True)
class Column:
    """`path` is a JSONPath into the object. `priority` 1 is shown in wide output only."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0

    def document(self) -> Document:
        found: Document = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return {**found, "priority": self.priority} if self.priority else found


def _condition(type_: str) -> str:
    return f".status.conditions[?(@.type=='{type_}')].status"


_AGE = Column("Age", ".metadata.creationTimestamp", "date")

_COLUMNS: Mapping[Kind, Sequence[Column]] = {
    kueue.CLUSTER_QUEUE: (
        Column("Cohort", ".spec.cohortName"),
        Column("Pending Workloads", ".status.pendingWorkloads", "integer"),
        Column("Strategy", ".spec.queueingStrategy", priority=1),
        Column("Admitted Workloads", ".status.admittedWorkloads", "integer", 1),
    ),
    kueue.LOCAL_QUEUE: (
        Column("ClusterQueue", ".spec.clusterQueue"),
        Column("Pending Workloads", ".status.pendingWorkloads", "integer"),
        Column("Admitted Workloads", ".status.admittedWorkloads", "integer"),
    ),
    kueue.WORKLOAD: (
        Column("Queue", ".spec.queueName"),
        Column("Reserved in", ".status.admission.clusterQueue"),
        Column("Admitted", _condition("Admitted")),
        Column("Finished", _condition("Finished")),
    ),
    kueue.RESOURCE_FLAVOR: (Column("Topology", ".spec.topologyName", priority=1),),
    kueue.COHORT: (Column("Parent", ".spec.parentName"),),
    kueue.WORKLOAD_PRIORITY_CLASS: (Column("Value", ".value", "integer"),),
    kueue.ADMISSION_CHECK: (Column("Controller", ".spec.controllerName"), Column("Active", _condition("Active"))),
    kueue.TOPOLOGY: (Column("Levels", ".spec.levels[*].nodeLabel", priority=1),),
    volcano.JOB: (
        Column("Status", ".status.state.phase"),
        Column("minAvailable", ".status.minAvailable", "integer"),
        Column("RUNNINGS", ".status.running", "integer"),
        Column("Queue", ".spec.queue", priority=1),
    ),
    volcano.CRON_JOB: (
        Column("Schedule", ".spec.schedule"),
        Column("Suspend", ".spec.suspend", "boolean"),
        Column("Last Schedule", ".status.lastScheduleTime", "date", 1),
    ),
    volcano.POD_GROUP: (
        Column("Status", ".status.phase"),
        Column("minMember", ".spec.minMember", "integer"),
        Column("RUNNINGS", ".status.running", "integer"),
        Column("Queue", ".spec.queue", priority=1),
    ),
    volcano.QUEUE: (
        Column("State", ".status.state"),
        Column("Parent", ".spec.parent"),
        Column("Weight", ".spec.weight", "integer", 1),
    ),
    volcano.COMMAND: (Column("Action", ".action"), Column("Target", ".target.name")),
    volcano.JOB_FLOW: (Column("Status", ".status.state.phase"),),
    volcano.HYPER_NODE: (
        Column("Tier", ".spec.tier", "integer"),
        Column("TierName", ".spec.tierName"),
        Column("NodeCount", ".status.nodeCount", "integer"),
    ),
    kubeflow.PYTORCH_JOB: (Column("State", ".status.conditions[-1:].type"),),
    muster.ALLOCATION: (
        Column("Phase", ".status.phase"),
        Column("Type", ".spec.taskType"),
        Column("Slots", ".spec.slots", "integer"),
        Column("Ready", ".status.podsReady", "integer"),
        Column("Pool", ".spec.pool"),
        Column("Owner", ".spec.owner", priority=1),
        Column("Task", ".spec.taskId", priority=1),
    ),
}


def of(kind: Kind) -> list[Document]:
    """Name comes first by itself; age stands last of what is always shown."""
    columns = _COLUMNS.get(kind, ())
    shown = [column for column in columns if column.priority == 0]
    wide = [column for column in columns if column.priority]
    return [column.document() for column in (*shown, _AGE, *wide)]
