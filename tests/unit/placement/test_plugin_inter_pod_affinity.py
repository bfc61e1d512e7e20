"""InterPodAffinity over columns against Kubernetes' rules written plainly, and what following pods must keep true."""

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.placement.affinity_cases import (
    ANTI_AFFINITY,
    AnyPod,
    World,
    nodes,
    normalized,
    pods,
    raw_scores,
    reason,
)

from muster.api import core
from muster.placement.framework import Action, Code, Hint, Prepared
from muster.placement.plugins.inter_pod_affinity import FilterState, InterPodAffinity, InterPodAffinityArgs, hints
from muster.placement.plugins.inter_pod_affinity.scoring import spread_out

PLUGIN = InterPodAffinity()
placements = st.lists(st.tuples(pods, st.integers(0, 4)), max_size=8)


def a_term(key: str = "zone", **wanted: str) -> dict[str, object]:
    selector = {"matchLabels": wanted}
    return {"labelSelector": selector, "namespaces": [], "namespaceSelector": None, "topologyKey": key}


def a_pod(near: list[object] | None = None, away: list[object] | None = None, **labels: str) -> AnyPod:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    sides = {"podAffinity": {required: near or []}, "podAntiAffinity": {required: away or []}}
    return AnyPod("n1", dict(labels), sides)


def a_world(nodes: list[dict[str, str]], placements: list[tuple[AnyPod, int]]) -> World:
    world = World(nodes)
    for pod, node in placements:
        world.place(pod, node % len(nodes))
    return world


def reasons(prepared: Prepared, world: World, pod: AnyPod) -> list[str | None]:
    assert prepared.status.code in (Code.SUCCESS, Code.SKIP)
    if prepared.status.code is Code.SKIP:
        return [None] * len(world.nodes)
    rejections = PLUGIN.filter(world.info(pod), world.cluster, prepared.state)
    found: list[str | None] = []
    for slot in range(len(world.nodes)):
        named = [rejection.reason for rejection in rejections if rejection.nodes[slot]]
        assert len(named) <= 1, "a node is told the first reason alone"
        found.append(named[0] if named else None)
    return found


@settings(max_examples=100, deadline=None)
@given(nodes=nodes, placements=placements, pod=pods)
def test_the_filter_says_what_the_rules_say(
    nodes: list[dict[str, str]], placements: list[tuple[AnyPod, int]], pod: AnyPod
) -> None:
    world = a_world(nodes, placements)
    prepared = PLUGIN.pre_filter(world.info(pod), world.cluster)
    assert reasons(prepared, world, pod) == [reason(pod, node, world) for node in nodes]


def everything(state: object) -> list[dict[str, list[int]]]:
    """Counts of a state, without keys that were looked at and have none."""
    assert isinstance(state, FilterState)
    return [
        {key: found.counts.tolist() for key, found in counts.items() if found.total}
        for counts in (state.near, state.hated, state.hating)
    ]


@settings(max_examples=75, deadline=None)
@given(nodes=nodes, before=placements, after=placements, pod=pods)
@example(
    nodes=[{"zone": "z1"}, {"zone": "z2"}],
    before=[],
    after=[(a_pod(app="a"), 0)],
    pod=a_pod(near=[a_term(app="a")], app="a"),
)
@example(  # two terms with one key: each counts
    nodes=[{"zone": "z1"}, {"zone": "z2"}],
    before=[(a_pod(app="a"), 0)],
    after=[(a_pod(app="a"), 1)],
    pod=a_pod(near=[a_term(app="a"), a_term(app="a")]),
)
def test_following_pods_equals_starting_afresh_and_going_back_restores(
    nodes: list[dict[str, str]],
    before: list[tuple[AnyPod, int]],
    after: list[tuple[AnyPod, int]],
    pod: AnyPod,
) -> None:
    world = a_world(nodes, before)
    info = world.info(pod)
    state = PLUGIN.pre_filter(info, world.cluster).state
    if state is None:  # skipped: nothing to follow
        return
    first, first_reasons = everything(state), reasons(Prepared(state=state), world, pod)
    came = []
    for other, number in after:
        placed = world.place(other, number % len(nodes))
        came.append((placed, number % len(nodes)))
        PLUGIN.pod_added(state, info, *came[-1], world.cluster)
        assert reasons(Prepared(state=state), world, pod) == [reason(pod, node, world) for node in nodes]
    fresh = PLUGIN.pre_filter(world.info(pod), world.cluster).state
    if fresh is not None:
        assert everything(state) == everything(fresh)
    for placed, slot in reversed(came):
        PLUGIN.pod_removed(state, info, placed, slot, world.cluster)
    assert everything(state) == first
    assert reasons(Prepared(state=state), world, pod) == first_reasons


@settings(max_examples=100, deadline=None)
@given(nodes=nodes, placements=placements, pod=pods, hard_weight=st.integers(0, 5))
def test_scores_are_what_the_rules_say(
    nodes: list[dict[str, str]], placements: list[tuple[AnyPod, int]], pod: AnyPod, hard_weight: int
) -> None:
    world = a_world(nodes, placements)
    plugin = InterPodAffinity(InterPodAffinityArgs(hard_weight))
    info = world.info(pod)
    for _ in range(2):  # the second time from what was remembered
        prepared = plugin.pre_score(info, world.cluster, world.cluster.mask(True))
        wanted = raw_scores(pod, world, hard_weight)
        if wanted is None:
            assert prepared.status.code is Code.SKIP
        else:
            scores = plugin.score(info, world.cluster, prepared.state)
            assert scores.tolist() == wanted
            assert plugin.normalize(scores, np.arange(len(nodes)), None).tolist() == normalized(wanted)
        world.place(pod, 0)


@given(st.lists(st.integers(-(10**6), 10**6), max_size=20))
def test_spreading_out_equals_the_plain_formula(scores: list[int]) -> None:
    found = spread_out(np.array(scores, dtype=np.int64)).tolist()
    assert found == (normalized(scores) if scores else [])


def test_the_first_pod_of_a_group_goes_anywhere_and_the_second_to_the_first() -> None:
    world = a_world([{"zone": "z1"}, {"zone": "z2"}, {}], [])
    pod = a_pod(near=[a_term(app="a")], app="a")
    assert [reason(pod, node, world) is None for node in world.nodes] == [True, True, False]
    info = world.info(pod)
    state = PLUGIN.pre_filter(info, world.cluster).state
    assert reasons(Prepared(state=state), world, pod)[:2] == [None, None]
    PLUGIN.pod_added(state, info, world.place(pod, 1), 1, world.cluster)
    (rejection,) = PLUGIN.filter(info, world.cluster, state)
    assert rejection.is_unresolvable
    assert rejection.nodes.tolist() == [True, False, True]


def test_masks_are_kept_while_no_domain_becomes_empty_or_filled() -> None:
    world = a_world([{"zone": "z1"}, {"zone": "z2"}], [(a_pod(app="a"), 0)])
    pod = a_pod(away=[a_term(app="a")])
    info = world.info(pod)
    state = PLUGIN.pre_filter(info, world.cluster).state
    first = PLUGIN.filter(info, world.cluster, state)
    PLUGIN.pod_added(state, info, world.place(a_pod(app="a"), 0), 0, world.cluster)
    assert PLUGIN.filter(info, world.cluster, state) is first
    PLUGIN.pod_added(state, info, world.place(a_pod(app="a"), 1), 1, world.cluster)
    (rejection,) = PLUGIN.filter(info, world.cluster, state)
    assert (rejection.reason, rejection.nodes.tolist()) == (ANTI_AFFINITY, [True, True])
    assert not rejection.is_unresolvable
    with pytest.raises(ValueError, match="read-only"):
        rejection.nodes[0] = False


def test_preferences_of_pods_on_nodes_can_be_ignored_for_pods_without_their_own() -> None:
    preference = {"podAffinityTerm": a_term(app="a"), "weight": 5}
    liking = AnyPod("n1", {}, {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}})
    world = a_world([{"zone": "z1"}, {"zone": "z2"}], [(liking, 0)])
    plain, args = world.info(a_pod(app="a")), InterPodAffinityArgs(ignore_preferred_terms_of_existing_pods=True)
    assert PLUGIN.pre_score(plain, world.cluster, world.cluster.mask(True)).status.is_success
    found = InterPodAffinity(args).pre_score(plain, world.cluster, world.cluster.mask(True))
    assert found.status.code is Code.SKIP


def test_a_bad_selector_is_said_in_kubernetes_words() -> None:
    world = a_world([{"zone": "z1"}], [])
    info = world.info(a_pod(near=[a_term(app="{{.bad.}}")]))
    status = PLUGIN.pre_filter(info, world.cluster).status
    assert status.code is Code.UNRESOLVABLE
    assert status.reasons[0].startswith(
        'parsing pod: requiredAffinityTerms: values[0][app]: Invalid value: "{{.bad.}}"'
    )
    scored = PLUGIN.pre_score(info, world.cluster, world.cluster.mask(True)).status
    assert scored.code is Code.ERROR
    assert scored.reasons[0].startswith("failed to parse pod: requiredAffinityTerms: ")


def test_a_pod_that_waits_for_a_resize_is_left_alone_where_asked() -> None:
    world = a_world([{}], [])
    document = {
        "metadata": {"name": "p", "namespace": "n1"},
        "status": {"conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]},
    }
    waiting = world.cluster.shapes.info(msgspec.convert(document, core.Pod))
    plugin = InterPodAffinity(resize_preemption=True)
    assert plugin.pre_filter(waiting, world.cluster).status.code is Code.SKIP
    assert list(plugin.filter(waiting, world.cluster, None)) == []


def test_hints_tell_of_changes_that_the_plugin_registers() -> None:
    assert [(wake.resource, set(wake.actions)) for wake in PLUGIN.wakes()] == [
        ("Pod", {Action.ADD, Action.UPDATE_POD_LABEL, Action.DELETE}),
        ("UnscheduledPod", {Action.UPDATE_POD_LABEL}),
        ("Node", {Action.ADD, Action.UPDATE_NODE_LABEL}),
    ]


def a_view(namespace: str = "n1", node: str = "node0", **labels: str) -> core.Pod:
    document = {
        "metadata": {"name": "other", "namespace": namespace, "uid": "other", "labels": labels},
        "spec": {"nodeName": node},
    }
    return msgspec.convert(document, core.Pod)


def test_a_hint_minds_labels_of_namespaces() -> None:
    world = a_world([{"zone": "z1"}], [])
    term = {**a_term(app="a"), "namespaceSelector": {"matchLabels": {"team": "blue"}}}
    waiting = world.info(a_pod(near=[term]))
    assert hints.after_pod_change(waiting, None, a_view("n2", app="a"), world.cluster) is Hint.QUEUE
    assert hints.after_pod_change(waiting, None, a_view("n1", app="a"), world.cluster) is Hint.SKIP


def test_a_pod_that_stops_being_hated_wakes() -> None:
    world = a_world([{"zone": "z1"}], [])
    waiting = world.info(a_pod(away=[a_term(app="a"), a_term(tier="x")]))
    both, one, none = a_view(app="a", tier="x"), a_view(app="a"), a_view()
    assert hints.after_pod_change(waiting, both, one, world.cluster) is Hint.SKIP
    assert hints.after_pod_change(waiting, one, none, world.cluster) is Hint.QUEUE
    assert hints.after_pod_change(waiting, one, None, world.cluster) is Hint.QUEUE
    assert hints.after_pod_change(waiting, none, None, world.cluster) is Hint.SKIP


def test_a_hint_refuses_objects_that_it_cannot_read() -> None:
    world = a_world([{"zone": "z1"}], [])
    with pytest.raises(TypeError):
        hints.after_pod_change(world.info(a_pod()), None, core.Node(), world.cluster)
    with pytest.raises(TypeError):
        hints.after_node_change(world.info(a_pod()), None, core.Pod(), world.cluster)


def test_args_have_kubernetes_defaults() -> None:
    assert InterPodAffinityArgs.from_document({}) == InterPodAffinityArgs(1, False)
    document = {"kind": "InterPodAffinityArgs", "hardPodAffinityWeight": 0, "ignorePreferredTermsOfExistingPods": True}
    assert InterPodAffinityArgs.from_document(document) == InterPodAffinityArgs(0, True)


@pytest.mark.parametrize(
    ("document", "path", "message"),
    [
        ({"hardPodAffinityWeight": 101}, "hardPodAffinityWeight", "not in valid range [0, 100]"),
        ({"hardPodAffinityWeight": -1}, "hardPodAffinityWeight", "not in valid range [0, 100]"),
        ({"hardPodAffinityWeight": "5"}, "hardPodAffinityWeight", "whole number"),
        ({"hardPodAffinityWeight": True}, "hardPodAffinityWeight", "whole number"),
        (
            {"ignorePreferredTermsOfExistingPods": "yes"},
            "ignorePreferredTermsOfExistingPods",
            "true or false",
        ),
        ({"hardpodaffinityweight": 1}, "hardpodaffinityweight", "unknown field"),
    ],
)
def test_wrong_args_are_named(document: dict[str, object], path: str, message: str) -> None:
    (error,) = InterPodAffinityArgs.from_document(document)  # type: ignore[misc]
    assert error.path == path
    assert message in error.message
