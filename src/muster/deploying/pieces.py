"""Shapes that the objects of both programs share, the controllers and the server."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from muster.api.raw import Document
from muster.deploying import names, permissions
from muster.deploying.permissions import Grant
from muster.deploying.slots import Slots

FOLDER: Final = "/etc/muster"
CONFIGURATIONS: Final = ("scheduler", "quota", "admission")
"""Values that programs read as files."""
_RBAC: Final = "rbac.authorization.k8s.io"
_USER: Final = 65532  # as the Dockerfile has it


@dataclass(frozen=True, slots=True)
class Program:
    """`name`: of its objects."""

    name: str
    component: str

    @property
    def selector(self) -> Mapping[str, str]:
        return {"app.kubernetes.io/name": "muster", "app.kubernetes.io/component": self.component}

    def metadata(self, slots: Slots | None = None, name: str = "") -> Document:
        """Without `slots`: of an object that is in no namespace."""
        inside = {"namespace": slots.namespace} if slots else {}
        return {"name": name or self.name, **inside, "labels": {**names.LABELS, **self.selector}}

    def service_account(self, slots: Slots) -> Document:
        return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.metadata(slots)}

    def rights(self, slots: Slots, grants: Sequence[Grant]) -> list[Document]:
        """Everywhere."""
        rules = permissions.rules(grants)
        return [
            {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": self.metadata(), "rules": rules},
            self._binding("ClusterRole", self.metadata(), slots),
        ]

    def rights_at_home(self, slots: Slots, grants: Sequence[Grant]) -> list[Document]:
        """In the namespace of the installation."""
        rules = permissions.rules(grants)
        return [
            {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": self.metadata(slots), "rules": rules},
            self._binding("Role", self.metadata(slots), slots),
        ]

    def _binding(self, role: str, metadata: Document, slots: Slots) -> Document:
        return {
            "apiVersion": f"{_RBAC}/v1",
            "kind": f"{role}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": _RBAC, "kind": role, "name": self.name},
            "subjects": [{"kind": "ServiceAccount", "name": self.name, "namespace": slots.namespace}],
        }

    def service(
        self, slots: Slots, name: str, port: int, target: str, also: Mapping[str, str] | None = None
    ) -> Document:
        """`also`: further labels of the pods that it leads to."""
        ports = [{"name": target, "port": port, "targetPort": target, "protocol": "TCP"}]
        spec = {"selector": {**self.selector, **(also or {})}, "ports": ports}
        return {"apiVersion": "v1", "kind": "Service", "metadata": self.metadata(slots, name), "spec": spec}

    def deployment(
        self, slots: Slots, spec: Document, pod: Document, configurations: Sequence[str] = CONFIGURATIONS
    ) -> Document:
        digests = {f"muster.dev/{name}-digest": slots.digest(name) for name in configurations}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": self.metadata(slots),
            "spec": {
                **spec,
                "selector": {"matchLabels": dict(self.selector)},
                "template": {
                    # A pod that was started with another configuration is another pod.
                    "metadata": {"labels": {**names.LABELS, **self.selector}, "annotations": digests},
                    "spec": {**self._pod(slots), **pod},
                },
            },
        }

    def _pod(self, slots: Slots) -> Document:
        return {
            "serviceAccountName": self.name,
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
            "terminationGracePeriodSeconds": 30,
        }

    def container(self, slots: Slots, arguments: Sequence[str], mounts: Mapping[str, str]) -> Document:
        """`mounts`: where volumes are, by their names."""
        places = {"configuration": FOLDER, "scratch": "/tmp", **mounts}  # noqa: S108  the pod's own
        return {
            "name": self.component,
            "image": slots.image,
            "imagePullPolicy": slots.value("image.pull"),
            "args": list(arguments),
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
            "volumeMounts": [{"name": name, "mountPath": path} for name, path in places.items()],
        }


def volumes() -> list[Document]:
    return [
        {"name": "configuration", "configMap": {"name": names.CONTROLLER}},
        {"name": "scratch", "emptyDir": {"sizeLimit": "64Mi"}},
    ]


def probe(path: str, port: str, *, period: int, failures: int) -> Document:
    return {"httpGet": {"path": path, "port": port}, "periodSeconds": period, "failureThreshold": failures}


def configuration_arguments(slots: Slots) -> list[str]:
    found = [slots.when(name, f"--{name}-config={FOLDER}/{name}.yaml") for name in CONFIGURATIONS]
    return [argument for each in found for argument in each]
