"""Preemption for quota: whom a workload may and has to replace, and what the two are told."""

from muster.quota.preempting.messages import message
from muster.quota.preempting.policies import Reason, Target, may_preempt
from muster.quota.preempting.preemptor import Preemptor

__all__ = ["Preemptor", "Reason", "Target", "may_preempt", "message"]
