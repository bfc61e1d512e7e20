"""muster.dev Allocation: `plan(seen, now)` says what to make, what to end, and what its status should be."""

from muster.jobs.allocations.making import make_group, make_pods, pod_name, urgency
from muster.jobs.allocations.planning import Plan, Seen, plan

__all__ = ["Plan", "Seen", "make_group", "make_pods", "plan", "pod_name", "urgency"]
