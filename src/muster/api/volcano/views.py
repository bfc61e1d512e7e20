"""Typed views of Volcano's kinds: jobs and what runs them, pod groups, queues, commands, flows, the network tree."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from muster.api import core
from muster.api.meta import ATOMIC, Condition, LabelSelector, ObjectMeta, OwnerReference, Resource, View, merge_by
from muster.api.scalars import Int32, Int64, Opaque, ResourceList


class NetworkTopologySpec(View, frozen=True):
    """How close together in the network the pods must (hard) or should (soft) run."""

    mode: str | None = None
    highest_tier_allowed: Int64 | None = None
    highest_tier_name: str | None = None


class LifecyclePolicy(View, frozen=True):
    """What to do with the job when one of the events happens or a container ends with the exit code."""

    action: str | None = None
    event: str | None = None
    events: tuple[str, ...] = ()
    exit_code: Int32 | None = None
    timeout: str | None = None


class VolumeSpec(View, frozen=True):
    """A volume claim that every container of the job has mounted; made for the job where it is not named."""

    mount_path: str = ""
    volume_claim_name: str | None = None
    volume_claim: Opaque = None


class DependsOn(View, frozen=True):
    """Tasks that must be ready, any of them or all, before the pods of this task are made."""

    name: tuple[str, ...] = ()
    iteration: str | None = None


class PartitionPolicySpec(View, frozen=True):
    """Splits the pods of a task into equal partitions, each placed together."""

    total_partitions: Int32 | None = None
    partition_size: Int32 | None = None
    network_topology: NetworkTopologySpec | None = None
    min_partitions: Int32 | None = None


class TaskSpec(View, frozen=True):
    """Pods of one role in a job: how many, how few will do, from which template."""

    name: str | None = None
    replicas: Int32 | None = None
    min_available: Int32 | None = None
    template: core.PodTemplateSpec = core.PodTemplateSpec()
    policies: tuple[LifecyclePolicy, ...] = ()
    topology_policy: str | None = None
    max_retry: Int32 | None = None
    depends_on: DependsOn | None = None
    partition_policy: PartitionPolicySpec | None = None


class JobSpec(View, frozen=True):
    """The tasks of a job, its gang size, and what happens when pods fail, finish or are evicted."""

    scheduler_name: str | None = None
    min_available: Int32 | None = None
    volumes: tuple[VolumeSpec, ...] = ()
    tasks: tuple[TaskSpec, ...] = ()
    policies: tuple[LifecyclePolicy, ...] = ()
    plugins: Mapping[str, tuple[str, ...] | None] | None = None
    running_estimate: str | None = None
    queue: str | None = None
    max_retry: Int32 | None = None
    ttl_seconds_after_finished: Int32 | None = None
    priority_class_name: str | None = None
    min_success: Int32 | None = None
    network_topology: NetworkTopologySpec | None = None


class JobState(View, frozen=True):
    """The phase a job is in, why, and since when."""

    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class TaskState(View, frozen=True):
    """How many pods of one task are in each phase."""

    phase: Mapping[str, Int32] | None = None


class JobCondition(View, frozen=True):
    """A phase that the job has been in, and since when."""

    status: str = ""
    last_transition_time: str | None = None


class JobStatus(View, frozen=True):
    """The phase of the job and the counts of its pods."""

    state: JobState = JobState()
    min_available: Int32 | None = None
    task_status_count: Mapping[str, TaskState] | None = None
    pending: Int32 | None = None
    running: Int32 | None = None
    succeeded: Int32 | None = None
    failed: Int32 | None = None
    terminating: Int32 | None = None
    unknown: Int32 | None = None
    version: Int32 | None = None
    retry_count: Int32 | None = None
    running_duration: str | None = None
    controlled_resources: Mapping[str, str] | None = None
    conditions: tuple[JobCondition, ...] = ()


class Job(Resource, frozen=True):
    """A batch job of one or more tasks whose pods start together as a gang."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class JobTemplateSpec(View, frozen=True):
    """The job that a cron job makes each time."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()


class CronJobSpec(View, frozen=True):
    """When to make a job, what if the last one still runs, and how many finished ones to keep."""

    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: Int64 | None = None
    concurrency_policy: str | None = None
    suspend: bool | None = None
    job_template: JobTemplateSpec = JobTemplateSpec()
    successful_jobs_history_limit: Int32 | None = None
    failed_jobs_history_limit: Int32 | None = None


class CronJobStatus(View, frozen=True):
    """Jobs that run now, and when one was last made and last succeeded."""

    active: Annotated[tuple[core.ObjectReference, ...], ATOMIC] = ()
    last_schedule_time: str | None = None
    last_successful_time: str | None = None


class CronJob(Resource, frozen=True):
    """Makes a Volcano job each time the schedule says so."""

    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()


class SubGroupPolicySpec(View, frozen=True):
    """Splits the pods of a group by their labels into sub-groups that are placed each together."""

    name: str = ""
    network_topology: NetworkTopologySpec | None = None
    sub_group_size: Int32 | None = None
    min_sub_groups: Int32 | None = None
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()


class PodGroupSpec(View, frozen=True):
    """How many pods must start together, and what they need at the least."""

    min_member: Int32 | None = None
    min_task_member: Mapping[str, Int32] | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    min_resources: ResourceList | None = None
    network_topology: NetworkTopologySpec | None = None
    sub_group_policy: Annotated[tuple[SubGroupPolicySpec, ...], merge_by("name")] = ()


class PodGroupCondition(View, frozen=True):
    """What the scheduler last found out about the group."""

    type: str = ""
    status: str = ""
    transition_id: str | None = msgspec.field(default=None, name="transitionID")
    last_transition_time: str | None = None
    reason: str | None = None
    message: str | None = None


class PodGroupStatus(View, frozen=True):
    """The phase of the group and the counts of its pods."""

    phase: str | None = None
    conditions: tuple[PodGroupCondition, ...] = ()
    running: Int32 | None = None
    succeeded: Int32 | None = None
    failed: Int32 | None = None


class PodGroup(Resource, frozen=True):
    """A gang: pods that are placed all together, or not at all."""

    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class Guarantee(View, frozen=True):
    """What a queue always has, whether it uses it or not."""

    resource: ResourceList | None = None


class Cluster(View, frozen=True):
    """Another cluster that jobs of the queue may be forwarded to."""

    name: str | None = None
    weight: Int32 | None = None
    capacity: ResourceList | None = None


class NodeGroupAffinity(View, frozen=True):
    """Node groups that the queue's pods must, or should, run on."""

    required_during_scheduling_ignored_during_execution: tuple[str, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[str, ...] = ()


class NodeGroupAntiAffinity(View, frozen=True):
    """Node groups that the queue's pods must, or should, stay off."""

    required_during_scheduling_ignored_during_execution: tuple[str, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[str, ...] = ()


class Affinity(View, frozen=True):
    """Which groups of nodes a queue is for."""

    node_group_affinity: NodeGroupAffinity | None = None
    node_group_anti_affinity: NodeGroupAntiAffinity | None = None


class QueueSpec(View, frozen=True):
    """What a queue may use at most, what it deserves, what it is guaranteed, and where it hangs in the tree."""

    weight: Int32 | None = None
    capability: ResourceList | None = None
    reclaimable: bool | None = None
    extend_clusters: tuple[Cluster, ...] = ()
    guarantee: Guarantee | None = None
    affinity: Affinity | None = None
    type: str | None = None
    parent: str | None = None
    deserved: ResourceList | None = None
    priority: Int32 | None = None
    dequeue_strategy: str | None = None


class Reservation(View, frozen=True):
    """Nodes and resources that are held back for the queue."""

    nodes: tuple[str, ...] = ()
    resource: ResourceList | None = None


class QueueStatus(View, frozen=True):
    """Whether the queue takes jobs, how many pod groups it has, and what they use."""

    state: str | None = None
    unknown: Int32 | None = None
    pending: Int32 | None = None
    running: Int32 | None = None
    inqueue: Int32 | None = None
    completed: Int32 | None = None
    reservation: Reservation | None = None
    allocated: ResourceList | None = None


class Queue(Resource, frozen=True):
    """A share of the cluster. Queues form a tree below `root`."""

    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


class Command(Resource, frozen=True):
    """An order to a job or a queue, such as AbortJob or CloseQueue. It is deleted before it is carried out."""

    action: str | None = None
    target: OwnerReference | None = None
    reason: str | None = None
    message: str | None = None


class HttpGet(View, frozen=True):
    """A request that must succeed."""

    task_name: str | None = None
    path: str | None = None
    port: Int32 | None = None
    http_header: core.HTTPHeader | None = None


class TcpSocket(View, frozen=True):
    """A port that must accept a connection."""

    task_name: str | None = None
    port: Int32 | None = None


class TaskStatus(View, frozen=True):
    """A phase that a task must be in."""

    task_name: str | None = None
    phase: str | None = None


class Probe(View, frozen=True):
    """How to find out that a target is far enough along."""

    http_get_list: tuple[HttpGet, ...] = ()
    tcp_socket_list: tuple[TcpSocket, ...] = ()
    task_status_list: tuple[TaskStatus, ...] = ()


class FlowDependsOn(View, frozen=True):
    """Flows that must be done before this one starts."""

    targets: tuple[str, ...] = ()
    probe: Probe | None = None


class Patch(View, frozen=True):
    """What differs from the template in this flow."""

    job_spec: JobSpec | None = None


class Flow(View, frozen=True):
    """One job of the flow. Its name is that of the JobTemplate it is made from."""

    name: str = ""
    depends_on: FlowDependsOn | None = None
    patch: Patch | None = None


class JobFlowSpec(View, frozen=True):
    """The jobs of the flow, and whether they are kept when it is done."""

    flows: tuple[Flow, ...] = ()
    job_retain_policy: str | None = None


class JobRunningHistory(View, frozen=True):
    """One attempt at a job."""

    start_timestamp: str | None = None
    end_timestamp: str | None = None
    state: str | None = None


class FlowJobStatus(View, frozen=True):
    """How one job of the flow fares."""

    name: str | None = None
    state: str | None = None
    start_timestamp: str | None = None
    end_timestamp: str | None = None
    restart_count: Int32 | None = None
    running_histories: tuple[JobRunningHistory, ...] = ()


class FlowCondition(View, frozen=True):
    """A job of the flow as it was last seen; reason and message (Muster's own) say why one could not be made."""

    phase: str | None = None
    create_time: str | None = None
    running_duration: str | None = None
    task_status_count: Mapping[str, TaskState] | None = None
    reason: str | None = None
    message: str | None = None


class FlowState(View, frozen=True):
    """The phase of the whole flow."""

    phase: str | None = None


class JobFlowStatus(View, frozen=True):
    """The jobs of the flow by what they are doing."""

    pending_jobs: tuple[str, ...] = ()
    running_jobs: tuple[str, ...] = ()
    failed_jobs: tuple[str, ...] = ()
    completed_jobs: tuple[str, ...] = ()
    terminated_jobs: tuple[str, ...] = ()
    unknown_jobs: tuple[str, ...] = msgspec.field(default=(), name="unKnowJobs")  # spelled so by Volcano
    job_status_list: tuple[FlowJobStatus, ...] = ()
    conditions: Mapping[str, FlowCondition] | None = None
    state: FlowState = FlowState()


class JobFlow(Resource, frozen=True):
    """Jobs that start one after another, as their dependencies are done."""

    spec: JobFlowSpec = JobFlowSpec()
    status: JobFlowStatus = JobFlowStatus()


class JobTemplateStatus(View, frozen=True):
    """Jobs that were made from the template."""

    job_depends_on_list: tuple[str, ...] = ()


class JobTemplate(Resource, frozen=True):
    """A job that flows can make by name."""

    spec: JobSpec = JobSpec()
    status: JobTemplateStatus = JobTemplateStatus()


class ExactMatch(View, frozen=True):
    """The one member of this name."""

    name: str = ""


class RegexMatch(View, frozen=True):
    """Every member whose whole name matches."""

    pattern: str = ""


class MemberSelector(View, frozen=True):
    """Which nodes or hypernodes a member entry means. Exactly one way of naming them is used."""

    exact_match: ExactMatch | None = None
    regex_match: RegexMatch | None = None
    label_match: LabelSelector | None = None


class MemberSpec(View, frozen=True):
    """Nodes, or hypernodes of a lower tier, that hang together here."""

    type: str = ""
    selector: MemberSelector = MemberSelector()


class HyperNodeSpec(View, frozen=True):
    """The members, and how far apart they are: the lower the tier, the faster the network between them."""

    tier: Int64 | None = None
    tier_name: str | None = None
    members: tuple[MemberSpec, ...] = ()


class HyperNodeStatus(View, frozen=True):
    """How many nodes hang below."""

    conditions: Annotated[tuple[Condition, ...], merge_by("type")] = ()
    node_count: Int64 | None = None


class HyperNode(Resource, frozen=True):
    """A switch, rack or island of the network: nodes that reach each other faster than the rest."""

    spec: HyperNodeSpec = HyperNodeSpec()
    status: HyperNodeStatus = HyperNodeStatus()
