"""Extenders have a say in whom a gang evicts.

They know preemption for one pod: nodes to choose from, each with its victims. A gang needs all its nodes together. So
they are asked, for each kind of member, about the nodes where such members go and somebody is evicted. A node that they
leave out is one where nobody may be evicted, a victim that they leave out is one that stays, and victims that they add
go too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.cluster.pods import PodInfo, PodShape
from muster.cluster.state import ClusterState
from muster.placement.preempting.candidates import Candidate, PreemptionExtender, narrow
from muster.placement.preempting.victims import Victim


@dataclass(slots=True)
class Spared:
    """What extenders do not let a gang evict. Only grows."""

    nodes: set[str] = field(default_factory=set)
    uids: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.nodes or self.uids)

    def has(self, victim: Victim, cluster: ClusterState) -> bool:
        return bool(self) and any(pod.uid in self.uids or cluster.pods[pod.uid][1] in self.nodes for pod in victim.pods)


@dataclass(slots=True)
class Agreement:
    refused: Spared = field(default_factory=Spared)
    added: dict[str, PodInfo] = field(default_factory=dict)
    """Victims that extenders want besides, by uid."""


def ask(
    members: Sequence[tuple[PodInfo, str]],
    victims: Sequence[tuple[Victim, int]],
    cluster: ClusterState,
    extenders: Sequence[PreemptionExtender],
) -> Agreement:
    """`members` with their nodes; `victims` with how many of their pods go beyond a budget. Raises ExtenderFailed where
    one fails that is not to be ignored."""
    said = Agreement()
    if not extenders:
        return said
    for pod, candidates in _questions(members, _candidates(victims, cluster)):
        agreed = {candidate.node: candidate for candidate in narrow(pod, candidates, extenders)}
        for asked in candidates:
            found = agreed.get(asked.node)
            if found is None:
                said.refused.nodes.add(asked.node)
                continue
            wanted, before = _by_uid(found.victims), _by_uid(asked.victims)
            said.refused.uids |= before.keys() - wanted.keys()
            said.added |= {uid: victim for uid, victim in wanted.items() if uid not in before}
    return said


def _candidates(victims: Sequence[tuple[Victim, int]], cluster: ClusterState) -> Mapping[str, Candidate]:
    """By node: everybody who leaves it, the most important first, and others who go with them."""
    there: dict[str, list[tuple[Victim, int]]] = {}
    for victim, violations in sorted(victims, key=lambda found: found[0].importance):
        for node in dict.fromkeys(cluster.pods[pod.uid][1] for pod in victim.pods):
            there.setdefault(node, []).append((victim, violations))
    return {
        node: Candidate(
            node, tuple(pod for victim, _ in found for pod in victim.pods), sum(count for _, count in found)
        )
        for node, found in there.items()
    }


def _questions(
    members: Sequence[tuple[PodInfo, str]], candidates: Mapping[str, Candidate]
) -> Iterable[tuple[PodInfo, Sequence[Candidate]]]:
    """For each kind of member, about which nodes to ask. Nodes that lose pods and get no member go with the first."""
    nodes: dict[PodShape, tuple[PodInfo, dict[str, None]]] = {}
    for pod, node in members:
        nodes.setdefault(pod.shape, (pod, {}))[1][node] = None
    left = candidates.keys() - {node for _, node in members}
    for pod, used in nodes.values():
        found = [candidate for node, candidate in candidates.items() if node in used or node in left]
        left = set()
        if found:
            yield pod, found


def _by_uid(pods: Iterable[PodInfo]) -> dict[str, PodInfo]:
    return {pod.uid: pod for pod in pods}
