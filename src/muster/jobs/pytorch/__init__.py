"""kubeflow.org PyTorchJob: `plan(seen, now)` says what to make, what to end, and what the job's status should be."""

from muster.jobs.pytorch.making import make_members, make_pods
from muster.jobs.pytorch.members import Slot
from muster.jobs.pytorch.planning import Plan, Seen, Told, plan

__all__ = ["Plan", "Seen", "Slot", "Told", "make_members", "make_pods", "plan"]
