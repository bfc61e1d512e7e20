"""What the API server fills in for a pod, and for the pod template of a job.

A template gets what the spec of a pod gets. Requests from limits, tolerations and the status follow only when a
pod is made of it, as in Kubernetes.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from muster.api import quantity, raw
from muster.api.core.qos import qos_class
from muster.api.core.requests import Amounts, combine, is_huge_pages, is_pod_level
from muster.api.documents import child, drop_nulls, fill, fill_number, made_child, objects, text
from muster.api.raw import JSON, Document

FILE_MODE = 0o644
TOLERATION_SECONDS = 300
NOT_READY_TAINT = "node.kubernetes.io/not-ready"
UNREACHABLE_TAINT = "node.kubernetes.io/unreachable"


def default_pod(document: Document) -> None:
    spec = document.pop("spec", None)
    own = _Own.taken_from(spec) if isinstance(spec, dict) else None
    filled, quality = _filled(raw.encode(spec))
    drop_nulls(document)
    document["spec"] = raw.decode(filled)
    if own is not None:
        own.give_back(document["spec"])
    status = made_child(document, "status")
    fill(status, "phase", "Pending")
    fill(status, "qosClass", quality)


class _Own(NamedTuple):
    """What sets apart pods of one template, and decides no default."""

    node: JSON
    hostname: JSON
    variables: Sequence[tuple[str, int, int, Document]]
    """Of the environment, those that are plain values: kind and number of the container, place in its list."""

    @classmethod
    def taken_from(cls, spec: Document) -> "_Own":
        variables: list[tuple[str, int, int, Document]] = []
        for part in _CONTAINERS:
            listed = spec.get(part)
            for index, container in enumerate(listed if isinstance(listed, list) else ()):
                environment = container.get("env") if isinstance(container, dict) else None
                if not isinstance(environment, list):
                    continue
                for place, variable in enumerate(environment):
                    if _is_plain(variable):
                        variables.append((part, index, place, variable))
                        environment[place] = {}
        hostname = spec.get("hostname")
        if hostname is not None:
            spec["hostname"] = ""
        return cls(spec.pop("nodeName", None), hostname, variables)

    def give_back(self, spec: Document) -> None:
        if self.node is not None:
            spec["nodeName"] = self.node
        if self.hostname is not None:
            spec["hostname"] = self.hostname
        for part, index, place, variable in self.variables:
            spec[part][index]["env"][place] = variable


_CONTAINERS = ("initContainers", "containers")


def _is_plain(variable: JSON) -> bool:
    return (
        isinstance(variable, dict)
        and len(variable) == 2
        and isinstance(variable.get("name"), str)
        and isinstance(variable.get("value"), str)
    )


@lru_cache(maxsize=512)
def _filled(encoded: bytes) -> tuple[bytes, str]:
    """A pod's spec with all defaults, and its class of service. Pods come by the thousand from one template: theirs is
    worked out once."""
    holder = {"spec": raw.decode(encoded)}
    drop_nulls(holder)
    spec = made_child(holder, "spec")
    default_pod_spec(spec)
    fill(spec, "enableServiceLinks", True)
    _default_service_account(spec)
    for container in _containers(spec):
        _request_limits(made_child(container, "resources"))
    _request_pod_limits(spec)
    _tolerate_for_a_while(spec)
    return raw.encode(holder["spec"]), qos_class(spec)


def default_pod_template(template: Document) -> None:
    default_pod_spec(made_child(template, "spec"))


def default_pod_spec(spec: Document) -> None:
    """For any spec of pods, in place."""
    fill(spec, "restartPolicy", "Always")
    fill(spec, "terminationGracePeriodSeconds", 30)
    fill(spec, "dnsPolicy", "ClusterFirst")
    fill(spec, "schedulerName", "default-scheduler")
    made_child(spec, "securityContext")
    if text(spec, "serviceAccount"):
        fill(spec, "serviceAccountName", spec["serviceAccount"])
    elif text(spec, "serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    for container in _containers(spec):
        _default_container(container, is_on_host=spec.get("hostNetwork") is True)
    for volume in objects(spec, "volumes"):
        _default_volume(volume)


def _containers(spec: Document) -> Iterator[Document]:
    yield from objects(spec, "initContainers")
    yield from objects(spec, "containers")


def _default_container(container: Document, *, is_on_host: bool) -> None:
    fill(container, "terminationMessagePath", "/dev/termination-log")
    fill(container, "terminationMessagePolicy", "File")
    fill(container, "imagePullPolicy", _pull_policy(text(container, "image")))
    made_child(container, "resources")
    for port in objects(container, "ports"):
        fill(port, "protocol", "TCP")
        if is_on_host and port.get("containerPort") is not None:
            fill_number(port, "hostPort", port["containerPort"])
    for variable in objects(container, "env"):
        _default_field(child(variable, "valueFrom", "fieldRef"))
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if child(container, probe):
            _default_probe(child(container, probe))
    for hook in ("postStart", "preStop"):
        _default_http(child(container, "lifecycle", hook, "httpGet"))


def _pull_policy(image: str) -> str:
    """A moving tag is pulled each time; a fixed tag or a digest cannot have changed."""
    if not image or "@" in image:
        return "IfNotPresent"
    _, colon, tag = image.rpartition("/")[2].rpartition(":")
    return "IfNotPresent" if colon and tag != "latest" else "Always"


def _default_field(reference: Document) -> None:
    if reference:
        fill(reference, "apiVersion", "v1")


def _default_probe(probe: Document) -> None:
    fill_number(probe, "timeoutSeconds", 1)
    fill_number(probe, "periodSeconds", 10)
    fill_number(probe, "successThreshold", 1)
    fill_number(probe, "failureThreshold", 3)
    _default_http(child(probe, "httpGet"))
    if child(probe, "grpc"):
        child(probe, "grpc").setdefault("service", "")


def _default_http(action: Document) -> None:
    if action:
        fill(action, "path", "/")
        fill(action, "scheme", "HTTP")


def _default_volume(volume: Document) -> None:
    if not volume.keys() - {"name"}:
        volume["emptyDir"] = {}
    if child(volume, "hostPath"):
        child(volume, "hostPath").setdefault("type", "")
    for source in ("secret", "configMap", "downwardAPI", "projected"):
        if isinstance(volume.get(source), dict):
            fill(volume[source], "defaultMode", FILE_MODE)
    for item in objects(volume, "downwardAPI", "items"):
        _default_field(child(item, "fieldRef"))
    for projection in objects(volume, "projected", "sources"):
        if isinstance(projection.get("serviceAccountToken"), dict):
            fill(projection["serviceAccountToken"], "expirationSeconds", 3600)
        for item in objects(projection, "downwardAPI", "items"):
            _default_field(child(item, "fieldRef"))


def _default_service_account(spec: Document) -> None:
    fill(spec, "serviceAccountName", "default")
    fill(spec, "serviceAccount", spec["serviceAccountName"])


def _request_limits(resources: Document) -> None:
    limits = child(resources, "limits")
    if limits:
        requests = made_child(resources, "requests")
        for name, value in limits.items():
            fill(requests, name, value)


def _request_pod_limits(spec: Document) -> None:
    """A pod that is limited as a whole requests, as a whole, what its containers do, or else its limits."""
    limits = child(spec, "resources", "limits")
    if not limits:
        return
    requests = made_child(child(spec, "resources"), "requests")
    for name, amount in _requested_by_containers(spec).items():
        if is_pod_level(name) and not is_huge_pages(name):
            fill(requests, name, str(amount))
    for name, value in limits.items():
        if is_pod_level(name):
            fill(requests, name, value)


def _requested_by_containers(spec: Document) -> Amounts:
    """What the containers request together. Values that are no quantities do not count."""
    return combine(
        (_parsed(container) for container in objects(spec, "containers")),
        (
            (container.get("restartPolicy") == "Always", _parsed(container))
            for container in objects(spec, "initContainers")
        ),
    )


def _parsed(container: Document) -> Amounts:
    found = {}
    for name, value in child(container, "resources", "requests").items():
        amount = quantity.parsed_or_none(value)
        if amount is not None:
            found[name] = amount
    return found


def _tolerate_for_a_while(spec: Document) -> None:
    """Pods leave a node that is lost after five minutes, unless they say something else about it."""
    tolerations = spec.get("tolerations", [])
    if not isinstance(tolerations, list):
        return
    missing = [
        {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS}
        for taint in (NOT_READY_TAINT, UNREACHABLE_TAINT)
        if not any(
            text(toleration, "key") in ("", taint) and text(toleration, "effect") in ("", "NoExecute")
            for toleration in objects(spec, "tolerations")
        )
    ]
    if missing:
        spec["tolerations"] = tolerations + missing
