"""Views of Pod: its spec, its status, and the template that job kinds embed."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from muster.api.core.views.constraints import Affinity, PodSchedulingGate, Toleration, TopologySpreadConstraint
from muster.api.core.views.containers import (
    AppArmorProfile,
    Container,
    LocalObjectReference,
    ResourceRequirements,
    SeccompProfile,
    SELinuxOptions,
    WindowsSecurityContextOptions,
)
from muster.api.core.views.volumes import Volume
from muster.api.meta import ATOMIC, OPAQUE, Condition, ObjectMeta, Resource, View, merge_by
from muster.api.scalars import Int32, Int64, Opaque, ResourceList


class Sysctl(View, frozen=True):
    """A kernel parameter of the pod's namespaces."""

    name: str = ""
    value: str = ""


class PodSecurityContext(View, frozen=True):
    """Rights that all containers of the pod share unless they say otherwise."""

    app_armor_profile: AppArmorProfile | None = None
    fs_group: Int64 | None = None
    fs_group_change_policy: str | None = None
    run_as_group: Int64 | None = None
    run_as_non_root: bool | None = None
    run_as_user: Int64 | None = None
    se_linux_change_policy: str | None = None
    se_linux_options: SELinuxOptions | None = None
    seccomp_profile: SeccompProfile | None = None
    supplemental_groups: Annotated[tuple[Int64, ...], ATOMIC] = ()
    supplemental_groups_policy: str | None = None
    sysctls: Annotated[tuple[Sysctl, ...], ATOMIC] = ()
    windows_options: WindowsSecurityContextOptions | None = None


class PodReadinessGate(View, frozen=True):
    """A condition that must be true as well before the pod counts as ready."""

    condition_type: str = ""


class PodResourceClaim(View, frozen=True):
    """Devices that the pod claims, by an existing claim or by a template."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class HostAlias(View, frozen=True):
    """A line of the pod's hosts file."""

    hostnames: Annotated[tuple[str, ...], ATOMIC] = ()
    ip: str = ""


class PodDNSConfigOption(View, frozen=True):
    """An option of the resolver."""

    name: str | None = None
    value: str | None = None


class PodDNSConfig(View, frozen=True):
    """What is added to the resolver's configuration."""

    nameservers: Annotated[tuple[str, ...], ATOMIC] = ()
    options: Annotated[tuple[PodDNSConfigOption, ...], ATOMIC] = ()
    searches: Annotated[tuple[str, ...], ATOMIC] = ()


class PodOS(View, frozen=True):
    """The operating system that the pod needs."""

    name: str = ""


class PodSpec(View, frozen=True):
    """What a pod runs, what it needs, and where it may run."""

    active_deadline_seconds: Int64 | None = None
    affinity: Affinity | None = None
    automount_service_account_token: bool | None = None
    containers: Annotated[tuple[Container, ...], merge_by("name")] = ()
    dns_config: PodDNSConfig | None = None
    dns_policy: str | None = None
    enable_service_links: bool | None = None
    ephemeral_containers: Annotated[tuple[Annotated[Mapping[str, object], OPAQUE], ...], merge_by("name")] = ()
    eviction_responders: tuple[Annotated[Mapping[str, object], OPAQUE], ...] = ()
    host_aliases: Annotated[tuple[HostAlias, ...], merge_by("ip")] = ()
    host_ipc: bool | None = msgspec.field(default=None, name="hostIPC")
    host_network: bool | None = None
    host_pid: bool | None = msgspec.field(default=None, name="hostPID")
    host_users: bool | None = None
    hostname: str | None = None
    hostname_override: str | None = None
    image_pull_secrets: Annotated[tuple[LocalObjectReference, ...], merge_by("name")] = ()
    init_containers: Annotated[tuple[Container, ...], merge_by("name")] = ()
    node_name: str | None = None
    node_selector: Mapping[str, str] | None = None
    os: PodOS | None = None
    overhead: ResourceList | None = None
    preemption_policy: str | None = None
    priority: Int32 | None = None
    priority_class_name: str | None = None
    readiness_gates: Annotated[tuple[PodReadinessGate, ...], ATOMIC] = ()
    resource_claims: Annotated[tuple[PodResourceClaim, ...], merge_by("name")] = ()
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None
    runtime_class_name: str | None = None
    scheduler_name: str | None = None
    scheduling_gates: Annotated[tuple[PodSchedulingGate, ...], merge_by("name")] = ()
    scheduling_group: Opaque = None
    security_context: PodSecurityContext | None = None
    service_account: str | None = None
    service_account_name: str | None = None
    set_hostname_as_fqdn: bool | None = msgspec.field(default=None, name="setHostnameAsFQDN")
    share_process_namespace: bool | None = None
    subdomain: str | None = None
    termination_grace_period_seconds: Int64 | None = None
    tolerations: Annotated[tuple[Toleration, ...], ATOMIC] = ()
    topology_spread_constraints: Annotated[
        tuple[TopologySpreadConstraint, ...], merge_by("topologyKey", "whenUnsatisfiable")
    ] = ()
    volumes: Annotated[tuple[Volume, ...], merge_by("name")] = ()
    workload_ref: Opaque = None


class PodTemplateSpec(View, frozen=True):
    """What pods made by a controller look like."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class ContainerStateRunning(View, frozen=True):
    """The container runs."""

    started_at: str | None = None


class ContainerStateTerminated(View, frozen=True):
    """The container has ended, and how."""

    container_id: str | None = msgspec.field(default=None, name="containerID")
    exit_code: Int32 = 0
    finished_at: str | None = None
    message: str | None = None
    reason: str | None = None
    signal: Int32 | None = None
    started_at: str | None = None


class ContainerStateWaiting(View, frozen=True):
    """The container does not run yet (or again), and why."""

    message: str | None = None
    reason: str | None = None


class ContainerState(View, frozen=True):
    """Where a container is in its life; at most one is set."""

    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None
    waiting: ContainerStateWaiting | None = None


class ResourceStatus(View, frozen=True):
    """The health of the devices that a container was given."""

    name: str = ""
    resources: tuple[Annotated[Mapping[str, object], OPAQUE], ...] = ()


class VolumeMountStatus(View, frozen=True):
    """A mount as it really is."""

    mount_path: str = ""
    name: str = ""
    read_only: bool | None = None
    recursive_read_only: str | None = None
    volume_status: Opaque = None


class ContainerStatus(View, frozen=True):
    """What the node says of one container."""

    allocated_resources: ResourceList | None = None
    allocated_resources_status: Annotated[tuple[ResourceStatus, ...], merge_by("name")] = ()
    container_id: str | None = msgspec.field(default=None, name="containerID")
    image: str = ""
    image_id: str = msgspec.field(default="", name="imageID")
    last_state: ContainerState | None = None
    name: str = ""
    ready: bool = False
    resources: ResourceRequirements | None = None
    restart_count: Int32 = 0
    started: bool | None = None
    state: ContainerState | None = None
    stop_signal: str | None = None
    user: Opaque = None
    volume_mounts: Annotated[tuple[VolumeMountStatus, ...], merge_by("mountPath")] = ()


class PodIP(View, frozen=True):
    """An address of the pod."""

    ip: str = ""


class HostIP(View, frozen=True):
    """An address of the pod's node."""

    ip: str = ""


class PodResourceClaimStatus(View, frozen=True):
    """The claim that was made for an entry of the pod's resourceClaims."""

    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(View, frozen=True):
    """How the pod fares, as its node and the scheduler report it."""

    allocated_resources: ResourceList | None = None
    conditions: Annotated[tuple[Condition, ...], merge_by("type")] = ()
    container_statuses: Annotated[tuple[ContainerStatus, ...], ATOMIC] = ()
    ephemeral_container_statuses: Annotated[tuple[ContainerStatus, ...], ATOMIC] = ()
    extended_resource_claim_status: Opaque = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    host_ips: Annotated[tuple[HostIP, ...], merge_by("ip")] = msgspec.field(default=(), name="hostIPs")
    init_container_statuses: Annotated[tuple[ContainerStatus, ...], ATOMIC] = ()
    message: str | None = None
    node_allocatable_resource_claim_statuses: tuple[Annotated[Mapping[str, object], OPAQUE], ...] = ()
    nominated_node_name: str | None = None
    observed_generation: Int64 | None = None
    phase: str | None = None
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    pod_ips: Annotated[tuple[PodIP, ...], merge_by("ip")] = msgspec.field(default=(), name="podIPs")
    qos_class: str | None = None
    reason: str | None = None
    resize: str | None = None
    resource_claim_statuses: Annotated[tuple[PodResourceClaimStatus, ...], merge_by("name")] = ()
    resources: ResourceRequirements | None = None
    start_time: str | None = None
    volume_health: tuple[Annotated[Mapping[str, object], OPAQUE], ...] = ()


class Pod(Resource, frozen=True):
    """Containers that are placed on one node together and live and end there together."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
