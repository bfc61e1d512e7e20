"""What is asked of a topology for one pod set, what comes back, and how the request reads in terms of levels."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from muster.api import core, kueue
from muster.quota.gates import Gate, Gates
from muster.quota.topology.assignments import TopologyAssignment


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """One pod set. `requests` are of one pod, from the pod spec, without `pods`."""

    name: str
    count: int
    requests: Mapping[str, int]
    topology: kueue.PodSetTopologyRequest | None = None
    """None, or one that names no level: implied by the flavor."""
    tolerations: tuple[core.Toleration, ...] = ()
    """Of the pod and of the checks; the flavor's own are added."""
    node_selector: Mapping[str, str] | None = None
    affinity: core.NodeAffinity | None = None
    group: str | None = None
    previous: TopologyAssignment | None = None
    """Of the workload slice that this one replaces."""

    @property
    def key(self) -> Hashable:
        """Equal for those that go to the same places; None for one that has places to keep."""
        if self.previous is not None:
            return None
        requests, selector = tuple(self.requests.items()), tuple((self.node_selector or {}).items())
        return self.name, self.count, requests, self.topology, self.tolerations, selector, self.affinity


@dataclass(frozen=True, slots=True)
class Placed:
    """`reason` is empty where it was placed."""

    assignment: TopologyAssignment | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Layer:
    """Every `size` pods stay together in one domain of the level."""

    level: int
    size: int


@dataclass(frozen=True, slots=True)
class Shape:
    """A request in terms of a topology's levels: 0 is the top."""

    level: int
    is_required: bool
    is_unconstrained: bool
    slice_level: int
    slice_size: int
    inner: tuple[Layer, ...] = ()
    """Layers of slices below the outermost, from the coarsest to the finest."""

    def size_at(self, level: int) -> int:
        """How many pods must stay together in a domain of a level below the slices' own."""
        return next((layer.size for layer in self.inner if layer.level == level), 1)

    def without_layers_down_to(self, level: int, lowest: int) -> "Shape":
        """As if only the layers of slices strictly below the level had been asked for."""
        outer, *rest = [layer for layer in self.inner if layer.level > level] or [Layer(lowest, 1)]
        return replace(self, slice_level=outer.level, slice_size=outer.size, inner=tuple(rest))


def named_levels(request: kueue.PodSetTopologyRequest) -> tuple[str, ...]:
    """Every level that the request names."""
    named = (request.required, request.preferred, request.pod_set_slice_required_topology)
    layers = (layer.topology for layer in request.podset_slice_required_topology_constraints)
    return (*(level for level in named if level is not None), *layers)


def has_levels(levels: Sequence[str], request: kueue.PodSetTopologyRequest | None) -> bool:
    """Whether the request asks for anything, and the topology has every level that it names."""
    if request is None:
        return False
    named = named_levels(request)
    return bool(named or request.unconstrained) and all(level in levels for level in named)


def shape_of(request: kueue.PodSetTopologyRequest | None, levels: Sequence[str], gates: Gates) -> Shape | str:
    """The reason, where the topology cannot mean anything by the request."""
    asked = request or kueue.PodSetTopologyRequest()
    slices = _slices(asked, gates)
    if isinstance(slices, str):
        return slices
    highest, lowest = levels[0], levels[-1]
    level = asked.required or asked.preferred or (highest if slices else lowest)
    if level not in levels:
        return f"no requested topology level: {level}"
    for name, _ in slices:
        if name not in levels:
            return f"no requested topology level for slices: {name}"
    outer, *inner = [Layer(levels.index(name), size) for name, size in slices] or [Layer(len(levels) - 1, 1)]
    if levels.index(level) > outer.level:
        return f"podset slice topology {levels[outer.level]} is above the podset topology {level}"
    return Shape(
        level=levels.index(level),
        is_required=asked.required is not None,
        is_unconstrained=asked.required is None and asked.preferred is None,
        slice_level=outer.level,
        slice_size=outer.size,
        inner=tuple(inner),
    )


def _slices(asked: kueue.PodSetTopologyRequest, gates: Gates) -> list[tuple[str, int]] | str:
    """Level and size of each layer, the outermost first."""
    listed = asked.podset_slice_required_topology_constraints
    if listed:
        layers = [(layer.topology, layer.size or 1) for layer in listed]
        return layers if Gate.TAS_MULTI_LAYER_TOPOLOGY in gates else layers[:1]
    if asked.pod_set_slice_required_topology is None:
        return []
    if asked.pod_set_slice_size is None:
        return "slice topology requested, but slice size not provided"
    return [(asked.pod_set_slice_required_topology, max(1, asked.pod_set_slice_size))]
