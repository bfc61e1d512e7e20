"""Views of a container: what it runs, its environment, ports, probes, rights and resources."""

from typing import Annotated

import msgspec

from muster.api.meta import ATOMIC, View, merge_by
from muster.api.scalars import Int32, Int64, IntOrString, QuantityText, ResourceList


class LocalObjectReference(View, frozen=True):
    """Names an object of the same namespace."""

    name: str = ""


class ObjectFieldSelector(View, frozen=True):
    """Picks a field of the pod itself, such as metadata.name or status.hostIP."""

    api_version: str | None = None
    field_path: str = ""


class ResourceFieldSelector(View, frozen=True):
    """Picks a request or limit of a container, in multiples of the divisor."""

    container_name: str | None = None
    divisor: QuantityText | None = None
    resource: str = ""


class ConfigMapKeySelector(View, frozen=True):
    """Picks one key of a ConfigMap."""

    name: str = ""
    key: str = ""
    optional: bool | None = None


class SecretKeySelector(View, frozen=True):
    """Picks one key of a Secret."""

    name: str = ""
    key: str = ""
    optional: bool | None = None


class FileKeySelector(View, frozen=True):
    """Picks one variable from an env file that lies in a volume of the pod."""

    key: str = ""
    optional: bool | None = None
    path: str = ""
    volume_name: str = ""


class EnvVarSource(View, frozen=True):
    """Where the value of an environment variable comes from; exactly one is set."""

    config_map_key_ref: ConfigMapKeySelector | None = None
    field_ref: ObjectFieldSelector | None = None
    file_key_ref: FileKeySelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    secret_key_ref: SecretKeySelector | None = None


class EnvVar(View, frozen=True):
    """One environment variable. $(NAME) in the value refers to variables listed before it."""

    name: str = ""
    value: str | None = None
    value_from: EnvVarSource | None = None


class ConfigMapEnvSource(View, frozen=True):
    """A ConfigMap of which every key becomes a variable."""

    name: str = ""
    optional: bool | None = None


class SecretEnvSource(View, frozen=True):
    """A Secret of which every key becomes a variable."""

    name: str = ""
    optional: bool | None = None


class EnvFromSource(View, frozen=True):
    """Takes a whole ConfigMap or Secret into the environment, each name behind the prefix."""

    config_map_ref: ConfigMapEnvSource | None = None
    prefix: str | None = None
    secret_ref: SecretEnvSource | None = None


class ContainerPort(View, frozen=True):
    """A port that the container listens on. A host port also claims that port of the node."""

    container_port: Int32 | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    host_port: Int32 | None = None
    name: str | None = None
    protocol: str | None = None


class ResourceClaim(View, frozen=True):
    """Refers to an entry of the pod's resourceClaims."""

    name: str = ""
    request: str | None = None


class ResourceRequirements(View, frozen=True):
    """What is set aside (requests) and what may at most be used (limits)."""

    claims: Annotated[tuple[ResourceClaim, ...], merge_by("name")] = ()
    limits: ResourceList | None = None
    requests: ResourceList | None = None


class ContainerResizePolicy(View, frozen=True):
    """Whether a container restarts when the amount of a resource is changed."""

    resource_name: str = ""
    restart_policy: str = ""


class ContainerRestartRuleOnExitCodes(View, frozen=True):
    """Matches exit codes."""

    operator: str = ""
    values: Annotated[tuple[Int32, ...], ATOMIC] = ()


class ContainerRestartRule(View, frozen=True):
    """What to do when a container exits with certain codes, before its restart policy is asked."""

    action: str = ""
    exit_codes: ContainerRestartRuleOnExitCodes | None = None


class VolumeMount(View, frozen=True):
    """Shows a volume of the pod at a path of the container."""

    bind_mount_options: Annotated[tuple[str, ...], ATOMIC] = ()
    mount_path: str = ""
    mount_propagation: str | None = None
    name: str = ""
    read_only: bool | None = None
    recursive_read_only: str | None = None
    sub_path: str | None = None
    sub_path_expr: str | None = None


class VolumeDevice(View, frozen=True):
    """Shows a raw block device inside the container."""

    device_path: str = ""
    name: str = ""


class ExecAction(View, frozen=True):
    """Runs a command in the container; exit code 0 is success."""

    command: Annotated[tuple[str, ...], ATOMIC] = ()


class HTTPHeader(View, frozen=True):
    """A header of a probe's request."""

    name: str = ""
    value: str = ""


class HTTPGetAction(View, frozen=True):
    """Requests a URL; an answer from 200 to 399 is success."""

    host: str | None = None
    http_headers: Annotated[tuple[HTTPHeader, ...], ATOMIC] = ()
    path: str | None = None
    port: IntOrString | None = None
    protocol: str | None = None
    scheme: str | None = None


class TCPSocketAction(View, frozen=True):
    """Opens a connection; being accepted is success."""

    host: str | None = None
    port: IntOrString | None = None


class GRPCAction(View, frozen=True):
    """Asks the gRPC health service of the container."""

    mode: str | None = None
    port: Int32 | None = None
    service: str | None = None


class Probe(View, frozen=True):
    """A check that is repeated while a container runs; exactly one way of asking is set."""

    exec: ExecAction | None = None
    failure_threshold: Int32 | None = None
    grpc: GRPCAction | None = None
    http_get: HTTPGetAction | None = None
    initial_delay_seconds: Int32 | None = None
    period_seconds: Int32 | None = None
    success_threshold: Int32 | None = None
    tcp_socket: TCPSocketAction | None = None
    termination_grace_period_seconds: Int64 | None = None
    timeout_seconds: Int32 | None = None


class SleepAction(View, frozen=True):
    """Waits."""

    seconds: Int64 | None = None


class LifecycleHandler(View, frozen=True):
    """What to do at a point of a container's life; exactly one is set."""

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    sleep: SleepAction | None = None
    tcp_socket: TCPSocketAction | None = None


class Lifecycle(View, frozen=True):
    """What to do right after a container starts and before it is stopped, and the signal that stops it."""

    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None
    stop_signal: str | None = None


class Capabilities(View, frozen=True):
    """Linux capabilities beyond or below what the runtime gives."""

    add: Annotated[tuple[str, ...], ATOMIC] = ()
    drop: Annotated[tuple[str, ...], ATOMIC] = ()


class SELinuxOptions(View, frozen=True):
    """The SELinux label of a container."""

    level: str | None = None
    role: str | None = None
    type: str | None = None
    user: str | None = None


class SeccompProfile(View, frozen=True):
    """Which system calls a container may make."""

    localhost_profile: str | None = None
    type: str = ""


class AppArmorProfile(View, frozen=True):
    """The AppArmor profile that confines a container."""

    localhost_profile: str | None = None
    type: str = ""


class WindowsSecurityContextOptions(View, frozen=True):
    """Rights of a container on Windows."""

    gmsa_credential_spec: str | None = None
    gmsa_credential_spec_name: str | None = None
    host_process: bool | None = None
    run_as_user_name: str | None = None


class SecurityContext(View, frozen=True):
    """Rights of one container; they win over those of the pod."""

    allow_privilege_escalation: bool | None = None
    app_armor_profile: AppArmorProfile | None = None
    capabilities: Capabilities | None = None
    privileged: bool | None = None
    proc_mount: str | None = None
    read_only_root_filesystem: bool | None = None
    run_as_group: Int64 | None = None
    run_as_non_root: bool | None = None
    run_as_user: Int64 | None = None
    se_linux_options: SELinuxOptions | None = None
    seccomp_profile: SeccompProfile | None = None
    windows_options: WindowsSecurityContextOptions | None = None


class Container(View, frozen=True):
    """One process tree of a pod: an image, a command and what it needs."""

    args: Annotated[tuple[str, ...], ATOMIC] = ()
    command: Annotated[tuple[str, ...], ATOMIC] = ()
    env: Annotated[tuple[EnvVar, ...], merge_by("name")] = ()
    env_from: Annotated[tuple[EnvFromSource, ...], ATOMIC] = ()
    image: str | None = None
    image_pull_policy: str | None = None
    lifecycle: Lifecycle | None = None
    liveness_probe: Probe | None = None
    name: str = ""
    ports: Annotated[tuple[ContainerPort, ...], merge_by("containerPort", "protocol")] = ()
    readiness_probe: Probe | None = None
    resize_policy: Annotated[tuple[ContainerResizePolicy, ...], ATOMIC] = ()
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None
    restart_policy_rules: Annotated[tuple[ContainerRestartRule, ...], ATOMIC] = ()
    security_context: SecurityContext | None = None
    startup_probe: Probe | None = None
    stdin: bool | None = None
    stdin_once: bool | None = None
    termination_message_path: str | None = None
    termination_message_policy: str | None = None
    tty: bool | None = None
    volume_devices: Annotated[tuple[VolumeDevice, ...], merge_by("devicePath")] = ()
    volume_mounts: Annotated[tuple[VolumeMount, ...], merge_by("mountPath")] = ()
    working_dir: str | None = None
