"""Volcano's Job: `plan(seen, requests, now)` says which pods to make, which to end, and what its status should be.

The machine of its phases is in `states`; what a user wants done when something happens, in `policies`.
"""

from muster.jobs.volcano.making import make_pods
from muster.jobs.volcano.planning import Plan, Seen, Told, plan
from muster.jobs.volcano.policies import Request
from muster.jobs.volcano.syncing import NewPod

__all__ = ["NewPod", "Plan", "Request", "Seen", "Told", "make_pods", "plan"]
