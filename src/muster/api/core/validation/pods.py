"""Checks of a pod's spec, of a pod template, and of a new pod."""

from collections.abc import Iterator
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from muster.api import fields, raw
from muster.api.core.validation.constraints import (
    validate_affinity,
    validate_gates,
    validate_spread,
    validate_tolerations,
)
from muster.api.core.validation.containers import validate_containers, validate_ip
from muster.api.core.validation.resources import validate_pod_resources, validate_resource_list
from muster.api.core.validation.volumes import validate_volumes
from muster.api.core.views import Container, EnvVar, Pod, PodSecurityContext, PodSpec, PodTemplateSpec
from muster.api.errors import FieldError

RESTART_POLICIES = frozenset({"Always", "OnFailure", "Never"})
PREEMPTION_POLICIES = frozenset({"PreemptLowerPriority", "Never"})
_DNS_POLICIES = frozenset({"ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"})
_LONGEST_DEADLINE = 2**31 - 1


def validate_pod(pod: Pod) -> list[FieldError]:
    return list(_pod(pod))


def _pod(pod: Pod) -> Iterator[FieldError]:
    yield from _spec_problems(raw.encode(_as_others(pod.spec)))
    if pod.spec.hostname:
        yield from fields.dns_label("spec.hostname", pod.spec.hostname)
    if pod.spec.node_name:
        yield from fields.dns_subdomain("spec.nodeName", pod.spec.node_name)
    if pod.spec.node_name and pod.spec.scheduling_gates:
        yield fields.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def _as_others(spec: PodSpec) -> PodSpec:
    """Without what sets apart pods of one template: the node, the host name, and values of the environment, which may
    be anything."""
    return replace(
        spec,
        node_name=None,
        hostname=None,
        containers=tuple(map(_without_values, spec.containers)),
        init_containers=tuple(map(_without_values, spec.init_containers)),
    )


def _without_values(container: Container) -> Container:
    if not container.env:
        return container
    variables = (v if v.value_from is not None else EnvVar(name=v.name) for v in container.env)
    return replace(container, env=tuple(variables))


@lru_cache(maxsize=512)
def _spec_problems(encoded: bytes) -> tuple[FieldError, ...]:
    """Pods come by the thousand from one template: its spec is checked once."""
    return tuple(validate_pod_spec("spec", msgspec.json.decode(encoded, type=PodSpec)))


def validate_pod_template(path: str, template: PodTemplateSpec) -> Iterator[FieldError]:
    """What every job kind embeds. Its pods get their names elsewhere."""
    yield from fields.labels(f"{path}.metadata.labels", template.metadata.labels)
    yield from fields.annotations(f"{path}.metadata.annotations", template.metadata.annotations)
    yield from validate_pod_spec(f"{path}.spec", template.spec)


def validate_pod_spec(path: str, spec: PodSpec) -> Iterator[FieldError]:
    yield from validate_volumes(f"{path}.volumes", spec.volumes)
    containers = list(validate_containers(path, spec))
    yield from containers
    if not any(".resources" in problem.path for problem in containers):
        yield from validate_pod_resources(f"{path}.resources", spec)
    yield from validate_resource_list(f"{path}.overhead", spec.overhead)
    yield from _lifetime(path, spec)
    yield from _names(path, spec)
    yield from _placement(path, spec)
    yield from _network(path, spec)
    yield from _rights(f"{path}.securityContext", spec.security_context)


def _lifetime(path: str, spec: PodSpec) -> Iterator[FieldError]:
    yield from fields.one_of(f"{path}.restartPolicy", spec.restart_policy, RESTART_POLICIES)
    deadline = spec.active_deadline_seconds
    if deadline is not None and not 1 <= deadline <= _LONGEST_DEADLINE:
        yield fields.invalid(
            f"{path}.activeDeadlineSeconds", deadline, f"must be between 1 and {_LONGEST_DEADLINE}, inclusive"
        )
    yield from fields.non_negative(f"{path}.terminationGracePeriodSeconds", spec.termination_grace_period_seconds)
    yield from fields.one_of(f"{path}.preemptionPolicy", spec.preemption_policy, PREEMPTION_POLICIES)
    for index, gate in enumerate(spec.readiness_gates):
        yield from fields.qualified_name(f"{path}.readinessGates[{index}].conditionType", gate.condition_type)


def _names(path: str, spec: PodSpec) -> Iterator[FieldError]:
    for name, value in (("hostname", spec.hostname), ("subdomain", spec.subdomain)):
        if value:
            yield from fields.dns_label(f"{path}.{name}", value)
    for name, value in (
        ("nodeName", spec.node_name),
        ("serviceAccountName", spec.service_account_name),
        ("priorityClassName", spec.priority_class_name),
        ("runtimeClassName", spec.runtime_class_name),
        ("hostnameOverride", spec.hostname_override),
    ):
        if value:
            yield from fields.dns_subdomain(f"{path}.{name}", value)
    if spec.scheduler_name:
        yield from fields.qualified_name(f"{path}.schedulerName", spec.scheduler_name)
    if spec.os is not None:
        yield from fields.one_of(f"{path}.os.name", spec.os.name, {"linux", "windows"})
    for index, claim in enumerate(spec.resource_claims):
        yield from fields.dns_label(f"{path}.resourceClaims[{index}].name", claim.name)
    yield from fields.unique(f"{path}.resourceClaims", [claim.name for claim in spec.resource_claims], "name")


def _placement(path: str, spec: PodSpec) -> Iterator[FieldError]:
    yield from fields.labels(f"{path}.nodeSelector", spec.node_selector)
    yield from validate_affinity(f"{path}.affinity", spec.affinity)
    yield from validate_tolerations(f"{path}.tolerations", spec.tolerations)
    yield from validate_spread(f"{path}.topologySpreadConstraints", spec.topology_spread_constraints)
    yield from validate_gates(f"{path}.schedulingGates", spec.scheduling_gates)


def _network(path: str, spec: PodSpec) -> Iterator[FieldError]:
    yield from fields.one_of(f"{path}.dnsPolicy", spec.dns_policy, _DNS_POLICIES)
    servers = spec.dns_config.nameservers if spec.dns_config else ()
    if spec.dns_policy == "None" and not servers:
        yield fields.required(
            f"{path}.dnsConfig.nameservers",
            "Required value: must provide at least one DNS nameserver when `dnsPolicy` is None",
        )
    for index, server in enumerate(servers):
        yield from validate_ip(f"{path}.dnsConfig.nameservers[{index}]", server)
    for index, alias in enumerate(spec.host_aliases):
        yield from validate_ip(f"{path}.hostAliases[{index}].ip", alias.ip)
        for position, name in enumerate(alias.hostnames):
            yield from fields.dns_subdomain(f"{path}.hostAliases[{index}].hostnames[{position}]", name)
    if spec.host_pid and spec.share_process_namespace:
        yield fields.invalid(
            f"{path}.shareProcessNamespace", True, "ShareProcessNamespace and HostPID cannot both be enabled"
        )


def _rights(path: str, context: PodSecurityContext | None) -> Iterator[FieldError]:
    if context is None:
        return
    for name, value in (
        ("runAsUser", context.run_as_user),
        ("runAsGroup", context.run_as_group),
        ("fsGroup", context.fs_group),
    ):
        yield from fields.non_negative(f"{path}.{name}", value)
    for index, group in enumerate(context.supplemental_groups):
        yield from fields.non_negative(f"{path}.supplementalGroups[{index}]", group)
    yield from fields.one_of(
        f"{path}.fsGroupChangePolicy", context.fs_group_change_policy, {"OnRootMismatch", "Always"}
    )
