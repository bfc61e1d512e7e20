"""The v1 kinds as the platform stores and serves them."""

from muster.api.core import defaults, pod_defaults, validation, views
from muster.api.core.events import EVENTS_V1
from muster.api.kinds import Kind

NAMESPACE = Kind(
    group="",
    version="v1",
    name="Namespace",
    plural="namespaces",
    view=views.Namespace,
    namespaced=False,
    short_names=("ns",),
    subresources=frozenset({"status", "finalize"}),
    built_in=True,
    default=defaults.default_namespace,
    validate=validation.validate_namespace,
    selectable={"status.phase": lambda namespace: namespace.status.phase or ""},
)

NODE = Kind(
    group="",
    version="v1",
    name="Node",
    plural="nodes",
    view=views.Node,
    namespaced=False,
    short_names=("no",),
    subresources=frozenset({"status"}),
    built_in=True,
    default=defaults.default_node,
    validate=validation.validate_node,
    validate_update=validation.validate_node_update,
    selectable={"spec.unschedulable": lambda node: "true" if node.spec.unschedulable else "false"},
)

POD = Kind(
    group="",
    version="v1",
    name="Pod",
    plural="pods",
    view=views.Pod,
    short_names=("po",),
    categories=("all",),
    subresources=frozenset({"status", "log", "binding", "eviction"}),
    built_in=True,
    default=pod_defaults.default_pod,
    validate=validation.validate_pod,
    validate_update=validation.validate_pod_update,
    selectable={
        "spec.nodeName": lambda pod: pod.spec.node_name or "",
        "spec.schedulerName": lambda pod: pod.spec.scheduler_name or "",
        "spec.restartPolicy": lambda pod: pod.spec.restart_policy or "",
        "spec.serviceAccountName": lambda pod: pod.spec.service_account_name or "",
        "spec.hostNetwork": lambda pod: "true" if pod.spec.host_network else "false",
        "status.phase": lambda pod: pod.status.phase or "",
        "status.podIP": lambda pod: pod.status.pod_ip or "",
        "status.nominatedNodeName": lambda pod: pod.status.nominated_node_name or "",
    },
)

CONFIG_MAP = Kind(
    group="",
    version="v1",
    name="ConfigMap",
    plural="configmaps",
    view=views.ConfigMap,
    short_names=("cm",),
    subresources=frozenset(),
    built_in=True,
    default=defaults.default_config_map,
    validate=validation.validate_config_map,
    validate_update=validation.validate_config_map_update,
)

SECRET = Kind(
    group="",
    version="v1",
    name="Secret",
    plural="secrets",
    view=views.Secret,
    subresources=frozenset(),
    built_in=True,
    default=defaults.default_secret,
    validate=validation.validate_secret,
    validate_update=validation.validate_secret_update,
    selectable={"type": lambda secret: secret.type or ""},
)

SERVICE = Kind(
    group="",
    version="v1",
    name="Service",
    plural="services",
    view=views.Service,
    short_names=("svc",),
    categories=("all",),
    subresources=frozenset({"status"}),
    built_in=True,
    default=defaults.default_service,
    validate=validation.validate_service,
)

PERSISTENT_VOLUME_CLAIM = Kind(
    group="",
    version="v1",
    name="PersistentVolumeClaim",
    plural="persistentvolumeclaims",
    view=views.PersistentVolumeClaim,
    short_names=("pvc",),
    built_in=True,
    default=defaults.default_claim,
    validate=validation.validate_claim,
    validate_update=validation.validate_claim_update,
)

EVENT = Kind(
    group="",
    version="v1",
    name="Event",
    plural="events",
    view=views.Event,
    short_names=("ev",),
    subresources=frozenset(),
    built_in=True,
    default=defaults.default_event,
    validate=validation.validate_event,
    selectable={
        "involvedObject.kind": lambda event: event.involved_object.kind or "",
        "involvedObject.namespace": lambda event: event.involved_object.namespace or "",
        "involvedObject.name": lambda event: event.involved_object.name or "",
        "involvedObject.uid": lambda event: event.involved_object.uid or "",
        "involvedObject.apiVersion": lambda event: event.involved_object.api_version or "",
        "involvedObject.resourceVersion": lambda event: event.involved_object.resource_version or "",
        "involvedObject.fieldPath": lambda event: event.involved_object.field_path or "",
        "reason": lambda event: event.reason or "",
        "reportingComponent": lambda event: event.reporting_component or "",
        "source": lambda event: event.source.component or event.reporting_component or "",
        "type": lambda event: event.type or "",
    },
    conversions=(EVENTS_V1,),
)

LIMIT_RANGE = Kind(
    group="",
    version="v1",
    name="LimitRange",
    plural="limitranges",
    view=views.LimitRange,
    short_names=("limits",),
    subresources=frozenset(),
    built_in=True,
    default=defaults.default_limit_range,
    validate=validation.validate_limit_range,
)

KINDS = (NAMESPACE, NODE, POD, CONFIG_MAP, SECRET, SERVICE, PERSISTENT_VOLUME_CLAIM, EVENT, LIMIT_RANGE)
