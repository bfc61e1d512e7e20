"""The objects of an installation beside the definitions of kinds, in the order in which they are made.

The one source: `muster install` applies them, deploy/manifests and the chart in deploy/helm are written from them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from muster.api.raw import Document
from muster.deploying import names, permissions, pieces, server_manifests
from muster.deploying.pieces import CONFIGURATIONS, Program
from muster.deploying.slots import Chosen, Slots

CONTROLLER = Program(names.CONTROLLER, "controller")


@dataclass(frozen=True, slots=True)
class Part:
    """`condition`: the value that it depends on; always there where it is empty."""

    document: Document
    condition: str = ""


def parts(slots: Slots) -> Sequence[Part]:
    """Without the namespace, which must be there before."""
    always = (
        _priority_class(),
        CONTROLLER.service_account(slots),
        *CONTROLLER.rights(slots, permissions.CLUSTER),
        *CONTROLLER.rights_at_home(slots, permissions.HOME),
        _configuration(slots),
        _deployment(slots),
        CONTROLLER.service(slots, names.METRICS, 8080, "metrics"),
        CONTROLLER.service(slots, names.WEBHOOK, 443, "webhook"),
        visibility(slots),
        _disruption_budget(slots),
    )
    return (
        *map(Part, always),
        Part(_monitor(slots), "metrics.monitor"),
        *(Part(document, "server.enabled") for document in server_manifests.documents(slots)),
    )


def documents(chosen: Chosen) -> Sequence[Document]:
    """Those that the values ask for."""
    return [part.document for part in parts(chosen) if not part.condition or chosen.value(part.condition)]


def namespace(slots: Slots) -> Document:
    """Pods in it must do without privileges."""
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata: Document = {"name": slots.namespace, "labels": {**names.LABELS, **enforced}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def visibility(slots: Slots) -> Document:
    """The way to the one that leads."""
    return CONTROLLER.service(slots, names.VISIBILITY, 443, "webhook", {names.LEADER: "true"})


def _priority_class() -> Document:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": CONTROLLER.metadata(name=names.PRIORITY_CLASS),
        # As high as users may go: a full cluster must not keep out what empties it.
        "value": 1_000_000_000,
        "description": "Muster's controllers, which everything that queues waits for.",
    }


def _configuration(slots: Slots) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": CONTROLLER.metadata(slots),
        "data": {f"{name}.yaml": slots.encoded(name) for name in CONFIGURATIONS},
    }


def _deployment(slots: Slots) -> Document:
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(CONTROLLER.selector)},
    }
    spec: Document = {
        "replicas": slots.value("replicas"),
        # The follower is replaced before the leader goes: somebody leads all the while.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
    }
    pod: Document = {
        "topologySpreadConstraints": [spread],
        "containers": [_container(slots)],
        "volumes": pieces.volumes(),
    }
    return CONTROLLER.deployment(slots, spec, pod)


def _container(slots: Slots) -> Document:
    arguments = [
        "controller",
        f"--namespace={slots.namespace}",
        f"--unlabelled={slots.text('unlabelled')}",
        f"--metrics-port={slots.text('metrics.port')}",
        f"--webhook-port={slots.text('webhook.port')}",
        *pieces.configuration_arguments(slots),
    ]
    return {
        **CONTROLLER.container(slots, arguments, {}),
        "env": [{"name": "MUSTER_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [
            {"name": "metrics", "containerPort": slots.value("metrics.port"), "protocol": "TCP"},
            {"name": "webhook", "containerPort": slots.value("webhook.port"), "protocol": "TCP"},
        ],
        "livenessProbe": pieces.probe("/healthz", "metrics", period=10, failures=6),
        "readinessProbe": pieces.probe("/readyz", "metrics", period=5, failures=2),
        "resources": slots.value("resources"),
    }


def _disruption_budget(slots: Slots) -> Document:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": CONTROLLER.metadata(slots),
        # Not minAvailable: a single replica could then never be moved.
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": dict(CONTROLLER.selector)}},
    }


def _monitor(slots: Slots) -> Document:
    endpoints = [{"port": "metrics", "path": "/metrics"}]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": CONTROLLER.metadata(slots, names.METRICS),
        "spec": {"selector": {"matchLabels": dict(CONTROLLER.selector)}, "endpoints": endpoints},
    }
