"""The objects of an installation beside the definitions of kinds, in the order in which they are made.

The one source: `muster install` applies them, deploy/manifests and the chart in deploy/helm are written from them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from muster.api.raw import Document
from muster.deploying import names, permissions
from muster.deploying.slots import Chosen, Slots

CONFIGURATIONS: Final = ("scheduler", "quota", "admission")
"""Values that controllers read as files."""
_FOLDER: Final = "/etc/muster"
_USER: Final = 65532  # as the Dockerfile has it


@dataclass(frozen=True, slots=True)
class Part:
    """`condition`: the value that it depends on; always there where it is empty."""

    document: Document
    condition: str = ""


def parts(slots: Slots) -> Sequence[Part]:
    """Without the namespace, which must be there before."""
    return (
        Part(_priority_class()),
        Part(_service_account(slots)),
        Part(_cluster_role()),
        Part(_binding("ClusterRoleBinding", "ClusterRole", slots, {})),
        Part(_role(slots)),
        Part(_binding("RoleBinding", "Role", slots, {"namespace": slots.namespace})),
        Part(_configuration(slots)),
        Part(_deployment(slots)),
        Part(_metrics_service(slots)),
        Part(_webhook_service(slots)),
        Part(_disruption_budget(slots)),
        Part(_monitor(slots), "metrics.monitor"),
    )


def documents(chosen: Chosen) -> Sequence[Document]:
    """Those that the values ask for."""
    return [part.document for part in parts(chosen) if not part.condition or chosen.value(part.condition)]


def namespace(slots: Slots) -> Document:
    """Pods in it must do without privileges."""
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata: Document = {"name": slots.namespace, "labels": {**names.LABELS, **enforced}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _metadata(name: str, slots: Slots | None = None) -> Document:
    inside = {"namespace": slots.namespace} if slots else {}
    return {"name": name, **inside, "labels": {**names.LABELS, **names.SELECTOR}}


def _priority_class() -> Document:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": _metadata(names.PRIORITY_CLASS),
        # As high as users may go: a full cluster must not keep out what empties it.
        "value": 1_000_000_000,
        "description": "Muster's controllers, which everything that queues waits for.",
    }


def _service_account(slots: Slots) -> Document:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(names.CONTROLLER, slots)}


def _cluster_role() -> Document:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": _metadata(names.CONTROLLER),
        "rules": permissions.rules(permissions.CLUSTER),
    }


def _role(slots: Slots) -> Document:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": _metadata(names.CONTROLLER, slots),
        "rules": permissions.rules(permissions.HOME),
    }


def _binding(kind: str, role: str, slots: Slots, inside: Document) -> Document:
    metadata = _metadata(names.CONTROLLER)
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": metadata["name"], **inside, "labels": metadata["labels"]},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": names.CONTROLLER},
        "subjects": [{"kind": "ServiceAccount", "name": names.CONTROLLER, "namespace": slots.namespace}],
    }


def _configuration(slots: Slots) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(names.CONTROLLER, slots),
        "data": {f"{name}.yaml": slots.encoded(name) for name in CONFIGURATIONS},
    }


def _deployment(slots: Slots) -> Document:
    digests = {f"muster.dev/{name}-digest": slots.digest(name) for name in CONFIGURATIONS}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(names.CONTROLLER, slots),
        "spec": {
            "replicas": slots.value("replicas"),
            "selector": {"matchLabels": dict(names.SELECTOR)},
            # The follower is replaced before the leader goes: somebody leads all the while.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {
                # A pod that was started with another configuration is another pod.
                "metadata": {"labels": {**names.LABELS, **names.SELECTOR}, "annotations": digests},
                "spec": _pod(slots),
            },
        },
    }


def _pod(slots: Slots) -> Document:
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(names.SELECTOR)},
    }
    return {
        "serviceAccountName": names.CONTROLLER,
        "priorityClassName": names.PRIORITY_CLASS,
        "imagePullSecrets": slots.value("image.secrets"),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "nodeSelector": slots.value("nodes.selector"),
        "tolerations": slots.value("nodes.tolerations"),
        "topologySpreadConstraints": [spread],
        "terminationGracePeriodSeconds": 30,
        "containers": [_container(slots)],
        "volumes": [
            {"name": "configuration", "configMap": {"name": names.CONTROLLER}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "64Mi"}},
        ],
    }


def _container(slots: Slots) -> Document:
    address = {"name": slots.text("database.secret"), "key": slots.text("database.key"), "optional": True}
    return {
        "name": "controller",
        "image": slots.image,
        "imagePullPolicy": slots.value("image.pull"),
        "args": _arguments(slots),
        "env": [{"name": "MUSTER_DATABASE", "valueFrom": {"secretKeyRef": address}}],
        "ports": [
            {"name": "metrics", "containerPort": slots.value("metrics.port"), "protocol": "TCP"},
            {"name": "webhook", "containerPort": slots.value("webhook.port"), "protocol": "TCP"},
        ],
        "livenessProbe": _probe("/healthz", period=10, failures=6),
        "readinessProbe": _probe("/readyz", period=5, failures=2),
        "resources": slots.value("resources"),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "configuration", "mountPath": _FOLDER, "readOnly": True},
            {"name": "scratch", "mountPath": "/tmp"},  # noqa: S108  the pod's own
        ],
    }


def _arguments(slots: Slots) -> list[str]:
    files = [slots.when(name, f"--{name}-config={_FOLDER}/{name}.yaml") for name in CONFIGURATIONS]
    return [
        "controller",
        f"--namespace={slots.namespace}",
        f"--unlabelled={slots.text('unlabelled')}",
        f"--metrics-port={slots.text('metrics.port')}",
        f"--webhook-port={slots.text('webhook.port')}",
        *(argument for found in files for argument in found),
    ]


def _probe(path: str, *, period: int, failures: int) -> Document:
    return {"httpGet": {"path": path, "port": "metrics"}, "periodSeconds": period, "failureThreshold": failures}


def _service(name: str, port: int, target: str, slots: Slots) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(name, slots),
        "spec": {
            "selector": dict(names.SELECTOR),
            "ports": [{"name": target, "port": port, "targetPort": target, "protocol": "TCP"}],
        },
    }


def _metrics_service(slots: Slots) -> Document:
    return _service(names.METRICS, 8080, "metrics", slots)


def _webhook_service(slots: Slots) -> Document:
    return _service(names.WEBHOOK, 443, "webhook", slots)


def _disruption_budget(slots: Slots) -> Document:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(names.CONTROLLER, slots),
        # Not minAvailable: a single replica could then never be moved.
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": dict(names.SELECTOR)}},
    }


def _monitor(slots: Slots) -> Document:
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": _metadata(names.METRICS, slots),
        "spec": {
            "selector": {"matchLabels": dict(names.SELECTOR)},
            "endpoints": [{"port": "metrics", "path": "/metrics"}],
        },
    }
