"""Checks of Service and Event."""

from collections.abc import Iterator

from muster.api import fields
from muster.api.core.validation.containers import PROTOCOLS, validate_ip, validate_port, validate_port_number
from muster.api.core.views import Event, Service, ServicePort, ServiceSpec
from muster.api.errors import FieldError

_TYPES = frozenset({"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"})
_AFFINITIES = frozenset({"None", "ClientIP"})
_TRAFFIC_POLICIES = frozenset({"Cluster", "Local"})


def validate_service(service: Service) -> list[FieldError]:
    return [*fields.dns_label("metadata.name", service.metadata.name), *_service("spec", service.spec)]


def _service(path: str, spec: ServiceSpec) -> Iterator[FieldError]:
    yield from fields.one_of(f"{path}.type", spec.type, _TYPES)
    yield from fields.one_of(f"{path}.sessionAffinity", spec.session_affinity, _AFFINITIES)
    yield from fields.one_of(f"{path}.internalTrafficPolicy", spec.internal_traffic_policy, _TRAFFIC_POLICIES)
    yield from fields.one_of(f"{path}.externalTrafficPolicy", spec.external_traffic_policy, _TRAFFIC_POLICIES)
    yield from fields.labels(f"{path}.selector", spec.selector)
    if spec.cluster_ip and spec.cluster_ip != "None":
        yield from validate_ip(f"{path}.clusterIP", spec.cluster_ip)
    if spec.type == "ExternalName":
        yield from fields.dns_subdomain(f"{path}.externalName", (spec.external_name or "").removesuffix("."))
    elif not spec.ports and spec.cluster_ip != "None":
        yield fields.required(f"{path}.ports")
    yield from _ports(f"{path}.ports", spec.ports)


def _ports(path: str, ports: tuple[ServicePort, ...]) -> Iterator[FieldError]:
    numbers: set[tuple[str | None, int | None]] = set()
    for index, port in enumerate(ports):
        at = f"{path}[{index}]"
        if port.name:
            yield from fields.dns_label(f"{at}.name", port.name)
        elif len(ports) > 1:
            yield fields.required(f"{at}.name")
        if port.port is None:
            yield fields.required(f"{at}.port")
        else:
            yield from validate_port_number(f"{at}.port", port.port)
        yield from fields.one_of(f"{at}.protocol", port.protocol, PROTOCOLS)
        if port.target_port is not None:
            yield from validate_port(f"{at}.targetPort", port.target_port)
        if port.node_port:
            yield from validate_port_number(f"{at}.nodePort", port.node_port)
        if (port.protocol, port.port) in numbers:
            yield fields.duplicate(at, f"{port.protocol}/{port.port}")
        numbers.add((port.protocol, port.port))
    named = [port.name for port in ports if port.name]
    if len(named) == len(ports):
        yield from fields.unique(path, named, "name")


def validate_event(event: Event) -> list[FieldError]:
    about = event.involved_object.namespace
    if about and about != event.metadata.namespace:
        return [fields.invalid("involvedObject.namespace", about, "does not match event.namespace")]
    return []
