"""Placing: the rules one by one, then against a plain reference, with the invariants that must always hold."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api import core, objects, raw
from muster.api.objects import Key
from muster.cluster import Arena, ClusterArrays, NodeTaint
from muster.placement import Gang, Obstacle, Placed, PodRequest, PodShape, Unplaceable, place
from muster.placement.feasibility import tolerates
from muster.testing.builders import NodeBuilder, PodBuilder, a_node, a_pod


def cluster_of(*nodes: NodeBuilder) -> ClusterArrays:
    views = [objects.decode_view(core.NODE, raw.encode(node.document())) for node in nodes]
    return Arena.from_views([view for view in views if isinstance(view, core.Node)], []).snapshot()


def request(builder: PodBuilder) -> PodRequest:
    view = objects.decode_view(core.POD, raw.encode(builder.document()))
    assert isinstance(view, core.Pod)
    return PodRequest(builder.key, f"uid-{builder.key.name}", PodShape.of(view.spec))


def gang(*pods: PodBuilder, min_member: int | None = None, bound: int = 0) -> Gang:
    wanted = len(pods) if min_member is None else min_member
    return Gang("gang", tuple(request(pod) for pod in pods), wanted, bound)


def nodes_of(verdict: Placed | Unplaceable) -> list[str]:
    assert isinstance(verdict, Placed), verdict
    return [node for _, node in verdict.assigned]


def test_a_pod_goes_to_the_least_used_node_and_ties_go_to_the_first() -> None:
    cluster = cluster_of(a_node("a").cpu(4), a_node("b").cpu(8), a_node("c").cpu(8))
    verdicts = place([gang(a_pod(f"p{number}").cpu(2)) for number in range(4)], cluster)
    # b stays 75% free, then c, then each would be left half free: a at 2 of 4, b and c at 4 of 8.
    assert [nodes_of(verdict) for verdict in verdicts] == [["b"], ["c"], ["a"], ["b"]]


def test_pods_that_ask_for_nothing_are_spread_by_count() -> None:
    cluster = cluster_of(a_node("a").cpu(1), a_node("b").cpu(1))
    (verdict,) = place([gang(*(a_pod(f"p{number}") for number in range(4)))], cluster)
    assert Counter(nodes_of(verdict)) == {"a": 2, "b": 2}


def test_the_input_is_left_as_it_was() -> None:
    cluster = cluster_of(a_node("a").cpu(4))
    before = cluster.free.copy()
    place([gang(a_pod("p").cpu(3))], cluster)
    assert (cluster.free == before).all()


def test_a_gang_that_does_not_fit_takes_nothing_from_the_next() -> None:
    cluster = cluster_of(a_node("a").gpus(8), a_node("b").gpus(8))
    too_big, small = gang(*(a_pod(f"p{n}").gpus(8) for n in range(3))), gang(a_pod("q").gpus(8), a_pod("r").gpus(8))
    first, second = place([too_big, small], cluster)
    assert isinstance(first, Unplaceable)
    assert first.placeable == 2
    assert nodes_of(second) == ["a", "b"]
    assert first.message == (
        "2 of the 3 pods that must start together can be placed: "
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    )


def test_members_beyond_the_minimum_go_along_where_they_fit() -> None:
    cluster = cluster_of(a_node("a").gpus(4))
    (verdict,) = place([gang(*(a_pod(f"p{n}").gpus(1) for n in range(6)), min_member=2)], cluster)
    assert isinstance(verdict, Placed)
    assert len(verdict.assigned) == 4
    assert [pod.key.name for pod, _ in verdict.left_out] == ["p4", "p5"]
    assert verdict.left_out[0][1].message == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


def test_members_that_are_bound_already_count() -> None:
    cluster = cluster_of(a_node("a").gpus(1))
    pods = [a_pod("p").gpus(1), a_pod("q").gpus(1)]
    assert isinstance(place([gang(*pods, min_member=4, bound=2)], cluster)[0], Unplaceable)
    (verdict,) = place([gang(*pods, min_member=4, bound=3)], cluster)
    assert nodes_of(verdict) == ["a"]


def test_a_gang_without_enough_pods_is_a_callers_mistake() -> None:
    with pytest.raises(ValueError, match="misses 3 pods and has 1"):
        gang(a_pod("p"), min_member=3)


def test_large_members_are_placed_before_small_ones() -> None:
    cluster = cluster_of(a_node("a").gpus(8), a_node("b").gpus(8))
    small = [a_pod(f"s{n}").gpus(1) for n in range(8)]
    (verdict,) = place([gang(*small, a_pod("large").gpus(8))], cluster)
    assert isinstance(verdict, Placed)


@pytest.mark.parametrize(
    ("nodes", "pod", "message"),
    [
        pytest.param(
            [a_node(f"n{n}").gpus(2) for n in range(4)],
            a_pod("p").gpus(3),
            "0/4 nodes are available: 4 Insufficient nvidia.com/gpu. "
            "No node has that much nvidia.com/gpu, even when empty.",
            id="more than any node has",
        ),
        pytest.param(
            [a_node("n").cpu(1)],
            a_pod("p").gpus(1),
            "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. "
            "No node has that much nvidia.com/gpu, even when empty.",
            id="a resource that no node has ever heard of",
        ),
        pytest.param(
            [a_node("a").cpu(1).cordoned(), a_node("b").cpu(1).ready("Unknown"), a_node("c").cpu(1).taint("k", "v")],
            a_pod("p").cpu(1),
            "0/3 nodes are available: 1 node(s) had untolerated taint {k: v}, 1 node(s) were not ready, "
            "1 node(s) were unschedulable.",
            id="nodes that are closed for different reasons",
        ),
        pytest.param(
            [a_node("a").cpu(4), a_node("b").cpu(4).label("disk", "hdd")],
            a_pod("p").cpu(1).node_selector("disk", "ssd").node_selector("zone", "z"),
            "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
            id="a selector that nothing matches",
        ),
        pytest.param(
            [a_node("a").cpu(4).pods(0)],
            a_pod("p").cpu(1),
            "0/1 nodes are available: 1 Too many pods. No node has that much pods, even when empty.",
            id="no room for one more pod",
        ),
        pytest.param([], a_pod("p"), "no nodes available to schedule pods", id="no nodes at all"),
        pytest.param(
            [a_node("n").cpu(1).memory("1Gi")],
            a_pod("p").cpu(2).memory("2Gi"),
            "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory. "
            "No node has that much cpu, memory, even when empty.",
            id="short of two things",
        ),
    ],
)  # fmt: skip
def test_a_refusal_says_why(nodes: list[NodeBuilder], pod: PodBuilder, message: str) -> None:
    (verdict,) = place([gang(pod)], cluster_of(*nodes))
    assert isinstance(verdict, Unplaceable)
    assert verdict.message == message


def test_a_refusal_names_what_was_wanted_and_what_is_there() -> None:
    (verdict,) = place([gang(a_pod("p").gpus(8))], cluster_of(a_node("a").gpus(4), a_node("b").gpus(6)))
    assert isinstance(verdict, Unplaceable)
    (reason,) = verdict.refusal.reasons
    assert (reason.obstacle, reason.subject) == (Obstacle.RESOURCE, "nvidia.com/gpu")
    assert (reason.nodes, reason.wanted, reason.most_free) == (2, 8, 6)


def test_selectors_and_tolerations_open_the_right_nodes() -> None:
    cluster = cluster_of(
        a_node("plain").cpu(64), a_node("tainted").cpu(4).taint("gpu", "yes"), a_node("ssd").cpu(4).label("disk", "ssd")
    )
    tolerant = a_pod("t").cpu(1).tolerating("gpu")
    verdicts = place([gang(a_pod("s").cpu(1).node_selector("disk", "ssd")), gang(a_pod("p").cpu(60))], cluster)
    assert [nodes_of(verdict) for verdict in verdicts] == [["ssd"], ["plain"]]
    assert nodes_of(place([gang(*(tolerant.set(f"t{n}", "metadata", "name") for n in range(70)))], cluster)[0]).count(
        "tainted"
    )


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        (core.Toleration(key="k", value="v"), True),
        (core.Toleration(key="k", operator="Equal", value="other"), False),
        (core.Toleration(key="k", operator="Exists"), True),
        (core.Toleration(operator="Exists"), True),
        (core.Toleration(key="other", operator="Exists"), False),
        (core.Toleration(key="k", operator="Exists", effect="NoExecute"), False),
        (core.Toleration(key="k", operator="Exists", effect="NoSchedule"), True),
        (core.Toleration(value="v"), False),
    ],
)
def test_tolerations_are_read_as_kubernetes_reads_them(toleration: core.Toleration, is_tolerated: bool) -> None:
    assert tolerates(toleration, NodeTaint("k", "v", "NoSchedule")) is is_tolerated


# The reference: dictionaries and loops, nothing shared between pods.


def reference(gangs: Sequence[Gang], nodes: dict[str, dict[str, int]]) -> list[dict[Key, str] | None]:
    free = {name: dict(has) for name, has in nodes.items()}
    found: list[dict[Key, str] | None] = []
    for wanted in gangs:
        trial = {name: dict(left) for name, left in free.items()}
        order = list(dict.fromkeys(pod.shape for pod in wanted.pods))
        if len(order) > 1:
            order.sort(key=lambda shape: -_size(shape, nodes))
        assigned: dict[Key, str] = {}
        for shape in order:
            for pod in [pod for pod in wanted.pods if pod.shape == shape]:
                name = _best(dict(shape.needs), trial, nodes)
                if name is None:
                    break
                for resource, amount in shape.needs:
                    trial[name][resource] -= amount
                assigned[pod.key] = name
        if len(assigned) >= max(1, wanted.missing):
            free = trial
            found.append(assigned)
        else:
            found.append(None)
    return found


def _size(shape: PodShape, nodes: dict[str, dict[str, int]]) -> float:
    known = {resource for has in nodes.values() for resource in has}
    if any(resource not in known for resource, _ in shape.needs):
        return float("inf")
    return max(n / max(1, *(has.get(resource, 0) for has in nodes.values()), 0) for resource, n in shape.needs)


def _best(needs: dict[str, int], free: dict[str, dict[str, int]], nodes: dict[str, dict[str, int]]) -> str | None:
    scored = {r: n for r, n in needs.items() if r != "pods"} or needs
    best: tuple[float, str] | None = None
    for name, left in free.items():
        if any(left.get(resource, 0) < amount for resource, amount in needs.items()):
            continue
        score = 0.0
        for resource, amount in scored.items():
            score += (left[resource] - amount) / nodes[name][resource]
        if best is None or score > best[0]:
            best = (score, name)
    return best[1] if best else None


_NEEDS = st.fixed_dictionaries(
    {}, optional={"cpu": st.integers(1, 9), "memory": st.integers(1, 9), "nvidia.com/gpu": st.integers(1, 4)}
)
_NODES = st.lists(
    st.fixed_dictionaries(
        {"pods": st.integers(0, 6)},
        optional={"cpu": st.integers(0, 20), "memory": st.integers(0, 20), "nvidia.com/gpu": st.integers(0, 8)},
    ),
    max_size=6,
)


@st.composite
def _gangs(draw: st.DrawFn) -> list[Gang]:
    gangs = []
    known = draw(st.lists(_NEEDS, min_size=1, max_size=3))  # few, so that gangs share shapes
    for number in range(draw(st.integers(0, 6))):
        shapes = draw(st.lists(st.sampled_from(known), min_size=1, max_size=2))
        count = draw(st.integers(1, 6))
        pods = tuple(
            PodRequest(
                Key("default", f"g{number}-{index}"),
                f"u{number}-{index}",
                PodShape(tuple(sorted({**shapes[index % len(shapes)], "pods": 1}.items()))),
            )
            for index in range(count)
        )
        bound = draw(st.integers(0, 2))
        gangs.append(Gang(f"g{number}", pods, min_member=draw(st.integers(0, count)) + bound, bound=bound))
    return gangs


def _cluster(nodes: list[dict[str, int]]) -> ClusterArrays:
    builders = []
    for number, has in enumerate(nodes):
        builder = a_node(f"n{number}")
        for resource, amount in has.items():
            builder = builder.resource(resource, f"{amount}m" if resource == "cpu" else amount)
        builders.append(builder)
    return cluster_of(*builders)


@settings(max_examples=300)
@given(gangs=_gangs(), nodes=_NODES)
def test_placing_agrees_with_the_reference(gangs: list[Gang], nodes: list[dict[str, int]]) -> None:
    verdicts = place(gangs, _cluster(nodes))
    expected = reference(gangs, {f"n{number}": has for number, has in enumerate(nodes)})
    found = [
        {pod.key: node for pod, node in verdict.assigned} if isinstance(verdict, Placed) else None
        for verdict in verdicts
    ]
    assert found == expected


@settings(max_examples=300)
@given(gangs=_gangs(), nodes=_NODES)
def test_no_node_over_capacity_and_no_gang_in_part(gangs: list[Gang], nodes: list[dict[str, int]]) -> None:
    used: dict[str, Counter[str]] = {f"n{number}": Counter() for number in range(len(nodes))}
    for wanted, verdict in zip(gangs, place(gangs, _cluster(nodes)), strict=True):
        assert verdict.gang is wanted
        if isinstance(verdict, Unplaceable):
            assert verdict.placeable < max(1, wanted.missing)
            assert verdict.refusal.message
            continue
        placed = [pod for pod, _ in verdict.assigned]
        assert len(placed) >= max(1, wanted.missing)
        assert len(set(placed)) == len(placed)
        assert {*placed, *(pod for pod, _ in verdict.left_out)} == set(wanted.pods)
        for pod, node in verdict.assigned:
            used[node].update(dict(pod.shape.needs))
    for number, has in enumerate(nodes):
        for resource, amount in used[f"n{number}"].items():
            assert amount <= has[resource]
