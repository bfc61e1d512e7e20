from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.placement.plugin_views import deferred, names, node, pod, pod_view

from muster.api import core
from muster.api.errors import FieldError
from muster.cluster.state import ClusterState
from muster.placement.framework import Code, Hint
from muster.placement.plugins.node_affinity import REASON, REASON_ENFORCED, NodeAffinity, NodeAffinityArgs


def args(**affinity: Any) -> NodeAffinityArgs:
    found = NodeAffinityArgs.from_document({"addedAffinity": affinity})
    assert isinstance(found, NodeAffinityArgs), found
    return found


def wants(key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def requiring(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}


def preferring(*weighted: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    listed = [{"weight": weight, "preference": term} for weight, term in weighted]
    return {"preferredDuringSchedulingIgnoredDuringExecution": listed}


def test_a_node_is_rejected_for_the_schedulers_affinity_before_the_pods() -> None:
    cluster = ClusterState.of(
        [node("a", {"pool": "x", "zone": "1"}), node("b", {"zone": "1"}), node("c", {"pool": "x"})]
    )
    plugin = NodeAffinity(args(**requiring(wants("pool", "x"))))
    wanted = pod(cluster, nodeSelector={"zone": "1"})
    rejections = plugin.filter(wanted, cluster, None)
    assert [(r.reason, names(cluster, r.nodes), r.is_unresolvable) for r in rejections] == [
        (REASON_ENFORCED, {"b"}, True),
        (REASON, {"c"}, True),
    ]


def test_a_pod_that_asks_for_nothing_is_skipped() -> None:
    cluster = ClusterState.of([node("a")])
    plugin = NodeAffinity()
    assert plugin.pre_filter(pod(cluster), cluster).status.code is Code.SKIP
    assert plugin.pre_score(pod(cluster), cluster, cluster.mask(True)).status.code is Code.SKIP
    assert not plugin.filter(pod(cluster), cluster, None)


def test_a_deferred_resize_is_not_judged_where_resizes_preempt() -> None:
    cluster = ClusterState.of([node("a")])
    wanted = pod(cluster, status=deferred(), nodeSelector={"zone": "1"})
    assert NodeAffinity(resize_preemption=True).pre_filter(wanted, cluster).status.code is Code.SKIP
    assert not NodeAffinity(resize_preemption=True).filter(wanted, cluster, None)
    assert NodeAffinity().filter(wanted, cluster, None)


def _named(*values: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "In", "values": list(values)}


@pytest.mark.parametrize(
    ("terms", "wanted"),
    [
        ([{"matchFields": [_named("a")]}, {"matchFields": [_named("b")]}], {"a", "b"}),
        ([{"matchFields": [_named("a")]}, wants("zone", "1")], None),
        ([{"matchFields": [_named("nobody")]}], set()),
    ],
)
def test_terms_that_all_name_nodes_narrow_the_search(terms: list[dict[str, Any]], wanted: set[str] | None) -> None:
    cluster = ClusterState.of([node("a"), node("b"), node("c")])
    found = NodeAffinity().pre_filter(pod(cluster, affinity={"nodeAffinity": requiring(*terms)}), cluster)
    assert found.status.is_success
    assert (None if found.nodes is None else names(cluster, found.nodes)) == wanted


def test_terms_that_contradict_themselves_end_the_search() -> None:
    cluster = ClusterState.of([node("a")])
    term = {"matchFields": [_named("a"), _named("b")]}
    found = NodeAffinity().pre_filter(pod(cluster, affinity={"nodeAffinity": requiring(term)}), cluster)
    assert (found.status.code, found.status.reasons) == (Code.UNRESOLVABLE, ("pod affinity terms conflict",))


@given(
    st.lists(st.sampled_from(("", "x", "y")), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(1, 100), st.sampled_from(("x", "y", "z"))), max_size=4),
)
def test_scores_are_the_weights_of_the_preferences_met(zones: list[str], wanted: list[tuple[int, str]]) -> None:
    cluster = ClusterState.of([node(f"n{i}", {"zone": zone} if zone else {}) for i, zone in enumerate(zones)])
    plugin = NodeAffinity(args(**preferring((7, wants("zone", "x")))))
    listed = preferring(*((weight, wants("zone", zone)) for weight, zone in wanted))
    subject = pod(cluster, affinity={"nodeAffinity": listed})
    raw = [(7 if zone == "x" else 0) + sum(w for w, value in wanted if value == zone) for zone in zones]
    prepared = plugin.pre_score(subject, cluster, cluster.mask(True))
    scores = plugin.score(subject, cluster, prepared.state)
    assert scores.tolist() == plugin.score(subject, cluster, None).tolist() == raw
    top = max(raw)
    normal = plugin.normalize(scores, np.arange(len(zones)), prepared.state).tolist()
    assert normal == ([100 * score // top for score in raw] if top else raw)


def test_a_node_that_comes_to_match_wakes_the_pod() -> None:
    cluster = ClusterState()
    [wake] = NodeAffinity().wakes()
    assert wake.hint is not None
    subject = pod(cluster, nodeSelector={"zone": "1"})
    right, wrong = node("a", {"zone": "1"}), node("a", {"zone": "2"})
    assert wake.hint(subject, None, right, cluster) is Hint.QUEUE
    assert wake.hint(subject, wrong, right, cluster) is Hint.QUEUE
    assert wake.hint(subject, right, right, cluster) is Hint.SKIP
    assert wake.hint(subject, right, wrong, cluster) is Hint.SKIP
    with pytest.raises(TypeError, match="wanted a Node, found a Pod"):
        wake.hint(subject, None, pod_view(), cluster)
    with pytest.raises(TypeError, match="found none"):
        wake.hint(subject, right, None, cluster)


@pytest.mark.parametrize(
    ("document", "paths"),
    [
        ({"addedAfinity": {}}, ["addedAfinity"]),
        ({"addedAffinity": []}, ["addedAffinity"]),
        ({"addedAffinity": {"required": {}, "nope": 1}}, ["addedAffinity.required", "addedAffinity.nope"]),
        (
            {"addedAffinity": requiring({"matchExpressions": [{"key": "a b", "operator": "Is"}]})},
            [
                "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key",
                "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]"
                ".operator",
            ],
        ),
        (
            {"x": 1, "addedAffinity": preferring((0, wants("zone", "1")))},
            ["x", "addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight"],
        ),
        (
            {"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": "5"}]}},
            ["addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight"],
        ),
    ],
)
def test_wrong_args_name_their_fields(document: dict[str, Any], paths: list[str]) -> None:
    errors = NodeAffinityArgs.from_document(document)
    assert isinstance(errors, list)
    assert all(isinstance(error, FieldError) for error in errors)
    assert [error.path for error in errors] == paths


def test_args_may_be_empty_or_null() -> None:
    assert NodeAffinityArgs.from_document({}) == NodeAffinityArgs()
    assert NodeAffinityArgs.from_document({"kind": "NodeAffinityArgs", "addedAffinity": None}) == NodeAffinityArgs()
    assert NodeAffinityArgs.from_document({"addedAffinity": {}}) == NodeAffinityArgs(core.NodeAffinity())
