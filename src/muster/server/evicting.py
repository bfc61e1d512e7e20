"""Whether a pod may be evicted: the disruption budget that covers it, counted from the pods that are there now.

A permission is written into the budget's status before the pod is deleted, based on the version that was counted
with: of two evictions at once, here or at another replica, one meets a conflict and counts again.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.api import core, errors, policy, selectors, timestamps
from muster.api.meta import Instant
from muster.api.objects import Object
from muster.api.raw import Document
from muster.store import protocol
from muster.store.protocol import Refused, Revision, Selection, Store

_FINISHED = ("Succeeded", "Failed")
_PERMISSION_SECONDS = 120  # after this a pod that was to be evicted and still runs counts as healthy again
_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class Count:
    """The pods that a budget covers."""

    expected: int
    wanted: int
    healthy: int
    permitted: Mapping[str, str]
    """Pods that may go and have not gone yet, with the time of the permission."""

    @property
    def allowed(self) -> int:
        return max(0, self.healthy - self.wanted)


async def permit(store: Store, pod: Object, now: Instant) -> None:
    """Raises TooManyRequests while evicting the pod would break a budget, worded as Kubernetes words it."""
    if is_free(pod):
        return
    for _ in range(_ATTEMPTS):
        budget = await _budget_of(store, pod)
        if budget is None:
            return
        view = budget.read(policy.PodDisruptionBudget)
        pods = (await store.list(Selection(core.POD, pod.key.namespace, _selector(budget)))).items
        count = count_pods(view, pods, now)
        if not is_healthy(pod) and _lets_unhealthy_go(view, count):
            return
        if count.allowed == 0:
            raise _refusal(budget, count)
        permitted = {**count.permitted, pod.key.name: timestamps.to_text(now)}
        (result,) = await store.write([_permission(budget, count, permitted)])
        if not isinstance(result, Refused):
            return
        if not isinstance(result.error, errors.Conflict | errors.NotFound):
            raise result.error
    raise errors.TooManyRequests("too many evictions at once; try again")


def is_free(pod: Object) -> bool:
    """Nobody is disrupted by evicting a pod that has not started, has finished or is on its way out."""
    return _phase(pod) in (*_FINISHED, "Pending", "") or pod.is_terminating


def is_healthy(pod: Object) -> bool:
    ready = any(c.type == "Ready" and c.status == "True" for c in pod.read(core.Pod).status.conditions)
    return ready and not pod.is_terminating


def count_pods(budget: policy.PodDisruptionBudget, pods: Sequence[Object], now: Instant) -> Count:
    expected = [pod for pod in pods if _phase(pod) not in _FINISHED]
    present = {pod.key.name for pod in expected if not pod.is_terminating}
    permitted = {
        name: at
        for name, at in (budget.status.disrupted_pods or {}).items()
        if name in present and timestamps.parse(at) > now - _PERMISSION_SECONDS
    }
    healthy = sum(is_healthy(pod) and pod.key.name not in permitted for pod in expected)
    spec = budget.spec
    if spec.max_unavailable is not None:
        wanted = len(expected) - _scaled(spec.max_unavailable, len(expected))
    else:
        wanted = _scaled(1 if spec.min_available is None else spec.min_available, len(expected))
    return Count(len(expected), max(0, wanted), healthy, permitted)


def _scaled(value: int | str, total: int) -> int:
    """A number, or a percentage of `total`, rounded up as Kubernetes rounds."""
    text = str(value)
    return math.ceil(int(text[:-1]) * total / 100) if text.endswith("%") else int(text)


async def _budget_of(store: Store, pod: Object) -> Object | None:
    budgets = (await store.list(Selection(policy.POD_DISRUPTION_BUDGET, pod.key.namespace))).items
    covering = [budget for budget in budgets if _selector(budget).matches(pod.meta.labels or {})]
    if len(covering) > 1:
        names = ", ".join(budget.key.name for budget in covering)
        raise errors.InternalError(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support: "
            f"{names}. Make their selectors disjoint."
        )
    return covering[0] if covering else None


def _selector(budget: Object) -> selectors.LabelSelector:
    return selectors.from_view(budget.read(policy.PodDisruptionBudget).spec.selector)


def _lets_unhealthy_go(budget: policy.PodDisruptionBudget, count: Count) -> bool:
    return budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow" or count.healthy >= count.wanted > 0


def _permission(budget: Object, count: Count, permitted: Mapping[str, str]) -> protocol.Patch:
    before = budget.read(policy.PodDisruptionBudget).status.disrupted_pods or {}
    disrupted: Document = {name: permitted.get(name) for name in {*before, *permitted}}
    status = {
        "disruptedPods": disrupted,
        "disruptionsAllowed": count.allowed - 1,
        "currentHealthy": count.healthy,
        "desiredHealthy": count.wanted,
        "expectedPods": count.expected,
        "observedGeneration": budget.meta.generation,
    }
    return protocol.Patch(
        budget.kind, budget.key, {"status": status}, subresource="status", based_on=Revision(budget.revision)
    )


def _refusal(budget: Object, count: Count) -> errors.TooManyRequests:
    reason = (
        f"The disruption budget {budget.key.name} needs {count.wanted} healthy pods and has {count.healthy} currently"
    )
    error = errors.TooManyRequests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        causes=[errors.FieldError("", "DisruptionBudget", reason)],
    )
    error.retry_after = 10
    return error


def _phase(pod: Object) -> str:
    return pod.read(core.Pod).status.phase or ""
