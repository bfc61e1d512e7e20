"""Checks of containers: names, images, environment, ports, mounts, probes, hooks."""

import ipaddress
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from muster.api import fields
from muster.api.core.requests import is_sidecar
from muster.api.core.validation.environment import validate_environment
from muster.api.core.validation.resources import validate_resources
from muster.api.core.views import (
    Container,
    ContainerPort,
    ExecAction,
    GRPCAction,
    HTTPGetAction,
    Lifecycle,
    LifecycleHandler,
    PodSpec,
    Probe,
    SecurityContext,
    SleepAction,
    TCPSocketAction,
    VolumeMount,
)
from muster.api.errors import FieldError

PROTOCOLS = frozenset({"TCP", "UDP", "SCTP"})
_PULL_POLICIES = frozenset({"Always", "IfNotPresent", "Never"})
_MESSAGE_POLICIES = frozenset({"File", "FallbackToLogsOnError"})
_PROPAGATIONS = frozenset({"None", "HostToContainer", "Bidirectional"})
_PORT_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_PORT_RANGE = "must be between 1 and 65535, inclusive"


@dataclass(slots=True)
class _Seen:
    """What the containers of one pod may not have twice."""

    names: set[str] = field(default_factory=set)
    host_ports: set[tuple[str | None, str | None, int]] = field(default_factory=set)


def validate_containers(path: str, spec: PodSpec) -> Iterator[FieldError]:
    """All containers of a pod. `path` is that of the spec."""
    if not spec.containers:
        yield fields.required(f"{path}.containers")
    seen = _Seen()
    volumes = {volume.name for volume in spec.volumes}
    for index, container in enumerate(spec.init_containers):
        at = f"{path}.initContainers[{index}]"
        yield from _container(at, container, volumes, seen)
        yield from _init_rules(at, container)
    for index, container in enumerate(spec.containers):
        at = f"{path}.containers[{index}]"
        yield from _container(at, container, volumes, seen)
        yield from _host_ports(at, container, seen, is_on_host=bool(spec.host_network))
        if container.restart_policy is not None:
            yield fields.forbidden(f"{at}.restartPolicy", "may not be set for non-init containers")


def _container(path: str, container: Container, volumes: Collection[str], seen: _Seen) -> Iterator[FieldError]:
    yield from fields.dns_label(f"{path}.name", container.name)
    if container.name in seen.names:
        yield fields.duplicate(f"{path}.name", container.name)
    seen.names.add(container.name)
    if not container.image:
        yield fields.required(f"{path}.image")
    elif container.image != container.image.strip():
        yield fields.invalid(f"{path}.image", container.image, "must not have leading or trailing whitespace")
    yield from fields.one_of(f"{path}.imagePullPolicy", container.image_pull_policy, _PULL_POLICIES)
    yield from fields.one_of(
        f"{path}.terminationMessagePolicy", container.termination_message_policy, _MESSAGE_POLICIES
    )
    yield from validate_environment(path, container)
    yield from _ports(f"{path}.ports", container.ports)
    yield from _mounts(f"{path}.volumeMounts", container.volume_mounts, volumes)
    yield from _devices(path, container, volumes)
    yield from validate_resources(f"{path}.resources", container.resources)
    yield from _probes(path, container)
    yield from _lifecycle(f"{path}.lifecycle", container.lifecycle)
    yield from _rights(f"{path}.securityContext", container.security_context)


def _init_rules(path: str, container: Container) -> Iterator[FieldError]:
    yield from fields.one_of(f"{path}.restartPolicy", container.restart_policy, {"Always"})
    if is_sidecar(container):
        return
    for name, value in (
        ("lifecycle", container.lifecycle),
        ("livenessProbe", container.liveness_probe),
        ("readinessProbe", container.readiness_probe),
        ("startupProbe", container.startup_probe),
    ):
        if value is not None:
            yield fields.forbidden(f"{path}.{name}", "may not be set for init containers without restartPolicy=Always")


def _ports(path: str, ports: tuple[ContainerPort, ...]) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        at = f"{path}[{index}]"
        if port.name:
            yield from validate_port_name(f"{at}.name", port.name)
            if port.name in names:
                yield fields.duplicate(f"{at}.name", port.name)
            names.add(port.name)
        if port.container_port is None:
            yield fields.required(f"{at}.containerPort")
        else:
            yield from validate_port_number(f"{at}.containerPort", port.container_port)
        if port.host_port:
            yield from validate_port_number(f"{at}.hostPort", port.host_port)
        yield from fields.one_of(f"{at}.protocol", port.protocol, PROTOCOLS)
        if port.host_ip:
            yield from validate_ip(f"{at}.hostIP", port.host_ip)


def _host_ports(path: str, container: Container, seen: _Seen, *, is_on_host: bool) -> Iterator[FieldError]:
    for index, port in enumerate(container.ports):
        at = f"{path}.ports[{index}]"
        if is_on_host and port.host_port != port.container_port:
            yield fields.invalid(
                f"{at}.hostPort", port.host_port or 0, "must match `containerPort` when `hostNetwork` is true"
            )
        if port.host_port:
            claim = (port.protocol, port.host_ip, port.host_port)
            if claim in seen.host_ports:
                yield fields.duplicate(f"{at}.hostPort", f"{port.protocol}/{port.host_ip or ''}/{port.host_port}")
            seen.host_ports.add(claim)


def validate_port_number(path: str, port: int) -> Iterator[FieldError]:
    if not 1 <= port <= 65_535:
        yield fields.invalid(path, port, _PORT_RANGE)


def validate_port_name(path: str, name: str) -> Iterator[FieldError]:
    is_well_formed = len(name) <= 15 and _PORT_NAME.fullmatch(name) and "--" not in name
    if not is_well_formed or not any(letter.isalpha() for letter in name):
        yield fields.invalid(
            path,
            name,
            "must be at most 15 characters, contain only a-z, 0-9 and single '-' inside, and at least one letter",
        )


def validate_port(path: str, port: int | str | None) -> Iterator[FieldError]:
    """A port by its number or by its name."""
    if port is None:
        yield fields.required(path)
    elif isinstance(port, int):
        yield from validate_port_number(path, port)
    else:
        yield from validate_port_name(path, port)


def validate_ip(path: str, text: str) -> Iterator[FieldError]:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        yield fields.invalid(path, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")


def _mounts(path: str, mounts: tuple[VolumeMount, ...], volumes: Collection[str]) -> Iterator[FieldError]:
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        at = f"{path}[{index}]"
        if not mount.name:
            yield fields.required(f"{at}.name")
        elif mount.name not in volumes:
            yield fields.not_found(f"{at}.name", mount.name)
        if not mount.mount_path:
            yield fields.required(f"{at}.mountPath")
        elif ".." in mount.mount_path.split("/"):
            yield fields.invalid(f"{at}.mountPath", mount.mount_path, "must not contain '..'")
        if mount.mount_path in paths:
            yield fields.invalid(f"{at}.mountPath", mount.mount_path, "must be unique")
        paths.add(mount.mount_path)
        if mount.sub_path and mount.sub_path_expr:
            yield fields.invalid(
                f"{at}.subPathExpr", mount.sub_path_expr, "subPathExpr and subPath are mutually exclusive"
            )
        for name, inner in (("subPath", mount.sub_path), ("subPathExpr", mount.sub_path_expr)):
            if inner:
                yield from validate_inner_path(f"{at}.{name}", inner)
        yield from fields.one_of(f"{at}.mountPropagation", mount.mount_propagation, _PROPAGATIONS)


def _devices(path: str, container: Container, volumes: Collection[str]) -> Iterator[FieldError]:
    mounted = {mount.mount_path for mount in container.volume_mounts}
    for index, device in enumerate(container.volume_devices):
        at = f"{path}.volumeDevices[{index}]"
        if not device.name:
            yield fields.required(f"{at}.name")
        elif device.name not in volumes:
            yield fields.not_found(f"{at}.name", device.name)
        if not device.device_path:
            yield fields.required(f"{at}.devicePath")
        elif device.device_path in mounted:
            yield fields.invalid(f"{at}.devicePath", device.device_path, "must not already exist in volumeMounts")


def validate_inner_path(path: str, text: str) -> Iterator[FieldError]:
    """A path that stays below the directory it is taken from."""
    if text.startswith("/"):
        yield fields.invalid(path, text, "must be a relative path")
    if ".." in text.split("/"):
        yield fields.invalid(path, text, "must not contain '..'")


def _probes(path: str, container: Container) -> Iterator[FieldError]:
    for name, probe in (
        ("livenessProbe", container.liveness_probe),
        ("readinessProbe", container.readiness_probe),
        ("startupProbe", container.startup_probe),
    ):
        if probe is None:
            continue
        yield from _probe(f"{path}.{name}", probe)
        if name != "readinessProbe" and probe.success_threshold not in (None, 1):
            yield fields.invalid(f"{path}.{name}.successThreshold", probe.success_threshold, "must be 1")


def _probe(path: str, probe: Probe) -> Iterator[FieldError]:
    yield from _handler(
        path,
        {"exec": probe.exec, "httpGet": probe.http_get, "tcpSocket": probe.tcp_socket, "grpc": probe.grpc},
    )
    for name, value in (
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ):
        yield from fields.non_negative(f"{path}.{name}", value)
    yield from fields.positive(f"{path}.terminationGracePeriodSeconds", probe.termination_grace_period_seconds)


def _lifecycle(path: str, lifecycle: Lifecycle | None) -> Iterator[FieldError]:
    if lifecycle is None:
        return
    for name, handler in (("postStart", lifecycle.post_start), ("preStop", lifecycle.pre_stop)):
        if handler is not None:
            yield from _handler(f"{path}.{name}", _actions(handler))


_Action = ExecAction | HTTPGetAction | TCPSocketAction | GRPCAction | SleepAction


def _actions(handler: LifecycleHandler) -> dict[str, _Action | None]:
    return {
        "exec": handler.exec,
        "httpGet": handler.http_get,
        "tcpSocket": handler.tcp_socket,
        "sleep": handler.sleep,
    }


def _handler(path: str, actions: dict[str, _Action | None]) -> Iterator[FieldError]:
    given = {name: action for name, action in actions.items() if action is not None}
    if not given:
        yield fields.required(path, "Required value: must specify a handler type")
    for name in list(given)[1:]:
        yield fields.forbidden(f"{path}.{name}", "may not specify more than 1 handler type")
    for name, action in given.items():
        yield from _action(f"{path}.{name}", action)


def _action(path: str, action: _Action) -> Iterator[FieldError]:
    match action:
        case ExecAction():
            if not action.command:
                yield fields.required(f"{path}.command")
        case HTTPGetAction():
            yield from validate_port(f"{path}.port", action.port)
            yield from fields.one_of(f"{path}.scheme", action.scheme, {"HTTP", "HTTPS"})
        case TCPSocketAction() | GRPCAction():
            yield from validate_port(f"{path}.port", action.port)
        case SleepAction():
            yield from fields.non_negative(f"{path}.seconds", action.seconds)


def _rights(path: str, context: SecurityContext | None) -> Iterator[FieldError]:
    if context is None:
        return
    yield from fields.non_negative(f"{path}.runAsUser", context.run_as_user)
    yield from fields.non_negative(f"{path}.runAsGroup", context.run_as_group)
    if context.privileged and context.allow_privilege_escalation is False:
        yield fields.invalid(
            path,
            "allowPrivilegeEscalation: false",
            "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
        )
