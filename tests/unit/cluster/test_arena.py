"""The arena against the plainest possible ledger, and the corners that a random walk seldom meets."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from muster.api import core, objects, raw
from muster.cluster import Arena, ClusterArrays
from muster.testing.builders import NodeBuilder, a_node, a_pod


def node_view(builder: NodeBuilder) -> core.Node:
    view = objects.decode_view(core.NODE, raw.encode(builder.document()))
    assert isinstance(view, core.Node)
    return view


def pod_view(document: raw.Document) -> core.Pod:
    view = objects.decode_view(core.POD, raw.encode(document))
    assert isinstance(view, core.Pod)
    return view


def free_of(cluster: ClusterArrays, node: str, resource: str) -> int:
    return int(cluster.free[cluster.resources[resource], list(cluster.names).index(node)])


def test_free_is_what_bound_unfinished_pods_leave() -> None:
    nodes = [node_view(a_node("n1").cpu(4).gpus(8)), node_view(a_node("n2").cpu("1500m"))]
    pods = [
        pod_view(a_pod("a").cpu("500m").gpus(2).on_node("n1").set("uid-a", "metadata", "uid").document()),
        pod_view(a_pod("b").cpu(1).on_node("n1").set("uid-b", "metadata", "uid").phase("Succeeded").document()),
        pod_view(a_pod("c").cpu(1).set("uid-c", "metadata", "uid").document()),
    ]
    cluster = Arena.from_views(nodes, pods).snapshot()
    assert free_of(cluster, "n1", "cpu") == 3500
    assert free_of(cluster, "n1", "nvidia.com/gpu") == 6
    assert free_of(cluster, "n1", "pods") == 109
    assert free_of(cluster, "n2", "cpu") == 1500
    assert free_of(cluster, "n2", "nvidia.com/gpu") == 0


def test_a_pod_counts_although_its_node_comes_later_and_again_when_it_comes_back() -> None:
    arena = Arena()
    arena.pod_assigned("u", "late", {"cpu": 300})
    arena.node_changed(node_view(a_node("late").cpu(1)))
    assert free_of(arena.snapshot(), "late", "cpu") == 700
    arena.node_removed("late")
    assert arena.snapshot().node_count == 0
    arena.node_changed(node_view(a_node("late").cpu(2)))
    assert free_of(arena.snapshot(), "late", "cpu") == 1700
    arena.pod_released("u")
    assert free_of(arena.snapshot(), "late", "cpu") == 2000


def test_labels_taints_and_masks_follow_the_node() -> None:
    arena = Arena()
    arena.node_changed(node_view(a_node("a").label("zone", "x").taint("dedicated", "team")))
    arena.node_changed(node_view(a_node("b").label("zone", "y").cordoned()))
    arena.node_changed(node_view(a_node("c").label("zone", "x").ready("Unknown")))
    before = arena.snapshot()
    assert before.with_label("zone", "x").tolist() == [True, False, True]
    assert before.with_label("zone", "unheard of").tolist() == [False] * 3
    assert before.with_label("rack", "x").tolist() == [False] * 3
    assert before.schedulable.tolist() == [True, False, False]
    assert before.taint_classes[before.taint_class[0]][0].key == "dedicated"
    arena.node_changed(node_view(a_node("b").label("zone", "x")))
    after = arena.snapshot()
    assert after.with_label("zone", "x").tolist() == [True, True, True]
    assert after.schedulable.tolist() == [True, True, False]
    assert before.with_label("zone", "x").tolist() == [True, False, True], "a snapshot does not move"


def test_absurd_amounts_do_not_overflow() -> None:
    arena = Arena()
    arena.node_changed(node_view(a_node("n").cpu("9223372036854775807").memory("7Ei")))
    for number in range(1000):
        arena.pod_assigned(f"u{number}", "n", {"cpu": 2**63 - 1})
    cluster = arena.snapshot()
    assert free_of(cluster, "n", "cpu") < 0 < free_of(cluster, "n", "memory")


def test_nonsense_in_a_nodes_status_counts_as_nothing() -> None:
    arena = Arena()
    arena.node_changed(node_view(a_node("n").cpu("lots").memory("1Gi")))
    cluster = arena.snapshot()
    assert "cpu" not in cluster.resources
    assert free_of(cluster, "n", "memory") == 2**30


def test_columns_of_nodes_that_never_come_back_are_dropped() -> None:
    arena = Arena()
    arena.node_changed(node_view(a_node("stays").cpu(8).label("zone", "x")))
    arena.pod_assigned("u", "stays", {"cpu": 1000})
    for number in range(500):
        arena.node_changed(node_view(a_node(f"n{number}").cpu(1)))
        arena.node_removed(f"n{number}")
    cluster = arena.snapshot()
    assert cluster.exists.size < 200
    assert cluster.node_count == 1
    assert free_of(cluster, "stays", "cpu") == 7000
    assert cluster.with_label("zone", "x").sum() == 1


@dataclass
class Ledger:
    """The reference: dictionaries, everything computed afresh on each question."""

    nodes: dict[str, dict[str, int]] = field(default_factory=dict)
    pods: dict[str, tuple[str, dict[str, int]]] = field(default_factory=dict)

    def free(self, node: str, resource: str) -> int:
        used = sum(needs.get(resource, 0) for on, needs in self.pods.values() if on == node)
        return self.nodes[node].get(resource, 0) - used


_NODES = st.sampled_from([f"n{number}" for number in range(40)])
_UIDS = st.sampled_from([f"u{number}" for number in range(20)])
_AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "example.com/fpga", "hugepages-2Mi"]), st.integers(0, 50)
)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("node"), _NODES, _AMOUNTS),
        st.tuples(st.just("gone"), _NODES, st.just({})),
        st.tuples(st.just("pod"), st.tuples(_UIDS, _NODES), _AMOUNTS),
        st.tuples(st.just("end"), _UIDS, st.just({})),
    ),
    max_size=120,
)


@given(steps=_STEPS)
def test_the_arena_agrees_with_the_ledger(steps: list[tuple[str, object, dict[str, int]]]) -> None:
    arena, ledger = Arena(), Ledger()
    for verb, subject, amounts in steps:
        match verb, subject:
            case "node", str(name):
                builder = a_node(name)
                for resource, amount in amounts.items():
                    builder = builder.resource(resource, f"{amount}m" if resource == "cpu" else amount)
                arena.node_changed(node_view(builder))
                ledger.nodes[name] = {"pods": 110, **amounts}
            case "gone", str(name):
                arena.node_removed(name)
                ledger.nodes.pop(name, None)
            case "pod", (str(uid), str(name)):
                arena.pod_assigned(uid, name, amounts)
                ledger.pods[uid] = (name, amounts)
            case "end", str(uid):
                arena.pod_released(uid)
                ledger.pods.pop(uid, None)
    cluster = arena.snapshot()
    names = np.array(cluster.names[: cluster.exists.size])
    assert set(names[cluster.exists].tolist()) == set(ledger.nodes)
    for name in ledger.nodes:
        for resource in cluster.resources:
            assert free_of(cluster, name, resource) == ledger.free(name, resource), (name, resource)
    assert {uid: arena.node_of(uid) for uid in ledger.pods} == {uid: on for uid, (on, _) in ledger.pods.items()}
