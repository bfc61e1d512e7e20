"""TopologyPlacementGenerator: nodes by label, against a dictionary of lists."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import core, volcano
from muster.api.scheduling.groups import PodGroup
from muster.cluster.groups import Group, GroupKey, Mode, PodGroups, Topology
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import Code, Hint, Placement
from muster.placement.plugins.topology_placement import TopologyPlacementGenerator
from muster.testing.builders import a_node, a_pod

KEY = GroupKey("default", "g")


def node(name: str, **labels: str) -> core.Node:
    return msgspec.convert(a_node(name).labels(**labels).document(), core.Node)


def member(cluster: ClusterState, name: str = "p", group: str = "g") -> PodInfo:
    document = a_pod(name).set(name, "metadata", "uid").in_group(group).document()
    return cluster.shapes.info(msgspec.convert(document, core.Pod))


VALUES = st.sampled_from(["a", "b", "c", None])


@given(
    nodes=st.lists(st.tuples(VALUES, st.booleans(), st.booleans()), min_size=1, max_size=10),
    mode=st.sampled_from(Mode),
    occupied=st.lists(st.integers(0, 9), max_size=2),
)
def test_placements_agree_with_a_dictionary(
    nodes: list[tuple[str | None, bool, bool]], mode: Mode, occupied: list[int]
) -> None:
    """Each node: its value of the label, whether it is in the parent placement, whether it is gone."""
    cluster = ClusterState.of(
        node(f"n{i}", **({"rack": value} if value else {})) for i, (value, _, _) in enumerate(nodes)
    )
    for number, (_, _, is_gone) in enumerate(nodes):
        if is_gone:
            cluster.node_removed(f"n{number}")
    groups = PodGroups()
    group = Group(KEY, topology=Topology(mode, keys=("rack",)))
    groups.put(group)
    for number, position in enumerate(occupied):
        groups.bound(member(cluster, f"p{number}"), f"n{position}")
    parent = Placement("all", np.array([inside for _, inside, _ in nodes]))

    made = TopologyPlacementGenerator(groups).generate_placements(group, cluster, parent)

    present = {f"n{i}": value for i, (value, _, is_gone) in enumerate(nodes) if not is_gone}
    domains = {present.get(f"n{position}") for position in occupied}
    is_broken = len(domains) > 1 or None in domains
    if is_broken and mode is Mode.REQUIRED:
        assert made.status.code is Code.ERROR
        return
    wanted: dict[str, list[str]] = {}
    for number, (value, inside, is_gone) in enumerate(nodes):
        if value and inside and not is_gone and (not domains or is_broken or value in domains):
            wanted.setdefault(value, []).append(f"n{number}")
    found = [(p.name, [f"n{slot}" for slot in np.flatnonzero(p.nodes)]) for p in made.placements]
    if mode is not Mode.REQUIRED:
        assert made.placements[-1] is parent
        found.pop()
    assert found == list(wanted.items())


def test_a_group_without_topology_has_the_parent() -> None:
    cluster, parent = ClusterState.of([node("n")]), Placement("all", np.array([True]))
    made = TopologyPlacementGenerator(PodGroups()).generate_placements(Group(KEY), cluster, parent)
    assert list(made.placements) == [parent]


def topology(key: str) -> Topology:
    return Topology(keys=(key,)) if key else Topology(highest_tier=1)


@pytest.mark.parametrize(
    ("key", "before", "after", "wanted"),
    [
        ("rack", None, node("n", rack="a"), Hint.QUEUE),
        ("rack", None, node("n"), Hint.SKIP),
        ("rack", node("n", rack="a"), node("n", rack="b"), Hint.QUEUE),
        ("rack", node("n", rack="a"), node("n", rack="a", zone="z"), Hint.SKIP),
        ("", None, node("n"), Hint.QUEUE),
    ],
)
def test_a_node_that_changes_the_domains_wakes(
    key: str, before: core.Node | None, after: core.Node, wanted: Hint
) -> None:
    groups, cluster = PodGroups(), ClusterState()
    groups.put(Group(KEY, topology=topology(key)))
    plugin = TopologyPlacementGenerator(groups)
    assert plugin.after_node_changed(member(cluster), before, after, cluster) is wanted
    assert plugin.after_node_changed(member(cluster, group="other"), before, after, cluster) is Hint.SKIP


def test_a_topology_that_changes_wakes() -> None:
    groups, cluster = PodGroups(), ClusterState()
    groups.put(Group(KEY, topology=Topology(keys=("rack",))))
    plugin, own = TopologyPlacementGenerator(groups), member(cluster)
    meta = {"name": "g", "namespace": "default"}
    tier = [
        msgspec.convert({"metadata": meta, "spec": {"networkTopology": {"highestTierAllowed": n}}}, volcano.PodGroup)
        for n in (1, 2)
    ]
    rack, zone = (
        msgspec.convert({"metadata": meta, "spec": {"schedulingConstraints": {"topology": [{"key": k}]}}}, PodGroup)
        for k in ("rack", "zone")
    )
    for old, new in ((tier[0], tier[1]), (rack, zone)):
        assert plugin.after_group_updated(own, old, new, cluster) is Hint.QUEUE
        assert plugin.after_group_updated(own, new, new, cluster) is Hint.SKIP
        assert plugin.after_group_updated(member(cluster, group="h"), old, new, cluster) is Hint.SKIP
