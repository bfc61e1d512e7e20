"""policy: limits on disruption."""

from muster.api.policy.kinds import KINDS, POD_DISRUPTION_BUDGET
from muster.api.policy.views import (
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)

__all__ = [
    "KINDS",
    "POD_DISRUPTION_BUDGET",
    "PodDisruptionBudget",
    "PodDisruptionBudgetSpec",
    "PodDisruptionBudgetStatus",
]
