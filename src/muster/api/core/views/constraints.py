"""Views of what a pod says about where it may be placed: affinity, tolerations, spreading, gates."""

from typing import Annotated

from muster.api.meta import ATOMIC, LabelSelector, View
from muster.api.scalars import Int32, Int64


class NodeSelectorRequirement(View, frozen=True):
    """A condition on one label (or field) of a node."""

    key: str = ""
    operator: str = ""
    values: Annotated[tuple[str, ...], ATOMIC] = ()


class NodeSelectorTerm(View, frozen=True):
    """All its conditions must hold; a term without any matches no node."""

    match_expressions: Annotated[tuple[NodeSelectorRequirement, ...], ATOMIC] = ()
    match_fields: Annotated[tuple[NodeSelectorRequirement, ...], ATOMIC] = ()


class NodeSelector(View, frozen=True):
    """At least one of the terms must match."""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], ATOMIC] = ()


class PreferredSchedulingTerm(View, frozen=True):
    """Nodes that match are better by the weight."""

    preference: NodeSelectorTerm = NodeSelectorTerm()
    weight: Int32 | None = None


class NodeAffinity(View, frozen=True):
    """Which nodes the pod must, and which it would rather, run on."""

    preferred_during_scheduling_ignored_during_execution: Annotated[tuple[PreferredSchedulingTerm, ...], ATOMIC] = ()
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class PodAffinityTerm(View, frozen=True):
    """Other pods by their labels, and the topology within which they count as near."""

    label_selector: LabelSelector | None = None
    match_label_keys: Annotated[tuple[str, ...], ATOMIC] = ()
    mismatch_label_keys: Annotated[tuple[str, ...], ATOMIC] = ()
    namespace_selector: LabelSelector | None = None
    namespaces: Annotated[tuple[str, ...], ATOMIC] = ()
    topology_key: str = ""


class WeightedPodAffinityTerm(View, frozen=True):
    """Being near these pods counts by the weight."""

    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()
    weight: Int32 | None = None


class PodAffinity(View, frozen=True):
    """Which pods this one must, and which it would rather, be near."""

    preferred_during_scheduling_ignored_during_execution: Annotated[tuple[WeightedPodAffinityTerm, ...], ATOMIC] = ()
    required_during_scheduling_ignored_during_execution: Annotated[tuple[PodAffinityTerm, ...], ATOMIC] = ()


class PodAntiAffinity(View, frozen=True):
    """Which pods this one must not, and which it would rather not, be near."""

    preferred_during_scheduling_ignored_during_execution: Annotated[tuple[WeightedPodAffinityTerm, ...], ATOMIC] = ()
    required_during_scheduling_ignored_during_execution: Annotated[tuple[PodAffinityTerm, ...], ATOMIC] = ()


class Affinity(View, frozen=True):
    """Attraction to nodes and to pods, and repulsion from pods."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class Toleration(View, frozen=True):
    """A taint that the pod puts up with, for a while or for good."""

    effect: str | None = None
    key: str | None = None
    operator: str | None = None
    toleration_seconds: Int64 | None = None
    value: str | None = None


class TopologySpreadConstraint(View, frozen=True):
    """How evenly matching pods must lie over the domains of a topology."""

    label_selector: LabelSelector | None = None
    match_label_keys: Annotated[tuple[str, ...], ATOMIC] = ()
    max_skew: Int32 | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    topology_key: str = ""
    when_unsatisfiable: str = ""


class PodSchedulingGate(View, frozen=True):
    """A reason not to schedule the pod yet; whoever set it takes it away."""

    name: str = ""
