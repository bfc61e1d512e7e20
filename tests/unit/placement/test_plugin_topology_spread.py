"""PodTopologySpread against a reference that counts node by node and pod by pod."""

from dataclasses import dataclass, field
from math import floor, log
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api import core
from muster.api.objects import Key
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import Action, Code, Hint, Rejection
from muster.placement.plugins.topology_spread import PodTopologySpread, PodTopologySpreadArgs
from muster.placement.plugins.topology_spread.constraints import HOSTNAME, ZONE
from muster.placement.plugins.topology_spread.filtering import NO_LABEL, TOO_UNEVEN, HardState
from muster.placement.plugins.topology_spread.scoring import SoftState

RACK = "rack"
KEYS = (ZONE, RACK, HOSTNAME)
PLUGIN = PodTopologySpread()
TAINT = {"key": "busy", "value": "", "effect": "NoSchedule"}


@dataclass
class World:
    """A cluster as plain data, for the reference."""

    nodes: list[dict[str, Any]] = field(default_factory=list)
    pods: list[dict[str, Any]] = field(default_factory=list)

    def cluster(self) -> ClusterState:
        state = ClusterState.of([msgspec.convert(node, core.Node) for node in self.nodes])
        for pod in self.pods:
            state.assign(state.shapes.info(msgspec.convert(pod, core.Pod)), pod["spec"]["nodeName"])
        return state


def a_node(name: str, labels: dict[str, str], *, tainted: bool = False) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": [TAINT] if tainted else []}}


def a_pod(name: str, labels: dict[str, str], node: str = "", **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": more.pop("namespace", "ns"), "uid": name, "labels": labels}
    if more.pop("is_terminating", False):
        meta["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    return {"metadata": meta, "spec": {"nodeName": node, **more}}


def constraint(key: str, action: str, **more: Any) -> dict[str, Any]:
    selector = more.pop("selector", {"matchLabels": {"app": "web"}})
    found = {"topologyKey": key, "whenUnsatisfiable": action, "maxSkew": 1, **more}
    return found if selector is None else {**found, "labelSelector": selector}


def info(cluster: ClusterState, pod: dict[str, Any]) -> PodInfo:
    return cluster.shapes.info(msgspec.convert(pod, core.Pod))


# The reference


def selects(found: dict[str, Any], subject: dict[str, Any], labels: dict[str, str]) -> bool:
    selector = found.get("labelSelector")
    if selector is None:
        return False
    own = subject["metadata"]["labels"]
    wanted = [*(selector.get("matchLabels") or {}).items()]
    wanted += [(key, own[key]) for key in found.get("matchLabelKeys", ()) if key in own]
    return all(labels.get(key) == value for key, value in wanted)


def is_empty(found: dict[str, Any], subject: dict[str, Any]) -> bool:
    keys = [key for key in found.get("matchLabelKeys", ()) if key in subject["metadata"]["labels"]]
    selector = found.get("labelSelector")
    return selector is not None and not selector.get("matchLabels") and not keys


def pods_on(world: World, node: dict[str, Any], found: dict[str, Any], subject: dict[str, Any]) -> int:
    if is_empty(found, subject):
        return 0
    return sum(
        pod["spec"]["nodeName"] == node["metadata"]["name"]
        and pod["metadata"]["namespace"] == subject["metadata"]["namespace"]
        and "deletionTimestamp" not in pod["metadata"]
        and selects(found, subject, pod["metadata"]["labels"])
        for pod in world.pods
    )


def is_counted(node: dict[str, Any], found: dict[str, Any], subject: dict[str, Any]) -> bool:
    wanted = subject["spec"].get("nodeSelector") or {}
    if found.get("nodeAffinityPolicy", "Honor") == "Honor" and not wanted.items() <= node["metadata"]["labels"].items():
        return False
    tolerates = bool(subject["spec"].get("tolerations"))
    return not (found.get("nodeTaintsPolicy") == "Honor" and node["spec"]["taints"] and not tolerates)


def has_all(node: dict[str, Any], constraints: list[dict[str, Any]]) -> bool:
    return all(found["topologyKey"] in node["metadata"]["labels"] for found in constraints)


def reference_filter(world: World, subject: dict[str, Any]) -> list[str]:
    """By node: the reason it is ruled out for, or nothing."""
    constraints = [c for c in subject["spec"]["topologySpreadConstraints"] if c["whenUnsatisfiable"] == "DoNotSchedule"]
    tables: list[dict[str, int]] = []
    for found in constraints:
        table: dict[str, int] = {}
        for node in world.nodes:
            if has_all(node, constraints) and is_counted(node, found, subject):
                value = node["metadata"]["labels"][found["topologyKey"]]
                table[value] = table.get(value, 0) + pods_on(world, node, found, subject)
        tables.append(table)
    return [_verdict(node, constraints, tables, subject) for node in world.nodes]


def _verdict(node: dict[str, Any], constraints: list[Any], tables: list[dict[str, int]], subject: Any) -> str:
    for found, table in zip(constraints, tables, strict=True):
        value = node["metadata"]["labels"].get(found["topologyKey"])
        if value is None:
            return NO_LABEL
        least = 0 if len(table) < found.get("minDomains", 1) else min(table.values())
        own = selects(found, subject, subject["metadata"]["labels"])
        if table.get(value, 0) + own - least > found["maxSkew"]:
            return TOO_UNEVEN
    return ""


def reference_scores(world: World, subject: dict[str, Any], feasible: list[bool], *, needs_all: bool) -> list[int]:
    """Normalised scores of the feasible nodes."""
    constraints = [
        c for c in subject["spec"]["topologySpreadConstraints"] if c["whenUnsatisfiable"] == "ScheduleAnyway"
    ]
    nodes = [node for node, is_feasible in zip(world.nodes, feasible, strict=True) if is_feasible]
    ignored = [needs_all and not has_all(node, constraints) for node in nodes]
    rated = [node for node, is_ignored in zip(nodes, ignored, strict=True) if not is_ignored]
    raw = dict.fromkeys((node["metadata"]["name"] for node in rated), 0.0)
    for found in constraints:
        key = found["topologyKey"]
        table = {node["metadata"]["labels"].get(key, ""): 0 for node in rated}
        weight = log((len(rated) if key == HOSTNAME else len(table)) + 2)
        for node in world.nodes:
            value = node["metadata"]["labels"].get(key, "")
            counts = is_counted(node, found, subject) and (not needs_all or has_all(node, constraints))
            if counts and value in table:
                table[value] += pods_on(world, node, found, subject)
        for node in rated:
            if key in node["metadata"]["labels"]:
                value = node["metadata"]["labels"][key]
                number = pods_on(world, node, found, subject) if key == HOSTNAME else table[value]
                raw[node["metadata"]["name"]] += number * weight + (found["maxSkew"] - 1)
    scores = {name: floor(score + 0.5) for name, score in raw.items()}
    top, low = max(scores.values(), default=0), min(scores.values(), default=0)
    return [
        0 if is_ignored else 100 if top == 0 else 100 * (top + low - scores[node["metadata"]["name"]]) // top
        for node, is_ignored in zip(nodes, ignored, strict=True)
    ]


# Worlds

# Weighted towards the common, so that counts grow and constraints bite.
values = st.sampled_from(["a", "a", "b", "b", "c", "", None])
applications = st.sampled_from(["web", "web", "web", "db", None])
revisions = st.sampled_from(["1", "1", "2", None])


@st.composite
def pod_labels(draw: st.DrawFn) -> dict[str, str]:
    drawn = {"app": draw(applications), "rev": draw(revisions)}
    return {key: value for key, value in drawn.items() if value is not None}


@st.composite
def worlds(draw: st.DrawFn) -> World:
    world = World()
    for index in range(draw(st.integers(1, 6))):
        team = draw(st.sampled_from(["x", "x", None]))
        host = draw(st.sampled_from([f"host-{index}"] * 5 + [None]))
        drawn = {ZONE: draw(values), RACK: draw(values), "team": team, HOSTNAME: host}
        labels = {key: value for key, value in drawn.items() if value is not None}
        world.nodes.append(a_node(f"n{index}", labels, tainted=draw(st.integers(0, 2)) == 0))
    for index in range(draw(st.integers(0, 16))):
        world.pods.append(draw(placed_pods(f"p{index}", len(world.nodes))))
    return world


@st.composite
def placed_pods(draw: st.DrawFn, name: str, nodes: int) -> dict[str, Any]:
    return a_pod(
        name,
        draw(pod_labels()),
        f"n{draw(st.integers(0, nodes - 1))}",
        namespace=draw(st.sampled_from(["ns", "ns", "ns", "other"])),
        is_terminating=draw(st.integers(0, 5)) == 0,
    )


@st.composite
def subjects(draw: st.DrawFn, action: str) -> dict[str, Any]:
    """A pod with constraints of the action, and perhaps some of the other."""
    web, first = {"matchLabels": {"app": "web"}}, {"matchLabels": {"rev": "1"}}
    selectors = st.sampled_from([web, web, web, first, first, {}, None])
    constraints = []
    for key in draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3)):
        found = constraint(key, action, selector=draw(selectors), maxSkew=draw(st.integers(1, 3)))
        if action == "DoNotSchedule":
            found["minDomains"] = draw(st.integers(1, 4))
        if found.get("labelSelector") is not None:
            found["matchLabelKeys"] = draw(st.lists(st.sampled_from(["rev", "app"]), max_size=1))
        found["nodeAffinityPolicy"] = draw(st.sampled_from(["Honor", "Ignore"]))
        found["nodeTaintsPolicy"] = draw(st.sampled_from(["Honor", "Ignore"]))
        constraints.append(found)
    other = "ScheduleAnyway" if action == "DoNotSchedule" else "DoNotSchedule"
    if draw(st.booleans()):
        constraints.insert(draw(st.integers(0, len(constraints))), constraint("elsewhere", other))
    more: dict[str, Any] = {"topologySpreadConstraints": constraints}
    if draw(st.booleans()):
        more["nodeSelector"] = {"team": "x"}
    if draw(st.booleans()):
        more["tolerations"] = [{"operator": "Exists"}]
    return a_pod("subject", draw(pod_labels()), **more)


def verdicts(rejections: list[Rejection] | tuple[Rejection, ...], width: int) -> list[str]:
    found = [""] * width
    for rejection in rejections:
        for slot in np.flatnonzero(rejection.nodes):
            assert not found[slot], "a node has one reason"
            found[slot] = rejection.reason
    return found


def filtered(cluster: ClusterState, pod: PodInfo) -> list[str]:
    prepared = PLUGIN.pre_filter(pod, cluster)
    assert prepared.status.is_success
    return verdicts(list(PLUGIN.filter(pod, cluster, prepared.state)), cluster.width)


@given(worlds(), subjects("DoNotSchedule"))
@settings(max_examples=50)
def test_filter_says_of_all_nodes_what_the_reference_says_of_each(world: World, subject: dict[str, Any]) -> None:
    cluster = world.cluster()
    assert filtered(cluster, info(cluster, subject)) == reference_filter(world, subject)


@given(worlds(), subjects("DoNotSchedule"), st.data())
def test_following_pods_equals_counting_afresh(world: World, subject: dict[str, Any], data: st.DataObject) -> None:
    cluster = world.cluster()
    pod = info(cluster, subject)
    state = PLUGIN.pre_filter(pod, cluster).state
    assert isinstance(state, HardState)
    before = state.matches(cluster)
    moves = data.draw(st.lists(st.integers(0, 99), max_size=6))
    came: list[tuple[PodInfo, str]] = []
    for number, move in enumerate(moves):
        if came and move % 3 == 0:
            other, node = came.pop(move % len(came))
            cluster.release(other.uid)
            PLUGIN.pod_removed(state, pod, other, cluster.slots[node], cluster)
        else:
            document = data.draw(placed_pods(f"new{number}", len(world.nodes)))
            other, node = info(cluster, document), document["spec"]["nodeName"]
            cluster.assign(other, node)
            PLUGIN.pod_added(state, pod, other, cluster.slots[node], cluster)
            came.append((other, node))
    afresh = PLUGIN.pre_filter(pod, cluster).state
    assert isinstance(afresh, HardState)
    assert state.matches(cluster) == afresh.matches(cluster)
    assert state.critical_paths(cluster) == afresh.critical_paths(cluster)
    assert verdicts(state.rejections(), cluster.width) == verdicts(afresh.rejections(), cluster.width)
    for other, node in came:
        PLUGIN.pod_removed(state, pod, other, cluster.slots[node], cluster)
    assert state.matches(cluster) == before


def scored(plugin: PodTopologySpread, cluster: ClusterState, pod: PodInfo, feasible: list[bool]) -> list[int]:
    mask = np.array(feasible, dtype=np.bool_)
    prepared = plugin.pre_score(pod, cluster, mask)
    assert prepared.status.is_success
    slots = np.flatnonzero(mask)
    scores = plugin.score(pod, cluster, prepared.state)[slots]
    normalized: list[int] = plugin.normalize(scores, slots, prepared.state).tolist()
    return normalized


@given(worlds(), subjects("ScheduleAnyway"), st.data())
def test_scores_are_those_of_the_reference(world: World, subject: dict[str, Any], data: st.DataObject) -> None:
    cluster = world.cluster()
    feasible = data.draw(st.lists(st.booleans(), min_size=len(world.nodes), max_size=len(world.nodes)))
    found = scored(PLUGIN, cluster, info(cluster, subject), feasible)
    assert found == reference_scores(world, subject, feasible, needs_all=True)


@given(worlds(), st.data())
@settings(max_examples=60)
def test_built_in_defaults_score_nodes_that_lack_a_label_too(world: World, data: st.DataObject) -> None:
    cluster = world.cluster()
    cluster.pod_selectors.service_changed(Key("ns", "s"), {"app": "web"})
    feasible = data.draw(st.lists(st.booleans(), min_size=len(world.nodes), max_size=len(world.nodes)))
    found = scored(PLUGIN, cluster, info(cluster, a_pod("subject", {"app": "web"})), feasible)
    spelled = [constraint(HOSTNAME, "ScheduleAnyway", maxSkew=3), constraint(ZONE, "ScheduleAnyway", maxSkew=5)]
    subject = a_pod("subject", {"app": "web"}, topologySpreadConstraints=spelled)
    assert found == reference_scores(world, subject, feasible, needs_all=False)


# What the worlds above do not say by themselves, or say too rarely


def zones(*counts: int) -> World:
    """A node in each zone with so many pods of the application."""
    world = World()
    for index, count in enumerate(counts):
        world.nodes.append(a_node(f"n{index}", {ZONE: f"z{index}"}))
        world.pods += [a_pod(f"p{index}-{number}", {"app": "web"}, f"n{index}") for number in range(count)]
    return world


def test_a_node_without_the_label_cannot_be_helped_by_evictions() -> None:
    world = zones(1, 0)
    world.nodes.append(a_node("bare", {}))
    cluster = world.cluster()
    pod = info(cluster, a_pod("p", {"app": "web"}, topologySpreadConstraints=[constraint(ZONE, "DoNotSchedule")]))
    lacks, uneven = PLUGIN.filter(pod, cluster, PLUGIN.pre_filter(pod, cluster).state)
    assert (lacks.reason, lacks.is_unresolvable, lacks.nodes.tolist()) == (NO_LABEL, True, [False, False, True])
    assert (uneven.reason, uneven.is_unresolvable, uneven.nodes.tolist()) == (TOO_UNEVEN, False, [True, False, False])


def test_a_node_that_is_gone_is_no_domain() -> None:
    world = zones(1, 1, 0)
    cluster = world.cluster()
    pod = info(cluster, a_pod("p", {"app": "web"}, topologySpreadConstraints=[constraint(ZONE, "DoNotSchedule")]))
    assert filtered(cluster, pod)[:2] == [TOO_UNEVEN, TOO_UNEVEN]
    cluster.node_removed("n2")
    assert filtered(cluster, pod)[:2] == ["", ""]


@pytest.mark.parametrize("spec", [{}, {"topologySpreadConstraints": [constraint(ZONE, "ScheduleAnyway")]}])
def test_a_pod_without_hard_constraints_is_not_filtered(spec: dict[str, Any]) -> None:
    cluster = zones(1).cluster()
    assert PLUGIN.pre_filter(info(cluster, a_pod("p", {}, **spec)), cluster).status.code is Code.SKIP


def test_a_pod_without_soft_constraints_that_nothing_selects_is_not_scored() -> None:
    cluster = zones(1).cluster()
    assert PLUGIN.pre_score(info(cluster, a_pod("p", {})), cluster, cluster.mask(True)).status.code is Code.SKIP
    hard = info(cluster, a_pod("p", {}, topologySpreadConstraints=[constraint(ZONE, "DoNotSchedule")]))
    assert PLUGIN.pre_score(hard, cluster, cluster.mask(True)).status.code is Code.SKIP


def test_listed_defaults_are_hard_where_they_say_so_and_take_the_selector_of_a_service() -> None:
    listed = [{"topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}]
    args = PodTopologySpreadArgs.from_document({"defaultingType": "List", "defaultConstraints": listed})
    assert isinstance(args, PodTopologySpreadArgs)
    plugin = PodTopologySpread(args)
    cluster = zones(1, 0).cluster()
    pod = info(cluster, a_pod("p", {"app": "web"}))
    assert plugin.pre_filter(pod, cluster).status.code is Code.SKIP
    cluster.pod_selectors.service_changed(Key("ns", "s"), {"app": "web"})
    state = plugin.pre_filter(pod, cluster).state
    assert verdicts(list(plugin.filter(pod, cluster, state)), 2) == [TOO_UNEVEN, ""]


def test_what_constraints_say_of_nodes_and_keys_is_not_read_where_that_is_turned_off() -> None:
    world = zones(1, 0)
    world.nodes[1]["spec"]["taints"] = [TAINT]
    cluster = world.cluster()
    written = constraint(ZONE, "DoNotSchedule", nodeTaintsPolicy="Honor", matchLabelKeys=["rev"])
    pod = info(cluster, a_pod("p", {"app": "web", "rev": "2"}, topologySpreadConstraints=[written]))
    old = PodTopologySpread(node_policies=False, match_label_keys=False)
    state = old.pre_filter(pod, cluster).state
    assert isinstance(state, HardState)
    assert state.matches(cluster) == [{"z0": 1, "z1": 0}]
    now = PLUGIN.pre_filter(pod, cluster).state
    assert isinstance(now, HardState)
    assert now.matches(cluster) == [{"z0": 0}]


def test_weights_grow_with_the_number_of_domains() -> None:
    cluster = zones(1, 1, 0).cluster()
    spelled = [constraint(ZONE, "ScheduleAnyway"), constraint(HOSTNAME, "ScheduleAnyway")]
    pod = info(cluster, a_pod("p", {}, topologySpreadConstraints=spelled[:1]))
    state = PLUGIN.pre_score(pod, cluster, np.array([True, True, False])).state
    assert isinstance(state, SoftState)
    assert state.weights == [log(4)]
    assert state.pod_counts(cluster) == [{"z0": 1, "z1": 1}]
    both = info(cluster, a_pod("p", {}, topologySpreadConstraints=spelled))
    state = PLUGIN.pre_score(both, cluster, cluster.mask(True)).state
    assert isinstance(state, SoftState)
    assert state.ignored is not None
    assert state.ignored.all()
    assert PLUGIN.normalize(state.scores(), np.arange(3), state).tolist() == [0, 0, 0]


def test_pods_on_a_node_that_lacks_one_of_the_labels_do_not_count_for_the_others() -> None:
    world = zones(0, 1)
    world.nodes.append(a_node("bare", {ZONE: "z0"}))
    world.pods += [a_pod(f"q{number}", {"app": "web"}, "bare") for number in range(5)]
    for node in world.nodes[:2]:
        node["metadata"]["labels"][RACK] = "r"
    cluster = world.cluster()
    for action, wanted in (("ScheduleAnyway", [100, 0, 0]), ("DoNotSchedule", ["", TOO_UNEVEN, NO_LABEL])):
        spelled = [constraint(ZONE, action), constraint(RACK, action, selector=None)]
        pod = info(cluster, a_pod("p", {"app": "web"}, topologySpreadConstraints=spelled))
        found = scored(PLUGIN, cluster, pod, [True] * 3) if action == "ScheduleAnyway" else filtered(cluster, pod)
        assert found == wanted


@pytest.mark.parametrize("feasible", [[True, True, False], [True, True, True], [False, False, True]])
def test_built_in_defaults_hold_a_missing_label_and_an_empty_one_for_the_same(feasible: list[bool]) -> None:
    world = World([a_node("n0", {ZONE: "z"}), a_node("n1", {ZONE: ""}), a_node("n2", {"team": ""})])
    world.pods = [a_pod(f"p{number}", {"app": "web"}, f"n{number % 3}") for number in range(5, 10)]
    cluster = world.cluster()
    cluster.pod_selectors.service_changed(Key("ns", "s"), {"app": "web"})
    pod = info(cluster, a_pod("subject", {"app": "web"}))
    spelled = [constraint(HOSTNAME, "ScheduleAnyway", maxSkew=3), constraint(ZONE, "ScheduleAnyway", maxSkew=5)]
    subject = a_pod("subject", {"app": "web"}, topologySpreadConstraints=spelled)
    assert scored(PLUGIN, cluster, pod, feasible) == reference_scores(world, subject, feasible, needs_all=False)
    state = PLUGIN.pre_score(pod, cluster, np.array(feasible)).state
    assert isinstance(state, SoftState)
    assert state.pod_counts(cluster)[1][""] == 3


def test_wakes_are_for_pods_on_nodes_the_pod_itself_and_nodes() -> None:
    found = {wake.resource: wake.actions for wake in PLUGIN.wakes()}
    assert found == {
        "Pod": {Action.ADD, Action.UPDATE_POD_LABEL, Action.DELETE},
        "UnscheduledPod": {Action.UPDATE_POD_TOLERATION, Action.UPDATE_POD_LABEL},
        "Node": {Action.ADD, Action.DELETE, Action.UPDATE_NODE_LABEL, Action.UPDATE_NODE_TAINT},
    }


def test_a_hint_refuses_an_object_that_it_cannot_read() -> None:
    cluster = zones(1).cluster()
    pod = info(cluster, a_pod("p", {}, topologySpreadConstraints=[constraint(ZONE, "DoNotSchedule")]))
    for wake in PLUGIN.wakes():
        wrong = core.Pod() if wake.resource == "Node" else core.Node()
        assert wake.hint is not None
        with pytest.raises(TypeError):
            wake.hint(pod, None, wrong, cluster)


@pytest.mark.parametrize(
    ("namespace", "node", "hint"), [("ns", "n0", Hint.QUEUE), ("other", "n0", Hint.SKIP), ("ns", "", Hint.SKIP)]
)
def test_only_pods_of_the_namespace_that_have_a_node_wake(namespace: str, node: str, hint: Hint) -> None:
    cluster = zones(1).cluster()
    pod = info(cluster, a_pod("p", {}, topologySpreadConstraints=[constraint(ZONE, "DoNotSchedule")]))
    gone = msgspec.convert(a_pod("q", {"app": "web"}, node, namespace=namespace), core.Pod)
    assert PLUGIN.after_assigned_pod(pod, gone, None, cluster) is hint
