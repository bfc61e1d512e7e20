"""PodDisruptionBudgets as preemption honours them: it tries to stay within, and goes beyond only where it must."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from muster.api import errors, policy, selectors
from muster.api.selectors import LabelSelector
from muster.cluster.pods import PodInfo
from muster.placement.preempting.victims import Victim


@dataclass(frozen=True, slots=True)
class Budget:
    namespace: str
    selector: LabelSelector
    allowed: int
    """How many more of the selected pods may be evicted now."""
    disrupted: frozenset[str] = frozenset()
    """Names of pods whose eviction is already counted in `allowed`."""

    def covers(self, pod: PodInfo) -> bool:
        return pod.key.name not in self.disrupted and self.selector.matches(pod.labels)


class Budgets:
    """All budgets of a cluster. Immutable."""

    def __init__(self, budgets: Iterable[Budget] = ()) -> None:
        self._by_namespace: dict[str, list[Budget]] = {}
        for budget in budgets:
            self._by_namespace.setdefault(budget.namespace, []).append(budget)

    @classmethod
    def of(cls, views: Iterable[policy.PodDisruptionBudget]) -> Self:
        found = []
        for view in views:
            try:
                selector = selectors.from_view(view.spec.selector)
            except errors.BadRequest:
                continue  # selects nothing
            status = view.status
            disrupted = frozenset(status.disrupted_pods or ())
            found.append(Budget(view.metadata.namespace, selector, status.disruptions_allowed, disrupted))
        return cls(found)

    def __bool__(self) -> bool:
        return bool(self._by_namespace)

    def select(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether any budget is about such pods."""
        return any(budget.selector.matches(labels) for budget in self._by_namespace.get(namespace, ()))

    def split(self, victims: Sequence[Victim]) -> tuple[list[tuple[Victim, int]], list[Victim]]:
        """(victims that go beyond a budget, with how many of their pods do; the others). In the order in which they
        were given: earlier victims use budgets up, and a victim goes beyond if one of its pods does."""
        if not self._by_namespace:
            return [], list(victims)
        used: dict[int, int] = {}
        beyond: list[tuple[Victim, int]] = []
        within: list[Victim] = []
        for victim in victims:
            count = sum(self._spends_beyond(pod, used) for pod in victim.pods)
            if count:
                beyond.append((victim, count))
            else:
                within.append(victim)
        return beyond, within

    def _spends_beyond(self, pod: PodInfo, used: dict[int, int]) -> bool:
        for budget in self._by_namespace.get(pod.namespace, ()):
            if budget.covers(pod):
                used[id(budget)] = used.get(id(budget), 0) + 1
                if used[id(budget)] > budget.allowed:
                    return True
        return False

    def after(self, evicted: Iterable[PodInfo]) -> "Budgets":
        """The budgets once these evictions count: until the controller has seen them, nothing else says so."""
        changed: dict[str, list[Budget]] = {}
        for pod in evicted:
            known = changed.get(pod.namespace) or self._by_namespace.get(pod.namespace)
            if known and any(budget.covers(pod) for budget in known):
                changed[pod.namespace] = [_after(budget, pod) if budget.covers(pod) else budget for budget in known]
        if not changed:
            return self
        now = {**self._by_namespace, **changed}
        return Budgets(budget for budgets in now.values() for budget in budgets)


def _after(budget: Budget, evicted: PodInfo) -> Budget:
    return replace(budget, allowed=budget.allowed - 1, disrupted=budget.disrupted | {evicted.key.name})
