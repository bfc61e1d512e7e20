"""Views of Node: a machine that pods run on."""

from typing import Annotated

import msgspec

from muster.api.meta import ATOMIC, MERGED_SET, Condition, Resource, View, merge_by
from muster.api.scalars import Int32, Int64, Opaque, ResourceList


class Taint(View, frozen=True):
    """Keeps pods away from a node unless they tolerate it."""

    effect: str = ""
    key: str = ""
    time_added: str | None = None
    value: str | None = None


class NodeSpec(View, frozen=True):
    """What an administrator or a controller wants of the node."""

    config_source: Opaque = None
    external_id: str | None = msgspec.field(default=None, name="externalID")
    pod_cidr: str | None = msgspec.field(default=None, name="podCIDR")
    pod_cidrs: Annotated[tuple[str, ...], MERGED_SET] = msgspec.field(default=(), name="podCIDRs")
    pod_preemption_policy: Opaque = None
    provider_id: str | None = msgspec.field(default=None, name="providerID")
    taints: Annotated[tuple[Taint, ...], merge_by("key", "effect")] = ()
    unschedulable: bool | None = None


class NodeAddress(View, frozen=True):
    """A name or address under which the node is reached."""

    address: str = ""
    type: str = ""


class DaemonEndpoint(View, frozen=True):
    """The port of a service on the node."""

    port: Int32 = msgspec.field(default=0, name="Port")


class NodeDaemonEndpoints(View, frozen=True):
    """Where the node's agent listens."""

    kubelet_endpoint: DaemonEndpoint | None = None


class ContainerImage(View, frozen=True):
    """An image that the node has."""

    names: Annotated[tuple[str, ...], ATOMIC] = ()
    size_bytes: Int64 | None = None


class NodeSwapStatus(View, frozen=True):
    """How much swap the node has."""

    capacity: Int64 | None = None


class NodeSystemInfo(View, frozen=True):
    """What the node is and runs."""

    architecture: str = ""
    boot_id: str = msgspec.field(default="", name="bootID")
    container_runtime_version: str = ""
    kernel_version: str = ""
    kube_proxy_version: str = ""
    kubelet_version: str = ""
    machine_id: str = msgspec.field(default="", name="machineID")
    operating_system: str = ""
    os_image: str = ""
    running_in_user_namespace: bool | None = None
    swap: NodeSwapStatus | None = None
    system_uuid: str = msgspec.field(default="", name="systemUUID")


class AttachedVolume(View, frozen=True):
    """A volume that is attached to the node."""

    device_path: str = ""
    name: str = ""


class NodeFeatures(View, frozen=True):
    """Features of the node's runtime."""

    supplemental_groups_policy: bool | None = None


class NodeRuntimeHandler(View, frozen=True):
    """A way in which the node can run containers."""

    features: Opaque = None
    name: str | None = None


class NodeStatus(View, frozen=True):
    """What the node's agent reports."""

    addresses: Annotated[tuple[NodeAddress, ...], merge_by("type")] = ()
    allocatable: ResourceList | None = None
    capacity: ResourceList | None = None
    conditions: Annotated[tuple[Condition, ...], merge_by("type")] = ()
    config: Opaque = None
    daemon_endpoints: NodeDaemonEndpoints | None = None
    declared_features: Annotated[tuple[str, ...], ATOMIC] = ()
    features: NodeFeatures | None = None
    images: Annotated[tuple[ContainerImage, ...], ATOMIC] = ()
    node_info: NodeSystemInfo | None = None
    phase: str | None = None
    runtime_handlers: Annotated[tuple[NodeRuntimeHandler, ...], ATOMIC] = ()
    volumes_attached: Annotated[tuple[AttachedVolume, ...], ATOMIC] = ()
    volumes_in_use: Annotated[tuple[str, ...], ATOMIC] = ()


class Node(Resource, frozen=True):
    """A machine of the cluster: what it has, what it says of itself, and what keeps pods off it."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
