"""View of PersistentVolumeClaim."""

from collections.abc import Mapping
from typing import Annotated

from muster.api.meta import ATOMIC, Condition, LabelSelector, Resource, View, merge_by
from muster.api.scalars import Opaque, ResourceList


class VolumeResourceRequirements(View, frozen=True):
    """How much storage is asked for."""

    limits: ResourceList | None = None
    requests: ResourceList | None = None


class PersistentVolumeClaimSpec(View, frozen=True):
    """What kind of storage is wanted, and once it is bound which."""

    access_modes: Annotated[tuple[str, ...], ATOMIC] = ()
    data_source: Opaque = None
    data_source_ref: Opaque = None
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    selector: LabelSelector | None = None
    storage_class_name: str | None = None
    volume_attributes_class_name: str | None = None
    volume_mode: str | None = None
    volume_name: str | None = None


class PersistentVolumeClaimStatus(View, frozen=True):
    """Whether it is bound, and to how much."""

    access_modes: Annotated[tuple[str, ...], ATOMIC] = ()
    allocated_resource_statuses: Mapping[str, str] | None = None
    allocated_resources: ResourceList | None = None
    capacity: ResourceList | None = None
    conditions: Annotated[tuple[Condition, ...], merge_by("type")] = ()
    current_volume_attributes_class_name: str | None = None
    health_status: Opaque = None
    modify_volume_status: Opaque = None
    phase: str | None = None


class PersistentVolumeClaim(Resource, frozen=True):
    """A user's claim to storage that outlives pods."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()
