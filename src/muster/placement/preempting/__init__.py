"""Preemption: which pods to evict so that a pod, or a whole gang, can be placed. kube-scheduler's rules.

Pods are removed and brought back in thought only (`Trial`), and every filter of the profile is asked each time. What is
found is a value: whoever asked evicts the victims and binds the preemptor, or does neither.
`finding.find` is for one pod, `gangs.find_for_gang` for pods that go together; `quick` answers the same question for
the common pod, whose only obstacle is too few resources, from columns.
"""

from muster.placement.preempting.budgets import Budget, Budgets
from muster.placement.preempting.candidates import Candidate, ExtenderFailed, PreemptionExtender
from muster.placement.preempting.finding import NoPreemption, Preemption, find, ineligibility
from muster.placement.preempting.gangs import GangPreemption, GangPreemptor, Ongoing, find_for_gang
from muster.placement.preempting.options import Options
from muster.placement.preempting.protecting import Protected, is_kept, is_protected
from muster.placement.preempting.quick import QuickSearch
from muster.placement.preempting.victims import Rank, Victim

__all__ = [
    "Budget",
    "Budgets",
    "Candidate",
    "ExtenderFailed",
    "GangPreemption",
    "GangPreemptor",
    "NoPreemption",
    "Ongoing",
    "Options",
    "Preemption",
    "PreemptionExtender",
    "Protected",
    "QuickSearch",
    "Rank",
    "Victim",
    "find",
    "find_for_gang",
    "ineligibility",
    "is_kept",
    "is_protected",
]
