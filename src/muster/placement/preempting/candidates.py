"""Nodes on which evicting pods would make room, and which of them costs least."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

from muster.cluster.pods import PodInfo

_LOWEST_PRIORITY = 2**31


class ExtenderFailed(Exception):
    """An extender did not answer, or not with anything that makes sense."""


@dataclass(frozen=True, slots=True)
class Candidate:
    node: str
    victims: tuple[PodInfo, ...]
    """The most important first. Some may be on other nodes, where a group is evicted whole."""
    violations: int = 0
    """How many victims go beyond a disruption budget."""


class PreemptionExtender(Protocol):
    """An extender that wants to be asked before pods are evicted."""

    @property
    def name(self) -> str: ...

    @property
    def is_ignorable(self) -> bool:
        """Whether preemption goes on without it when it fails."""
        ...

    def is_interested(self, pod: PodInfo) -> bool: ...

    def process_preemption(self, pod: PodInfo, candidates: Mapping[str, Candidate]) -> Mapping[str, Candidate]:
        """The candidates, by node, that it agrees to, with the victims that it wants. Raises ExtenderFailed."""
        ...


def narrow(
    pod: PodInfo, candidates: Sequence[Candidate], extenders: Sequence[PreemptionExtender]
) -> Sequence[Candidate]:
    """What all extenders agree to. Raises ExtenderFailed where one fails that is not to be ignored."""
    for extender in extenders:
        if not candidates:
            break
        if not extender.is_interested(pod):
            continue
        try:
            answer = extender.process_preemption(pod, {candidate.node: candidate for candidate in candidates})
            candidates = _checked(answer, candidates, extender)
        except ExtenderFailed:
            if not extender.is_ignorable:
                raise
    return candidates


def _checked(
    answer: Mapping[str, Candidate], asked: Sequence[Candidate], extender: PreemptionExtender
) -> Sequence[Candidate]:
    """In the order in which they were asked about: an extender's own order would decide between equals."""
    unknown = answer.keys() - {candidate.node for candidate in asked}
    if unknown:
        raise ExtenderFailed(f"extender {extender.name} answered with nodes it was not asked about: {sorted(unknown)}")
    agreed = [answer[candidate.node] for candidate in asked if candidate.node in answer]
    for candidate in agreed:
        if not candidate.victims and not extender.is_ignorable:
            raise ExtenderFailed(f'expected at least one victim pod on node "{candidate.node}"')
    return [candidate for candidate in agreed if candidate.victims]


def best(candidates: Sequence[Candidate]) -> Candidate | None:
    """The one that costs least; the first of equals."""
    return min(candidates, key=cost, default=None)


def cost(candidate: Candidate) -> tuple[int, int, int, int, float]:
    """Fewest beyond budgets; then the lowest of the highest priorities; then the lowest sum of priorities, shifted so
    that each victim adds to it; then fewest victims; then the shortest run lost among those of the highest priority."""
    victims = candidate.victims
    return (
        candidate.violations,
        victims[0].priority,
        sum(pod.priority + _LOWEST_PRIORITY for pod in victims),
        len(victims),
        -earliest_start(victims),
    )


def earliest_start(victims: Sequence[PodInfo]) -> float:
    highest = max(pod.priority for pod in victims)
    return min(inf if pod.started is None else pod.started for pod in victims if pod.priority == highest)
