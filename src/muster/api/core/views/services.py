"""Views of Namespace, ConfigMap, Secret, Service and Event."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from muster.api.meta import ATOMIC, OPAQUE, Condition, Resource, View, merge_by
from muster.api.scalars import Int32, IntOrString


class NamespaceSpec(View, frozen=True):
    """Who must let go of the namespace before it is gone."""

    finalizers: Annotated[tuple[str, ...], ATOMIC] = ()


class NamespaceStatus(View, frozen=True):
    """Whether the namespace is in use or on its way out."""

    conditions: Annotated[tuple[Condition, ...], merge_by("type")] = ()
    phase: str | None = None


class Namespace(Resource, frozen=True):
    """A room for names: objects in it are named apart from those elsewhere, and go with it."""

    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


class ConfigMap(Resource, frozen=True):
    """Configuration that pods read as files or as environment variables."""

    binary_data: Mapping[str, str] | None = None
    data: Mapping[str, str] | None = None
    immutable: bool | None = None


class Secret(Resource, frozen=True):
    """Like a ConfigMap, for what must not be seen by everyone. Values are base64."""

    data: Mapping[str, str] | None = None
    immutable: bool | None = None
    string_data: Mapping[str, str] | None = None
    type: str | None = None


class ServicePort(View, frozen=True):
    """A port of the service and the port of its pods behind it."""

    app_protocol: str | None = None
    name: str | None = None
    node_port: Int32 | None = None
    port: Int32 | None = None
    protocol: str | None = None
    target_port: IntOrString | None = None


class ClientIPConfig(View, frozen=True):
    """How long a client stays with one pod."""

    timeout_seconds: Int32 | None = None


class SessionAffinityConfig(View, frozen=True):
    """Settings of session affinity."""

    client_ip: ClientIPConfig | None = msgspec.field(default=None, name="clientIP")


class ServiceSpec(View, frozen=True):
    """Which pods a service stands for, and under which address and ports."""

    allocate_load_balancer_node_ports: bool | None = None
    cluster_ip: str | None = msgspec.field(default=None, name="clusterIP")
    cluster_ips: Annotated[tuple[str, ...], ATOMIC] = msgspec.field(default=(), name="clusterIPs")
    external_ips: Annotated[tuple[str, ...], ATOMIC] = msgspec.field(default=(), name="externalIPs")
    external_name: str | None = None
    external_traffic_policy: str | None = None
    health_check_node_port: Int32 | None = None
    internal_traffic_policy: str | None = None
    ip_families: Annotated[tuple[str, ...], ATOMIC] = ()
    ip_family_policy: str | None = None
    load_balancer_class: str | None = None
    load_balancer_ip: str | None = msgspec.field(default=None, name="loadBalancerIP")
    load_balancer_source_ranges: Annotated[tuple[str, ...], ATOMIC] = ()
    ports: Annotated[tuple[ServicePort, ...], merge_by("port", "protocol")] = ()
    publish_not_ready_addresses: bool | None = None
    selector: Mapping[str, str] | None = None
    session_affinity: str | None = None
    session_affinity_config: SessionAffinityConfig | None = None
    traffic_distribution: str | None = None
    type: str | None = None


class LoadBalancerStatus(View, frozen=True):
    """Where a load balancer listens for the service."""

    ingress: Annotated[tuple[Annotated[Mapping[str, object], OPAQUE], ...], ATOMIC] = ()


class ServiceStatus(View, frozen=True):
    """What controllers report of the service."""

    conditions: Annotated[tuple[Condition, ...], merge_by("type")] = ()
    load_balancer: LoadBalancerStatus | None = None


class Service(Resource, frozen=True):
    """A name and ports that stand for a set of pods."""

    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


class ObjectReference(View, frozen=True):
    """Points at an object, or at a part of it."""

    api_version: str | None = None
    field_path: str | None = None
    kind: str | None = None
    name: str | None = None
    namespace: str | None = None
    resource_version: str | None = None
    uid: str | None = None


class EventSource(View, frozen=True):
    """Who reported an event."""

    component: str | None = None
    host: str | None = None


class EventSeries(View, frozen=True):
    """How often an event repeated, and when last."""

    count: Int32 | None = None
    last_observed_time: str | None = None


class Event(Resource, frozen=True):
    """Something that happened to an object, told for people. Events are forgotten after a while."""

    action: str | None = None
    count: Int32 | None = None
    event_time: str | None = None
    first_timestamp: str | None = None
    involved_object: ObjectReference = ObjectReference()
    last_timestamp: str | None = None
    message: str | None = None
    reason: str | None = None
    related: ObjectReference | None = None
    reporting_component: str | None = None
    reporting_instance: str | None = None
    series: EventSeries | None = None
    source: EventSource = EventSource()
    type: str | None = None
