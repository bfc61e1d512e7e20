"""Short ways to the nodes, pods and clusters that plugins are tested with."""

from typing import Any

from muster.api import core, objects
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState


def node(name: str, labels: dict[str, str] | None = None, **spec: Any) -> core.Node:
    status = spec.pop("status", {})
    document = {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": status}
    view = objects.view_of(core.NODE, document)
    assert isinstance(view, core.Node)
    return view


def pod_view(name: str = "pod", status: dict[str, Any] | None = None, **spec: Any) -> core.Pod:
    document = {"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": spec, "status": status or {}}
    view = objects.view_of(core.POD, document)
    assert isinstance(view, core.Pod)
    return view


def pod(cluster: ClusterState, name: str = "pod", status: dict[str, Any] | None = None, **spec: Any) -> PodInfo:
    return cluster.shapes.info(pod_view(name, status, **spec))


def deferred() -> dict[str, Any]:
    """The status of a pod whose resize its node had to defer."""
    return {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]}


def names(cluster: ClusterState, mask: Any) -> set[str]:
    return {name for slot, name in enumerate(cluster.names) if mask[slot] and cluster.exists[slot]}
