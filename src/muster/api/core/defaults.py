"""What the API server fills in for v1 kinds other than Pod (see `pod_defaults`)."""

import base64

from muster.api.documents import child, drop_nulls, fill, made_child, objects, text
from muster.api.raw import Document

NAMESPACE_LABEL = "kubernetes.io/metadata.name"


def default_namespace(document: Document) -> None:
    drop_nulls(document)
    metadata = made_child(document, "metadata")
    name = text(metadata, "name")
    if name:
        made_child(metadata, "labels")[NAMESPACE_LABEL] = name
    # A namespace on its way out has given its finalizers up for good.
    if not metadata.get("deletionTimestamp"):
        fill(made_child(document, "spec"), "finalizers", ["kubernetes"])
    fill(made_child(document, "status"), "phase", "Active")


def default_node(document: Document) -> None:
    drop_nulls(document)
    made_child(document, "spec")
    status = made_child(document, "status")
    capacity = child(status, "capacity")
    if capacity:
        fill(status, "allocatable", dict(capacity))


def default_config_map(document: Document) -> None:
    drop_nulls(document)


def default_secret(document: Document) -> None:
    drop_nulls(document)
    fill(document, "type", "Opaque")
    plain = document.get("stringData")
    data = document.get("data", {})
    if isinstance(plain, dict) and isinstance(data, dict) and all(isinstance(value, str) for value in plain.values()):
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        document["data"] = data | encoded
        del document["stringData"]


def default_service(document: Document) -> None:
    drop_nulls(document)
    spec = made_child(document, "spec")
    fill(spec, "type", "ClusterIP")
    fill(spec, "sessionAffinity", "None")
    if text(spec, "type") != "ExternalName":
        fill(spec, "internalTrafficPolicy", "Cluster")
    if text(spec, "type") in ("NodePort", "LoadBalancer"):
        fill(spec, "externalTrafficPolicy", "Cluster")
    if text(spec, "type") == "LoadBalancer":
        fill(spec, "allocateLoadBalancerNodePorts", True)
    if text(spec, "sessionAffinity") == "ClientIP":
        client = made_child(made_child(spec, "sessionAffinityConfig"), "clientIP")
        fill(client, "timeoutSeconds", 10_800)
    for port in objects(spec, "ports"):
        fill(port, "protocol", "TCP")
        if port.get("port") is not None and port.get("targetPort") in (None, "", 0):
            port["targetPort"] = port["port"]
    made_child(made_child(document, "status"), "loadBalancer")


def default_claim(document: Document) -> None:
    drop_nulls(document)
    fill(made_child(document, "spec"), "volumeMode", "Filesystem")
    fill(made_child(document, "status"), "phase", "Pending")


def default_limit_range(document: Document) -> None:
    drop_nulls(document)
    for item in objects(document, "spec", "limits"):
        if text(item, "type") == "Container":
            _complete(item, "default", "max")
            _complete(item, "defaultRequest", "default")
            _complete(item, "defaultRequest", "min")


def _complete(item: Document, field: str, source: str) -> None:
    """What has no value in `field` gets the one that it has in `source`."""
    known = child(item, source)
    if known and isinstance(item.get(field, {}), dict):
        item[field] = known | child(item, field)


def default_event(document: Document) -> None:
    drop_nulls(document)
