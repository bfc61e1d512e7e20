"""Documents for tests, said in the words of the domain: `a_pod("p").gpus(8).in_group("g").document()`.

Builders are immutable: every step gives a new one, so a common start can be shared and varied.
"""

from dataclasses import dataclass, field
from typing import Self

from muster.api import raw
from muster.api.objects import Key
from muster.api.raw import JSON, Document

GPU = "nvidia.com/gpu"
GROUP_ANNOTATION = "scheduling.k8s.io/group-name"


@dataclass(frozen=True, slots=True)
class Builder:
    _document: Document = field(default_factory=dict)

    def document(self) -> Document:
        """A copy that is yours to change."""
        found = raw.copy(self._document)
        assert isinstance(found, dict)
        return found

    @property
    def key(self) -> Key:
        metadata = self._document["metadata"]
        return Key(metadata.get("namespace", ""), metadata["name"])

    def set(self, value: JSON, *path: str) -> Self:
        """The document with `value` at `path`: for what has no word of its own here."""
        changed = self.document()
        raw.section(changed, *path[:-1])[path[-1]] = value
        return type(self)(changed)

    def add(self, value: JSON, *path: str) -> Self:
        """The document with `value` appended to the list at `path`."""
        return self.set([*raw.dig(self._document, *path, default=[]), value], *path)

    def namespace(self, name: str) -> Self:
        return self.set(name, "metadata", "namespace")

    def labels(self, **labels: str) -> Self:
        """Keys that are Python names; others with `label`."""
        return self.set({**raw.dig(self._document, "metadata", "labels", default={}), **labels}, "metadata", "labels")

    def label(self, key: str, value: str) -> Self:
        return self.set(value, "metadata", "labels", key)

    def annotation(self, key: str, value: str) -> Self:
        return self.set(value, "metadata", "annotations", key)

    def finalizer(self, name: str) -> Self:
        return self.add(name, "metadata", "finalizers")

    def owned_by(self, owner: Document, *, blocking: bool = False, controller: bool = False) -> Self:
        """`owner` is the document as stored: it has a uid."""
        reference: Document = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
        if blocking:
            reference["blockOwnerDeletion"] = True
        if controller:
            reference["controller"] = True
        return self.add(reference, "metadata", "ownerReferences")


@dataclass(frozen=True, slots=True)
class PodBuilder(Builder):
    """One container, `main`."""

    def _container(self, value: JSON, *path: str) -> Self:
        changed = self.document()
        raw.section(changed["spec"]["containers"][0], *path[:-1])[path[-1]] = value
        return type(self)(changed)

    def request(self, resource: str, amount: str | int) -> Self:
        """Asks for the amount and is limited to it, as GPUs must be."""
        limited = self._container(str(amount), "resources", "limits", resource)
        return limited._container(str(amount), "resources", "requests", resource)

    def cpu(self, amount: str | int) -> Self:
        return self.request("cpu", amount)

    def memory(self, amount: str) -> Self:
        return self.request("memory", amount)

    def gpus(self, count: int) -> Self:
        return self.request(GPU, count)

    def image(self, name: str) -> Self:
        return self._container(name, "image")

    def command(self, *words: str) -> Self:
        return self._container(list(words), "command")

    def env(self, name: str, value: str) -> Self:
        present = raw.dig(self._document, "spec", "containers", 0, "env", default=[])
        return self._container([*present, {"name": name, "value": value}], "env")

    def in_group(self, name: str) -> Self:
        return self.annotation(GROUP_ANNOTATION, name)

    def on_node(self, name: str) -> Self:
        return self.set(name, "spec", "nodeName")

    def node_selector(self, key: str, value: str) -> Self:
        return self.set(value, "spec", "nodeSelector", key)

    def tolerating(self, key: str, *, effect: str = "", seconds: int | None = None) -> Self:
        toleration: Document = {"key": key, "operator": "Exists"}
        if effect:
            toleration["effect"] = effect
        if seconds is not None:
            toleration["tolerationSeconds"] = seconds
        return self.add(toleration, "spec", "tolerations")

    def gated(self, name: str) -> Self:
        return self.add({"name": name}, "spec", "schedulingGates")

    def restart_policy(self, policy: str) -> Self:
        return self.set(policy, "spec", "restartPolicy")

    def phase(self, phase: str) -> Self:
        """Status: a store drops it on create; write it to the status subresource."""
        return self.set(phase, "status", "phase")


@dataclass(frozen=True, slots=True)
class NodeBuilder(Builder):
    """Ready, with room for 110 pods. Capacity is status: a store drops it on create."""

    def resource(self, name: str, amount: str | int) -> Self:
        return self.set(str(amount), "status", "allocatable", name).set(str(amount), "status", "capacity", name)

    def cpu(self, amount: str | int) -> Self:
        return self.resource("cpu", amount)

    def memory(self, amount: str) -> Self:
        return self.resource("memory", amount)

    def gpus(self, count: int) -> Self:
        return self.resource(GPU, count)

    def pods(self, count: int) -> Self:
        return self.resource("pods", count)

    def taint(self, key: str, value: str = "", effect: str = "NoSchedule") -> Self:
        return self.add({"key": key, "value": value, "effect": effect}, "spec", "taints")

    def cordoned(self) -> Self:
        return self.set(True, "spec", "unschedulable")

    def ready(self, status: str) -> Self:
        """`True`, `False` or `Unknown`, as text."""
        return self.set([{"type": "Ready", "status": status}], "status", "conditions")


@dataclass(frozen=True, slots=True)
class PodGroupBuilder(Builder):
    def min_member(self, count: int) -> Self:
        return self.set(count, "spec", "minMember")


def a_pod(name: str, namespace: str = "default") -> PodBuilder:
    return PodBuilder(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"containers": [{"name": "main", "image": "host"}]},
        }
    )


def a_node(name: str) -> NodeBuilder:
    bare = NodeBuilder({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": {}})
    return bare.pods(110).ready("True")


def a_pod_group(name: str, namespace: str = "default") -> PodGroupBuilder:
    return PodGroupBuilder(
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"minMember": 1},
        }
    )
