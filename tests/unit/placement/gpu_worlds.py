"""Nodes with GPUs and pods that ask for them, whole or in shares, by hand and made up by hypothesis."""

from typing import Any

from hypothesis import strategies as st
from tests.unit.placement.plugin_views import node

from muster.api import core, objects
from muster.cluster.amounts import GPU, GPU_MILLI
from muster.cluster.devices import choose, wants
from muster.cluster.pods import DEVICES_ANNOTATION, PodInfo
from muster.cluster.state import ClusterState

PODS = st.tuples(st.integers(0, 3), st.sampled_from((0, 300, 500, 700, 1000)), st.integers(0, 3))


def gpu_pod(cluster: ClusterState, name: str, whole: int = 0, share: int = 0, devices: str = "") -> PodInfo:
    annotations: dict[str, str] = {}
    if share:
        annotations[GPU_MILLI] = str(share)
    if devices:
        annotations[DEVICES_ANNOTATION] = devices
    requests: dict[str, Any] = {GPU: str(whole)} if whole else {}
    document = {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
    }
    view = objects.view_of(core.POD, document)
    assert isinstance(view, core.Pod)
    return cluster.shapes.info(view)


def gpu_node(name: str, count: int) -> core.Node:
    return node(name, status={"allocatable": {"pods": "100", GPU: str(count)}})


@st.composite
def gpu_clusters(draw: st.DrawFn) -> ClusterState:
    counts = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    cluster = ClusterState.of([gpu_node(f"n{number}", count) for number, count in enumerate(counts)])
    for number, (whole, share, where) in enumerate(draw(st.lists(PODS, max_size=8))):
        pod, slot = gpu_pod(cluster, f"p{number}", whole, share), where % len(counts)
        if choose(cluster.devices.free_at(slot), wants(pod)) is not None:
            cluster.assign(pod, f"n{slot}")
    return cluster
