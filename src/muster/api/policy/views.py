"""View of PodDisruptionBudget."""

from collections.abc import Mapping
from typing import Annotated

from muster.api.meta import Condition, LabelSelector, Resource, View, merge_by
from muster.api.scalars import Int32, Int64, IntOrString


class PodDisruptionBudgetSpec(View, frozen=True):
    """How many of the selected pods must stay up, or may be down, when pods are evicted on purpose."""

    max_unavailable: IntOrString | None = None
    min_available: IntOrString | None = None
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(View, frozen=True):
    """How many pods are up, and how many more may be evicted now."""

    conditions: Annotated[tuple[Condition, ...], merge_by("type")] = ()
    current_healthy: Int32 = 0
    desired_healthy: Int32 = 0
    disrupted_pods: Mapping[str, str] | None = None
    disruptions_allowed: Int32 = 0
    expected_pods: Int32 = 0
    observed_generation: Int64 | None = None


class PodDisruptionBudget(Resource, frozen=True):
    """Limits how many pods of a set may be evicted at once."""

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
