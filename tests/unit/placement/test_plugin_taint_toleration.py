from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.placement.plugin_views import deferred, names, node, pod, pod_view

from muster.api import core
from muster.cluster.state import ClusterState
from muster.placement.framework import Code, Hint
from muster.placement.plugins.taint_toleration import REASON, TaintToleration, tolerated_nodes, tolerates

EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
TAINTS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(("gpu", "sla")),
            "value": st.sampled_from(("", "x", "5", "12")),
            "effect": st.sampled_from(EFFECTS),
        },
        optional={"timeAdded": st.sampled_from(("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"))},
    ),
    max_size=3,
)
TOLERATIONS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "key": st.sampled_from(("gpu", "sla")),
            "operator": st.sampled_from(("Equal", "Exists", "Gt", "Lt", "Near")),
            "value": st.sampled_from(("x", "5", "9")),
            "effect": st.sampled_from(EFFECTS),
        },
    ),
    max_size=3,
)


def tolerated(toleration: dict[str, str], taint: dict[str, str], compares: bool) -> bool:
    if (
        toleration.get("effect", taint["effect"]) != taint["effect"]
        or toleration.get("key", taint["key"]) != taint["key"]
    ):
        return False
    left, right = taint["value"], toleration.get("value", "")
    match toleration.get("operator", "Equal"):
        case "Exists":
            return True
        case "Equal":
            return left == right
        case "Gt" | "Lt" as operator if compares and left.isdigit() and right.isdigit():
            return int(left) > int(right) if operator == "Gt" else int(left) < int(right)
    return False


@given(st.lists(TAINTS, min_size=1, max_size=5), TOLERATIONS, st.booleans())
def test_columns_and_plain_rules_agree(
    tainted: list[list[dict[str, str]]], tolerations: list[dict[str, str]], compares: bool
) -> None:
    cluster = ClusterState.of([node(f"n{number}", taints=taints) for number, taints in enumerate(tainted)])
    plugin = TaintToleration(comparison_operators=compares)
    subject = pod(cluster, tolerations=tolerations)
    bad = [[t for t in taints if not any(tolerated(one, t, compares) for one in tolerations)] for taints in tainted]
    blocked = {f"n{i}" for i, taints in enumerate(bad) if any(t["effect"] != "PreferNoSchedule" for t in taints)}
    rejections = plugin.filter(subject, cluster, None)
    assert {name for rejection in rejections for name in names(cluster, rejection.nodes)} == blocked
    assert all(rejection.reason == REASON and rejection.is_unresolvable for rejection in rejections)

    unwelcome = [sum(t["effect"] == "PreferNoSchedule" for t in taints) for taints in bad]
    prepared = plugin.pre_score(subject, cluster, cluster.mask(True))
    scores = plugin.score(subject, cluster, prepared.state)
    assert scores.tolist() == plugin.score(subject, cluster, None).tolist() == unwelcome
    most = max(unwelcome)
    normal = plugin.normalize(scores, np.arange(len(tainted)), prepared.state).tolist()
    assert normal == [100 - 100 * count // most if most else 100 for count in unwelcome]


def test_nodes_tainted_alike_are_one_class_whenever_it_was() -> None:
    first = {"key": "down", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    cluster = ClusterState.of(
        [node("a", taints=[first]), node("b", taints=[{**first, "timeAdded": "2026-02-02T00:00:00Z"}])]
    )
    assert len(cluster.taint_sets) == 1


def test_only_the_effects_asked_for_count_and_gone_nodes_do_not() -> None:
    taint = {"key": "k", "effect": "NoExecute"}
    cluster = ClusterState.of([node("a", taints=[taint]), node("b"), node("c")])
    cluster.node_removed("c")
    assert names(cluster, tolerated_nodes(pod(cluster), cluster, {"NoSchedule"})) == {"a", "b"}
    assert tolerated_nodes(pod(cluster), cluster).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("toleration", "taint", "holds"),
    [
        ("9", "10", True),
        ("10", "9", False),
        ("09", "10", False),
        ("-5", "-4", True),
        ("", "1", False),
        ("1", "high", False),
    ],
)
def test_numbers_are_compared_as_written_in_decimal(toleration: str, taint: str, holds: bool) -> None:
    greater = core.Toleration(key="k", operator="Gt", value=toleration)
    assert tolerates(greater, core.Taint(key="k", value=taint), compares=True) is holds
    assert not tolerates(greater, core.Taint(key="k", value=taint))


def test_numbers_beyond_64_bits_match_nothing() -> None:
    less = core.Toleration(key="k", operator="Lt", value=str(2**63))
    assert not tolerates(less, core.Taint(key="k", value="1"), compares=True)


def test_a_deferred_resize_is_not_judged_where_resizes_preempt() -> None:
    cluster = ClusterState.of([node("a", taints=[{"key": "k", "effect": "NoSchedule"}])])
    subject = pod(cluster, status=deferred())
    plugin = TaintToleration(resize_preemption=True)
    assert plugin.pre_filter(subject, cluster).status.code is Code.SKIP
    assert not plugin.filter(subject, cluster, None)
    assert plugin.filter(pod(cluster), cluster, None)


def test_what_wakes_a_pod() -> None:
    cluster = ClusterState()
    on_node, on_pod = (wake.hint for wake in TaintToleration().wakes())
    assert on_node is not None
    assert on_pod is not None
    tainted, clean = node("a", taints=[{"key": "k", "effect": "NoSchedule"}]), node("a")
    cases: list[tuple[Any, Any, Hint]] = [
        (None, clean, Hint.QUEUE),
        (None, tainted, Hint.SKIP),
        (tainted, clean, Hint.QUEUE),
        (clean, clean, Hint.SKIP),
        (clean, tainted, Hint.SKIP),
    ]
    for old, new, wanted in cases:
        assert on_node(pod(cluster), old, new, cluster) is wanted
    assert on_pod(pod(cluster), pod_view(), pod_view(), cluster) is Hint.QUEUE
    with pytest.raises(TypeError):
        on_pod(pod(cluster), None, clean, cluster)
