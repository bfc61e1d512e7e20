"""Views of a pod's volumes. Sources that only a Kubernetes cluster can provide stay opaque."""

from typing import Annotated

import msgspec

from muster.api.core.views.containers import ObjectFieldSelector, ResourceFieldSelector
from muster.api.meta import ATOMIC, View
from muster.api.scalars import Int32, Int64, Opaque, QuantityText


class EmptyDirVolumeSource(View, frozen=True):
    """A directory that is made for the pod and goes with it."""

    medium: str | None = None
    mode: Int32 | None = None
    size_limit: QuantityText | None = None


class HostPathVolumeSource(View, frozen=True):
    """A path of the node itself."""

    path: str = ""
    type: str | None = None


class KeyToPath(View, frozen=True):
    """Puts one key into one file."""

    key: str = ""
    mode: Int32 | None = None
    path: str = ""
    user: Int64 | None = None


class ConfigMapVolumeSource(View, frozen=True):
    """A ConfigMap as a directory: one file a key."""

    default_mode: Int32 | None = None
    default_user: Int64 | None = None
    items: Annotated[tuple[KeyToPath, ...], ATOMIC] = ()
    name: str = ""
    optional: bool | None = None


class SecretVolumeSource(View, frozen=True):
    """A Secret as a directory: one file a key."""

    default_mode: Int32 | None = None
    default_user: Int64 | None = None
    items: Annotated[tuple[KeyToPath, ...], ATOMIC] = ()
    optional: bool | None = None
    secret_name: str = ""


class DownwardAPIVolumeFile(View, frozen=True):
    """A file whose content is a field of the pod or a resource of a container."""

    field_ref: ObjectFieldSelector | None = None
    mode: Int32 | None = None
    path: str = ""
    resource_field_ref: ResourceFieldSelector | None = None
    user: Int64 | None = None


class DownwardAPIVolumeSource(View, frozen=True):
    """Fields of the pod as files."""

    default_mode: Int32 | None = None
    default_user: Int64 | None = None
    items: Annotated[tuple[DownwardAPIVolumeFile, ...], ATOMIC] = ()


class ConfigMapProjection(View, frozen=True):
    """Keys of a ConfigMap within a projected volume."""

    items: Annotated[tuple[KeyToPath, ...], ATOMIC] = ()
    name: str = ""
    optional: bool | None = None


class SecretProjection(View, frozen=True):
    """Keys of a Secret within a projected volume."""

    items: Annotated[tuple[KeyToPath, ...], ATOMIC] = ()
    name: str = ""
    optional: bool | None = None


class DownwardAPIProjection(View, frozen=True):
    """Fields of the pod within a projected volume."""

    items: Annotated[tuple[DownwardAPIVolumeFile, ...], ATOMIC] = ()


class ServiceAccountTokenProjection(View, frozen=True):
    """A token of the pod's service account within a projected volume."""

    audience: str | None = None
    expiration_seconds: Int64 | None = None
    path: str = ""
    user: Int64 | None = None


class VolumeProjection(View, frozen=True):
    """One source of a projected volume; exactly one is set."""

    cluster_trust_bundle: Opaque = None
    config_map: ConfigMapProjection | None = None
    downward_api: DownwardAPIProjection | None = msgspec.field(default=None, name="downwardAPI")
    pod_certificate: Opaque = None
    secret: SecretProjection | None = None
    service_account_token: ServiceAccountTokenProjection | None = None


class ProjectedVolumeSource(View, frozen=True):
    """Several sources in one directory."""

    default_mode: Int32 | None = None
    default_user: Int64 | None = None
    sources: Annotated[tuple[VolumeProjection, ...], ATOMIC] = ()


class PersistentVolumeClaimVolumeSource(View, frozen=True):
    """Storage that a claim of the same namespace holds."""

    claim_name: str = ""
    read_only: bool | None = None


class Volume(View, frozen=True):
    """A directory that containers of the pod may mount; exactly one source is set."""

    aws_elastic_block_store: Opaque = None
    azure_disk: Opaque = None
    azure_file: Opaque = None
    cephfs: Opaque = None
    cinder: Opaque = None
    config_map: ConfigMapVolumeSource | None = None
    csi: Opaque = None
    downward_api: DownwardAPIVolumeSource | None = msgspec.field(default=None, name="downwardAPI")
    empty_dir: EmptyDirVolumeSource | None = None
    ephemeral: Opaque = None
    fc: Opaque = None
    flex_volume: Opaque = None
    flocker: Opaque = None
    gce_persistent_disk: Opaque = None
    git_repo: Opaque = None
    glusterfs: Opaque = None
    host_path: HostPathVolumeSource | None = None
    image: Opaque = None
    iscsi: Opaque = None
    name: str = ""
    nfs: Opaque = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    photon_persistent_disk: Opaque = None
    portworx_volume: Opaque = None
    projected: ProjectedVolumeSource | None = None
    quobyte: Opaque = None
    rbd: Opaque = None
    scale_io: Opaque = msgspec.field(default=None, name="scaleIO")
    secret: SecretVolumeSource | None = None
    storageos: Opaque = None
    vsphere_volume: Opaque = None
