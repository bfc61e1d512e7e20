"""What an admission must look like: assignments that fit the pod sets, and domains that add up."""

from collections.abc import Iterator, Mapping

from muster.api import fields, quantity
from muster.api.errors import FieldError
from muster.api.kueue.workload_views import (
    Admission,
    PodSetAssignment,
    TopologyAssignment,
    TopologyAssignmentSlice,
    TopologyAssignmentSliceLevelValues,
)
from muster.api.scalars import QuantityText

MAX_SLICES = 1000
MAX_LEVELS = 16
MAX_DOMAINS_IN_SLICE = 100_000


def validate_admission(path: str, admission: Admission, counts: Mapping[str, int]) -> Iterator[FieldError]:
    """`counts` are the workload's pod sets and their sizes."""
    yield from fields.dns_subdomain(f"{path}.clusterQueue", admission.cluster_queue)
    path = f"{path}.podSetAssignments"
    assignments = admission.pod_set_assignments
    if len(assignments) != len(counts):
        yield fields.invalid(path, len(assignments), "must have the same number of podSets as the spec")
    yield from fields.unique(path, [assignment.name for assignment in assignments], "name")
    for index, assignment in enumerate(assignments):
        at = f"{path}[{index}]"
        if assignment.name not in counts:
            yield fields.not_found(f"{at}.name", assignment.name)
        yield from _assignment(at, assignment)


def _assignment(path: str, assignment: PodSetAssignment) -> Iterator[FieldError]:
    for resource, flavor in (assignment.flavors or {}).items():
        yield from fields.dns_subdomain(f"{path}.flavors[{resource}]", flavor)
    yield from fields.non_negative(f"{path}.count", assignment.count)
    for resource, usage in (assignment.resource_usage or {}).items():
        yield from fields.amount(f"{path}.resourceUsage[{resource}]", usage)
        if not _is_shared_evenly(resource, usage, assignment.count or 0):
            yield fields.invalid(f"{path}.resourceUsage[{resource}]", usage, f"is not a multiple of {assignment.count}")
    yield from fields.one_of(
        f"{path}.delayedTopologyRequest", assignment.delayed_topology_request, ("Pending", "Ready")
    )
    if assignment.topology_assignment is not None:
        yield from _topology(f"{path}.topologyAssignment", assignment.topology_assignment)


def _is_shared_evenly(resource: str, usage: QuantityText, count: int) -> bool:
    """Every pod of a set asks for the same, so usage that the count does not divide was counted wrong."""
    try:
        amount = quantity.parse(usage)
    except quantity.BadQuantity:
        return True
    return count <= 0 or (amount.milli if resource == "cpu" else amount.units) % count == 0


def _topology(path: str, topology: TopologyAssignment) -> Iterator[FieldError]:
    if not topology.levels:
        yield fields.required(f"{path}.levels")
    yield from fields.at_most(f"{path}.levels", topology.levels, MAX_LEVELS)
    yield from fields.at_most(f"{path}.slices", topology.slices, MAX_SLICES)
    for index, piece in enumerate(topology.slices):
        yield from _slice(f"{path}.slices[{index}]", piece, len(topology.levels))


def _slice(path: str, piece: TopologyAssignmentSlice, width: int) -> Iterator[FieldError]:
    size = piece.domain_count or 0
    if not 1 <= size <= MAX_DOMAINS_IN_SLICE:
        yield fields.invalid(f"{path}.domainCount", piece.domain_count, f"must be from 1 to {MAX_DOMAINS_IN_SLICE}")
    if len(piece.values_per_level) != width:
        yield fields.invalid(
            f"{path}.valuesPerLevel", len(piece.values_per_level), f"must have one entry for each of the {width} levels"
        )
    for index, level in enumerate(piece.values_per_level):
        yield from _level(f"{path}.valuesPerLevel[{index}]", level, size)
    counts = piece.pod_counts
    if (counts.universal is None) is not bool(counts.individual):
        yield fields.invalid(f"{path}.podCounts", "podCounts", "exactly one of universal and individual must be set")
    elif counts.individual and len(counts.individual) != size:
        yield fields.invalid(
            f"{path}.podCounts.individual",
            len(counts.individual),
            f"must have one entry for each of the {size} domains",
        )
    for count in (*counts.individual, *(() if counts.universal is None else (counts.universal,))):
        yield from fields.positive(f"{path}.podCounts", count)


def _level(path: str, level: TopologyAssignmentSliceLevelValues, size: int) -> Iterator[FieldError]:
    if (level.universal is None) is (level.individual is None):
        yield fields.invalid(path, "valuesPerLevel", "exactly one of universal and individual must be set")
    elif level.individual is not None and len(level.individual.roots) != size:
        yield fields.invalid(
            f"{path}.individual.roots",
            len(level.individual.roots),
            f"must have one entry for each of the {size} domains",
        )
