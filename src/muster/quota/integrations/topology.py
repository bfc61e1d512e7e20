"""What pods ask of a topology, and where each of them goes once the workload has its places: by rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from muster.api import kueue
from muster.api.documents import child
from muster.api.kueue import names
from muster.api.kueue.topology_annotations import read_request
from muster.api.raw import Document
from muster.quota.topology import TopologyAssignment

Values = tuple[str, ...]


def request(
    template: Document, *, index_label: str = "", sub_group_label: str = "", sub_group_count: int | None = None
) -> Document | None:
    """`topologyRequest` of a pod set. `index_label`: which pod of the set one is; with sub-groups (jobs of a set, say),
    which of its sub-group, and `sub_group_label` which sub-group that is."""
    found = read_request(child(template, "metadata", "annotations"))
    if found is None:
        return None
    if index_label:
        found["podIndexLabel"] = index_label
    if sub_group_label and sub_group_count:
        found |= {"subGroupIndexLabel": sub_group_label, "subGroupCount": sub_group_count}
    return found


def is_placed_together(template: Document) -> bool:
    """Whether a place is asked for that is found for all of its pods at once. Not where any place will do: admission
    writes that into the template of pods that ask for nothing."""
    found = read_request(child(template, "metadata", "annotations"))
    return found is not None and found != {"unconstrained": True}


@dataclass(frozen=True, slots=True)
class Member:
    """A live pod of a pod set that was given places: not one that has succeeded or failed."""

    name: str
    labels: Mapping[str, str]
    node_selector: Mapping[str, str]
    is_gated: bool


@dataclass(frozen=True, slots=True)
class Ranks:
    """How the rank of a pod is told from its labels."""

    index_label: str = ""
    sub_group_label: str = ""
    sub_group_size: int = 0
    offset: int = 0
    """Rank 0 of the pod set is the pod of this index: a leader has 0, and its workers go on from there."""


_NO_RANKS: Final = Ranks()


def ranks_of(pods: kueue.PodSet) -> Ranks:
    asked = pods.topology_request
    if asked is None or not asked.pod_index_label:
        return _NO_RANKS
    offset = _number((pods.template.metadata.annotations or {}).get(names.INDEX_OFFSET_ANNOTATION)) or 0
    if not asked.sub_group_index_label or not asked.sub_group_count:
        return Ranks(asked.pod_index_label, offset=offset)
    size = (pods.count or 0) // asked.sub_group_count
    return Ranks(asked.pod_index_label, asked.sub_group_index_label, size, offset)


def place(
    assignment: TopologyAssignment,
    members: Sequence[Member],
    ranks: Ranks = _NO_RANKS,
    broken: frozenset[str] = frozenset(),
) -> dict[str, dict[str, str]]:
    """By name, the node selector of each gated pod that may go now. `broken`: hosts that no pod is sent to.

    Domains, in their order, stand for ranks: the first for as many as it has pods, and so on. Where all pods tell their
    ranks, and those that have gone already went where their ranks say, ranks decide; else any pod may take any place
    that is left.
    """
    by_rank = _by_rank(assignment, members, ranks)
    chosen = by_rank if by_rank is not None else _greedily(assignment, members)
    return {
        name: dict(zip(assignment.levels, values, strict=True))
        for name, values in chosen.items()
        if values[-1] not in broken
    }


def _by_rank(assignment: TopologyAssignment, members: Sequence[Member], ranks: Ranks) -> dict[str, Values] | None:
    """None where ranks cannot decide."""
    if not ranks.index_label:
        return None
    domains = [domain.values for domain in assignment.domains for _ in range(domain.pods)]
    chosen: dict[int, Member] = {}
    held: set[int] = set()
    for member in sorted(members, key=lambda member: member.is_gated):
        rank = _rank(member, ranks)
        if rank is None or not 0 <= rank < len(domains) or rank in chosen:
            return None
        if not member.is_gated:
            if rank in held or _domain_of(assignment, member) != domains[rank]:
                return None
            held.add(rank)
        elif rank not in held:  # else the one it stands in for has not gone yet
            chosen[rank] = member
    return {member.name: domains[rank] for rank, member in chosen.items()}


def _rank(member: Member, ranks: Ranks) -> int | None:
    index = _number(member.labels.get(ranks.index_label))
    if index is None:
        return None
    if ranks.sub_group_label:
        group = _number(member.labels.get(ranks.sub_group_label))
        if group is None or index >= ranks.sub_group_size:
            return None
        index += group * ranks.sub_group_size
    return index - ranks.offset


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _greedily(assignment: TopologyAssignment, members: Sequence[Member]) -> dict[str, Values]:
    left = {domain.values: domain.pods for domain in assignment.domains}
    gated: list[Member] = []
    for member in members:
        if member.is_gated:
            gated.append(member)
            continue
        values = _domain_of(assignment, member)
        if values in left:
            left[values] -= 1
    places = [values for values, count in left.items() for _ in range(max(0, count))]
    return dict(zip((member.name for member in gated), places, strict=False))


def _domain_of(assignment: TopologyAssignment, member: Member) -> Values:
    """Where a pod that is on its way was sent."""
    return tuple(member.node_selector.get(level, "") for level in assignment.levels)
