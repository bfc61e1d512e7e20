"""Small clusters with all kinds of resources, made up by hypothesis, for the plugins that judge by resources."""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from tests.unit.placement.plugin_views import node, pod

from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState

RESOURCES = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/a", "example.com/b")
AMOUNTS = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 12), max_size=5)
NODES = st.lists(st.tuples(AMOUNTS, st.none() | st.integers(0, 4)), min_size=1, max_size=5)
PODS = st.lists(st.tuples(AMOUNTS, st.integers(0, 4)), max_size=8)


@dataclass(frozen=True)
class World:
    cluster: ClusterState
    pod: PodInfo

    @property
    def slots(self) -> list[int]:
        return list(self.cluster.slots.values())


def asking(requests: dict[str, int]) -> dict[str, Any]:
    texts = {name: str(amount) for name, amount in requests.items()}
    return {"containers": [{"name": "c", "resources": {"requests": texts}}]}


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A cluster that has also lost a node, so that one slot is empty or was used twice."""
    cluster = ClusterState()
    cluster.node_changed(node("gone", status={"allocatable": {"cpu": "3"}}))
    for number, (amounts, pods) in enumerate(draw(NODES)):
        allocatable = {name: str(amount) for name, amount in amounts.items()}
        if pods is not None:
            allocatable["pods"] = str(pods)
        cluster.node_changed(node(f"n{number}", status={"allocatable": allocatable}))
    cluster.node_removed("gone")
    count = cluster.node_count
    for number, (amounts, where) in enumerate(draw(PODS)):
        cluster.assign(pod(cluster, f"p{number}", **asking(amounts)), f"n{where % count}")
    return World(cluster, pod(cluster, "new", **asking(draw(AMOUNTS))))
