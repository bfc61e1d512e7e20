"""Views of Kubernetes' own PodGroup and CompositePodGroup: the part that placing pods reads."""

from muster.api.meta import Resource, View
from muster.api.scalars import Int32, Opaque


class GangPolicy(View, frozen=True):
    """All or nothing: so many pods (of a PodGroup) or child groups (of a CompositePodGroup) together."""

    min_count: Int32 | None = None
    min_group_count: Int32 | None = None


class SchedulingPolicy(View, frozen=True):
    """One of the two: pods one by one, or as a gang."""

    basic: Opaque = None
    gang: GangPolicy | None = None


class TopologyConstraint(View, frozen=True):
    """All pods on nodes that have one and the same value of this label."""

    key: str = ""


class SchedulingConstraints(View, frozen=True):
    topology: tuple[TopologyConstraint, ...] = ()


class DisruptionMode(View, frozen=True):
    """One of the two: pods may be evicted one by one, or only all together."""

    single: Opaque = None
    all: Opaque = None


class GroupSpec(View, frozen=True):
    """What both kinds have in common."""

    parent_composite_pod_group_name: str | None = None
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    priority_class_name: str | None = None
    priority: Int32 | None = None
    preemption_policy: str | None = None
    disruption_mode: DisruptionMode | None = None


class PodGroup(Resource, frozen=True):
    """Pods that are placed by one policy (scheduling.k8s.io/v1beta1)."""

    spec: GroupSpec = GroupSpec()


class CompositePodGroup(Resource, frozen=True):
    """Groups that are placed by one policy (scheduling.k8s.io/v1alpha3)."""

    spec: GroupSpec = GroupSpec()
