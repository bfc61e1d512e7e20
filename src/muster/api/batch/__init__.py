"""batch: jobs that run to the end."""

from muster.api.batch.kinds import JOB, KINDS
from muster.api.batch.views import (
    Job,
    JobSpec,
    JobStatus,
    PodFailurePolicy,
    PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule,
    SuccessPolicy,
    SuccessPolicyRule,
    UncountedTerminatedPods,
)

__all__ = [
    "JOB",
    "KINDS",
    "Job",
    "JobSpec",
    "JobStatus",
    "PodFailurePolicy",
    "PodFailurePolicyOnExitCodesRequirement",
    "PodFailurePolicyOnPodConditionsPattern",
    "PodFailurePolicyRule",
    "SuccessPolicy",
    "SuccessPolicyRule",
    "UncountedTerminatedPods",
]
