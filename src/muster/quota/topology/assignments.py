"""`TopologyAssignment`: which domains the pods of a pod set were given; its arithmetic, and its form in an object."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from muster.api import kueue
from muster.api.kueue import topology_assignments as written
from muster.api.kueue.topology_assignments import Domain
from muster.api.raw import Document
from muster.cluster.columns import PODS

HOSTNAME: Final = "kubernetes.io/hostname"
Values: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopologyAssignment:
    """`domains` in the order of the topology, which is the order of ranks. Where the lowest level is the host, only
    that level is named, and the order is still that of all levels."""

    levels: tuple[str, ...]
    domains: tuple[Domain, ...]


@dataclass(frozen=True, slots=True)
class DomainUsage:
    """So many pods of such requests (of one pod, without `pods`) in one domain."""

    values: Values
    requests: Mapping[str, int]
    count: int


def usage_of(assignment: TopologyAssignment, requests: Mapping[str, int]) -> tuple[DomainUsage, ...]:
    """What the assigned pods take. `requests` is of one pod."""
    return tuple(DomainUsage(domain.values, requests, domain.pods) for domain in assignment.domains)


def amounts_by_domain(usage: Iterable[DomainUsage]) -> dict[Values, dict[str, int]]:
    """All that is taken of each domain, the places of the pods among them."""
    taken: dict[Values, dict[str, int]] = {}
    for used in usage:
        amounts = taken.setdefault(used.values, {})
        for resource, amount in used.requests.items():
            amounts[resource] = amounts.get(resource, 0) + amount * used.count
        amounts[PODS] = amounts.get(PODS, 0) + used.count
    return taken


def pod_count(assignment: TopologyAssignment) -> int:
    return sum(domain.pods for domain in assignment.domains)


def truncate(assignment: TopologyAssignment, count: int) -> TopologyAssignment:
    """The first `count` pods stay where they are: ranks are given in this order, and the last ones leave first."""
    kept, left = list[Domain](), count
    for domain in assignment.domains:
        if left <= 0:
            break
        kept.append(Domain(domain.values, min(domain.pods, left)))
        left -= domain.pods
    return TopologyAssignment(assignment.levels, tuple(kept))


def merge(
    one: TopologyAssignment, other: TopologyAssignment, position: Mapping[Values, int] | None = None
) -> TopologyAssignment:
    """Both together. `position`: the place of each domain in the topology; those without one go by their values."""
    counts: dict[Values, int] = {}
    for domain in (*one.domains, *other.domains):
        counts[domain.values] = counts.get(domain.values, 0) + domain.pods
    known = position or {}
    ordered = sorted(counts, key=lambda values: (known.get(values, -1), values))
    return TopologyAssignment(one.levels, tuple(Domain(values, counts[values]) for values in ordered))


def to_document(assignment: TopologyAssignment, *, by_prefix: bool = True) -> Document:
    """As v1beta2 writes it. `by_prefix`: hosts whose names start alike are written together where that is shorter."""
    if by_prefix:
        return written.shortest(assignment.levels, assignment.domains)
    return written.compact(assignment.levels, assignment.domains)


def from_view(view: kueue.TopologyAssignment) -> TopologyAssignment:
    """What cannot be read in full is read as far as it goes: the object was validated when it was written."""
    domains: list[Domain] = []
    for piece in view.slices:
        size, counts = piece.domain_count or 0, piece.pod_counts
        pods = [counts.universal] * size if counts.universal is not None else list(counts.individual)
        levels = [_level_values(level, size) for level in piece.values_per_level]
        domains += (Domain(values, count) for values, count in zip(zip(*levels, strict=False), pods, strict=False))
    return TopologyAssignment(view.levels, tuple(domains))


def _level_values(level: kueue.TopologyAssignmentSliceLevelValues, size: int) -> list[str]:
    if level.individual is None:
        return [level.universal or ""] * size
    prefix, suffix = level.individual.prefix or "", level.individual.suffix or ""
    return [prefix + root + suffix for root in level.individual.roots]
