"""Views of batch/v1 Job."""

from typing import Annotated

from muster.api.core import PodTemplateSpec
from muster.api.meta import ATOMIC, MERGED_SET, Condition, LabelSelector, Resource, View, merge_by
from muster.api.scalars import Int32, Int64, Opaque


class PodFailurePolicyOnExitCodesRequirement(View, frozen=True):
    """Matches a failed pod by the exit codes of its containers."""

    container_name: str | None = None
    operator: str = ""
    values: Annotated[tuple[Int32, ...], MERGED_SET] = ()


class PodFailurePolicyOnPodConditionsPattern(View, frozen=True):
    """Matches a failed pod by one of its conditions."""

    status: str | None = None
    type: str = ""


class PodFailurePolicyRule(View, frozen=True):
    """What a failure that matches means for the job."""

    action: str = ""
    on_exit_codes: PodFailurePolicyOnExitCodesRequirement | None = None
    on_pod_conditions: Annotated[tuple[PodFailurePolicyOnPodConditionsPattern, ...], ATOMIC] = ()


class PodFailurePolicy(View, frozen=True):
    """Rules for failed pods; the first that matches counts."""

    rules: Annotated[tuple[PodFailurePolicyRule, ...], ATOMIC] = ()


class SuccessPolicyRule(View, frozen=True):
    """A set or a number of indexes whose success is enough."""

    succeeded_count: Int32 | None = None
    succeeded_indexes: str | None = None


class SuccessPolicy(View, frozen=True):
    """When an indexed job is done before all its indexes are."""

    rules: Annotated[tuple[SuccessPolicyRule, ...], ATOMIC] = ()


class JobSpec(View, frozen=True):
    """How many pods to run to the end, how many at a time, and when to give up."""

    active_deadline_seconds: Int64 | None = None
    backoff_limit: Int32 | None = None
    backoff_limit_per_index: Int32 | None = None
    completion_mode: str | None = None
    completions: Int32 | None = None
    managed_by: str | None = None
    manual_selector: bool | None = None
    max_failed_indexes: Int32 | None = None
    parallelism: Int32 | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    pod_replacement_policy: str | None = None
    scheduling: Opaque = None
    selector: LabelSelector | None = None
    success_policy: SuccessPolicy | None = None
    suspend: bool | None = None
    template: PodTemplateSpec = PodTemplateSpec()
    ttl_seconds_after_finished: Int32 | None = None


class UncountedTerminatedPods(View, frozen=True):
    """Pods that have ended but are not in the counters yet."""

    failed: Annotated[tuple[str, ...], MERGED_SET] = ()
    succeeded: Annotated[tuple[str, ...], MERGED_SET] = ()


class JobStatus(View, frozen=True):
    """How far the job has come."""

    active: Int32 | None = None
    completed_indexes: str | None = None
    completion_time: str | None = None
    conditions: Annotated[tuple[Condition, ...], merge_by("type")] = ()
    failed: Int32 | None = None
    failed_indexes: str | None = None
    ready: Int32 | None = None
    start_time: str | None = None
    succeeded: Int32 | None = None
    terminating: Int32 | None = None
    uncounted_terminated_pods: UncountedTerminatedPods | None = None


class Job(Resource, frozen=True):
    """Runs pods until enough of them have succeeded."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()
