"""batch/v1 Job: `plan(job, pods, now)` says which pods to make, which to end, and what the job's status should be."""

from muster.jobs.batch.claiming import Claims, claims
from muster.jobs.batch.making import make_pods
from muster.jobs.batch.managing import NewPod
from muster.jobs.batch.members import is_tracked
from muster.jobs.batch.planning import Plan, Told, plan

__all__ = ["Claims", "NewPod", "Plan", "Told", "claims", "is_tracked", "make_pods", "plan"]
