"""When a node has failed: which pods need a new place, and where they may go so that what was asked for still holds."""

from dataclasses import dataclass

from muster.api import kueue
from muster.quota.gates import Gate, Gates
from muster.quota.topology.assignments import TopologyAssignment, from_view, pod_count
from muster.quota.topology.requests import Layer, Shape
from muster.quota.topology.tree import Span, Tree

GROUP_ANNOTATION = "kueue.x-k8s.io/is-group-workload"


@dataclass(frozen=True, slots=True)
class Loss:
    """An assignment whose nodes have failed in part."""

    existing: TopologyAssignment
    kept: TopologyAssignment

    @property
    def pods(self) -> int:
        return pod_count(self.existing) - pod_count(self.kept)


def replaces(workload: kueue.Workload | None, gates: Gates) -> bool:
    """Whether only the pods on failed nodes are to be placed."""
    return workload is not None and bool(workload.status.unhealthy_nodes) and Gate.TAS_FAILED_NODE_REPLACEMENT in gates


def keeps_its_place(workload: kueue.Workload, gates: Gates) -> bool:
    """A workload that is one bare pod goes with it: no other pod would ever use a new place."""
    owners = workload.metadata.owner_references
    return (
        Gate.SKIP_REASSIGNMENT_FOR_POD_OWNED_WORKLOADS in gates
        and len(owners) == 1
        and (owners[0].api_version, owners[0].kind) == ("v1", "Pod")
        and (workload.metadata.annotations or {}).get(GROUP_ANNOTATION) != "true"
    )


def loss_of(workload: kueue.Workload, pod_set: str) -> Loss | None:
    """None where the pod set has no assignment."""
    admission = workload.status.admission
    for assigned in admission.pod_set_assignments if admission is not None else ():
        if assigned.name == pod_set and assigned.topology_assignment is not None:
            existing = from_view(assigned.topology_assignment)
            failed = {node.name for node in workload.status.unhealthy_nodes}
            kept = tuple(domain for domain in existing.domains if domain.values[-1] not in failed)
            return Loss(existing, TopologyAssignment(existing.levels, kept))
    return None


def confined(tree: Tree, shape: Shape, kept: TopologyAssignment) -> tuple[Shape, Span | None]:
    """What the lost pods must keep to, and the leaves that they may go to; None: all. The pods that were kept are in
    the tree.

    Where a slice is no longer whole, its pods return to its domain, one by one or in the slices within it. The
    innermost layer that is broken decides: the domains of the others contain it."""
    leaves = [(tree.position[domain.values], domain.pods) for domain in kept.domains]
    for layer in reversed((Layer(shape.slice_level, shape.slice_size), *shape.inner)):
        held: dict[int, int] = {}
        for leaf, pods in leaves:
            domain = tree.ancestor(leaf, layer.level)
            held[domain] = held.get(domain, 0) + pods
        broken = [domain for domain, pods in held.items() if pods % layer.size]
        if broken:
            return shape.without_layers_down_to(layer.level, tree.lowest), tree.leaves(layer.level, min(broken))
    if shape.is_required and leaves:
        return shape, tree.leaves(shape.level, tree.ancestor(leaves[0][0], shape.level))
    return shape, None
