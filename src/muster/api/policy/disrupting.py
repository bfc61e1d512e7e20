"""Whether a pod may be evicted: the disruption budget that covers it, counted from the pods that are there now."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from muster.api import core, errors, selectors
from muster.api.objects import Object
from muster.api.policy.views import PodDisruptionBudget

_FINISHED: Final = ("Succeeded", "Failed")
_AGAIN_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class Count:
    """The pods that a budget covers."""

    wanted: int
    healthy: int

    @property
    def allowed(self) -> int:
        return max(0, self.healthy - self.wanted)


def covering(pod: Object, budgets: Sequence[Object]) -> Object | None:
    """The budget, of those in the pod's namespace. Raises InternalError where there are several, as Kubernetes does."""
    found = [budget for budget in budgets if selector_of(budget).matches(pod.meta.labels or {})]
    if len(found) > 1:
        names = ", ".join(budget.key.name for budget in found)
        raise errors.InternalError(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support: "
            f"{names}. Make their selectors disjoint."
        )
    return found[0] if found else None


def selector_of(budget: Object) -> selectors.LabelSelector:
    return selectors.from_view(budget.read(PodDisruptionBudget).spec.selector)


def refusal(pod: Object, budget: Object, pods: Sequence[Object]) -> errors.TooManyRequests | None:
    """Worded as Kubernetes words it. `pods`: all that the budget covers, this one among them."""
    view = budget.read(PodDisruptionBudget)
    count = _count(view, pods)
    if count.allowed or (not _is_healthy(pod) and _lets_unhealthy_go(view, count)):
        return None
    reason = (
        f"The disruption budget {budget.key.name} needs {count.wanted} healthy pods and has {count.healthy} currently"
    )
    error = errors.TooManyRequests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        causes=[errors.FieldError("", "DisruptionBudget", reason)],
    )
    error.retry_after = _AGAIN_SECONDS
    return error


def allowance(budget: Object, pods: Iterable[Object]) -> int:
    """How many more may be evicted: as the budget's controller has counted, or where it has none, counted from `pods`:
    all of its namespace."""
    view = budget.read(PodDisruptionBudget)
    if view.status.observed_generation is not None:
        return view.status.disruptions_allowed
    selector = selector_of(budget)
    return _count(view, [pod for pod in pods if selector.matches(pod.meta.labels or {})]).allowed


def counts(pod: Object) -> bool:
    """Whether its eviction leaves one less of what a budget asks for."""
    return _is_healthy(pod) and not is_free(pod)


def is_free(pod: Object) -> bool:
    """Nobody is disrupted by evicting a pod that has not started, has finished or is on its way out."""
    return _phase(pod) in (*_FINISHED, "Pending", "") or pod.is_terminating


def _is_healthy(pod: Object) -> bool:
    ready = any(c.type == "Ready" and c.status == "True" for c in pod.read(core.Pod).status.conditions)
    return ready and not pod.is_terminating


def _count(budget: PodDisruptionBudget, pods: Sequence[Object]) -> Count:
    expected = [pod for pod in pods if _phase(pod) not in _FINISHED]
    spec = budget.spec
    if spec.max_unavailable is not None:
        wanted = len(expected) - _scaled(spec.max_unavailable, len(expected))
    else:
        wanted = _scaled(1 if spec.min_available is None else spec.min_available, len(expected))
    return Count(max(0, wanted), sum(map(_is_healthy, expected)))


def _scaled(value: int | str, total: int) -> int:
    """A number, or a percentage of `total`, rounded up as Kubernetes rounds."""
    text = str(value)
    return math.ceil(int(text[:-1]) * total / 100) if text.endswith("%") else int(text)


def _lets_unhealthy_go(budget: PodDisruptionBudget, count: Count) -> bool:
    return budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow" or count.healthy >= count.wanted > 0


def _phase(pod: Object) -> str:
    return pod.read(core.Pod).status.phase or ""
