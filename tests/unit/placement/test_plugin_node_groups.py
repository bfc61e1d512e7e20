"""NodeGroups: which nodes the pods of a queue may use, and which of them they had better use."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.placement.plugin_views import node, pod

from muster.api import volcano
from muster.api.objects import Key, view_of
from muster.cluster.pods import PodInfo
from muster.cluster.queues import NODE_GROUP
from muster.cluster.state import ClusterState
from muster.placement.framework import Code, Hint
from muster.placement.plugins.node_groups import NodeGroups, NodeGroupsArgs

GROUP = Key("ns", "g")
NODES = {"a1": "a", "a2": "a", "b": "b", "c": "c", "free": None}
EVERYWHERE = set(NODES)


def a_queue(name: str, parent: str = "root", **affinity: Any) -> volcano.Queue:
    terms = {
        kind: {f"{how}DuringSchedulingIgnoredDuringExecution": groups for how, groups in said.items()}
        for kind, said in affinity.items()
    }
    spec = {"parent": parent, **({"affinity": terms} if terms else {})}
    found = view_of(volcano.QUEUE, {"metadata": {"name": name}, "spec": spec})
    assert isinstance(found, volcano.Queue)
    return found


def a_cluster(*queues: volcano.Queue, of_group: str = "q") -> ClusterState:
    cluster = ClusterState.of(
        [node(name, labels={NODE_GROUP: group} if group else {}) for name, group in NODES.items()]
    )
    for queue in queues:
        cluster.queues.set_queue(queue)
    cluster.queues.set_group(GROUP, of_group)
    return cluster


def member(cluster: ClusterState) -> PodInfo:
    return replace(pod(cluster, "p"), group=GROUP)


def allowed(cluster: ClusterState, plugin: NodeGroups | None = None) -> set[str]:
    asked, plugin = member(cluster), plugin or NodeGroups()
    if plugin.pre_filter(asked, cluster).status.code is Code.SKIP:
        return EVERYWHERE
    rejections = plugin.filter(asked, cluster, None)
    assert all(rejection.is_unresolvable for rejection in rejections)
    return {name for name, slot in cluster.slots.items() if not any(found.nodes[slot] for found in rejections)}


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        ({}, {"free"}),
        ({"nodeGroupAffinity": {"required": ["a"]}}, {"a1", "a2"}),
        ({"nodeGroupAffinity": {"preferred": ["a", "c"]}}, {"a1", "a2", "c"}),
        ({"nodeGroupAffinity": {"required": ["a"], "preferred": ["b"]}}, {"a1", "a2", "b"}),
        ({"nodeGroupAntiAffinity": {"required": ["a"]}}, {"b", "c", "free"}),
        ({"nodeGroupAntiAffinity": {"preferred": ["a"]}}, EVERYWHERE),
        (
            {
                "nodeGroupAffinity": {"required": ["b"]},
                "nodeGroupAntiAffinity": {"required": ["a"], "preferred": ["c"]},
            },
            {"b", "c"},
        ),
        ({"nodeGroupAffinity": {"required": ["nowhere"]}}, set()),
    ],
    ids=[
        "says nothing",
        "required",
        "preferred",
        "required or preferred",
        "forbidden",
        "avoided",
        "wanted, forbidden and avoided",
        "no such group",
    ],
)
def test_a_queue_has_the_nodes_of_its_groups(affinity: dict[str, Any], expected: set[str]) -> None:
    assert allowed(a_cluster(a_queue("q", **affinity))) == expected


def test_a_queue_has_what_the_nearest_above_it_says() -> None:
    wants = {group: {"required": [group]} for group in "ab"}
    root = a_queue("root", "", nodeGroupAffinity=wants["b"])
    tree = (root, a_queue("team", "root", nodeGroupAffinity=wants["a"]), a_queue("q", "team"))
    assert allowed(a_cluster(*tree)) == {"a1", "a2"}
    assert allowed(a_cluster(root, a_queue("team", "root"), a_queue("q", "team"))) == {"b"}


def test_queues_in_a_circle_say_nothing() -> None:
    assert allowed(a_cluster(a_queue("q", "r"), a_queue("r", "q"))) == {"free"}


def test_a_strict_profile_gives_nothing_to_a_queue_for_no_group() -> None:
    assert allowed(a_cluster(a_queue("q")), NodeGroups(NodeGroupsArgs(strict=True))) == set()


def test_pods_in_no_queue_and_clusters_without_groups_are_left_alone() -> None:
    cluster = a_cluster()
    assert NodeGroups().pre_filter(pod(cluster, "bare"), cluster).status.code is Code.SKIP
    plain = ClusterState.of([node("n")])
    plain.queues.set_group(GROUP, "q")
    assert NodeGroups().pre_filter(member(plain), plain).status.code is Code.SKIP


def test_better_groups_score_higher() -> None:
    affinity: dict[str, Any] = {
        "nodeGroupAffinity": {"required": ["a", "b"], "preferred": ["b"]},
        "nodeGroupAntiAffinity": {"preferred": ["c"]},
    }
    cluster = a_cluster(a_queue("q", **affinity))
    scores = NodeGroups().score(member(cluster), cluster, None)
    by_name = {name: int(scores[slot]) for name, slot in cluster.slots.items()}
    assert by_name["b"] > by_name["a1"] == by_name["a2"] > by_name["free"] > by_name["c"]
    assert min(by_name.values()) == 0


def test_preferred_groups_may_have_an_order() -> None:
    cluster = a_cluster(a_queue("q", nodeGroupAffinity={"preferred": ["b", "a"]}))
    rules = cluster.queues.rules_for(GROUP)
    assert rules is not None
    assert [NodeGroups().points(rules, group) for group in ("b", "a")] == [50, 50]
    assert [NodeGroups(NodeGroupsArgs(ordered=True)).points(rules, group) for group in ("b", "a")] == [50, 25]


def test_what_changes_nothing_is_not_news() -> None:
    cluster = a_cluster(a_queue("q", nodeGroupAffinity={"required": ["a"]}))
    assert not cluster.queues.set_queue(a_queue("q", nodeGroupAffinity={"required": ["a"]}))
    assert cluster.queues.set_queue(a_queue("q", nodeGroupAffinity={"required": ["b"]}))


@pytest.mark.parametrize(
    ("name", "queue", "expected"),
    [("g", "q", Hint.SKIP), ("g", "another", Hint.QUEUE), ("h", "another", Hint.SKIP)],
    ids=["a report", "another queue", "another group"],
)
def test_a_group_that_changes_its_queue_wakes_its_pods(name: str, queue: str, expected: Hint) -> None:
    cluster = a_cluster()
    old, new = (
        view_of(volcano.POD_GROUP, {"metadata": {"name": name, "namespace": "ns"}, "spec": {"queue": said}})
        for said in ("q", queue)
    )
    assert NodeGroups().after_group_update(member(cluster), old, new, cluster) is expected


def test_options() -> None:
    assert NodeGroupsArgs.from_document({"strict": True}) == NodeGroupsArgs(strict=True)
    errors = NodeGroupsArgs.from_document({"ordered": "yes", "surprise": 1})
    assert isinstance(errors, list)
    assert {error.path for error in errors} == {"ordered", "surprise"}
