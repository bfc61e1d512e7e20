"""The index of affinity terms: kept answers must equal those worked out from the pods themselves."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api import core
from muster.api.selectors import LabelSelector
from muster.cluster import affinity
from muster.cluster.affinity import AffinityIndex, TermKind
from muster.cluster.affinity_terms import NO_TERMS, parse, selection, selector_error, terms_of
from muster.cluster.domains import Domains
from muster.cluster.namespaces import Namespaces
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def a_term(value: str = "a", key: str = "zone", **more: Any) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": value}}, "topologyKey": key, **more}


def a_node(name: str, **labels: str) -> core.Node:
    return msgspec.convert({"metadata": {"name": name, "labels": labels}}, core.Node)


def a_pod(cluster: ClusterState, name: str, affinity: dict[str, Any] | None = None, **labels: str) -> PodInfo:
    document = {
        "metadata": {"name": name, "namespace": "ns", "labels": labels},
        "spec": {"affinity": affinity} if affinity else {},
    }
    return cluster.shapes.info(msgspec.convert(document, core.Pod))


def hates(value: str, key: str = "zone") -> dict[str, Any]:
    return {"podAntiAffinity": {REQUIRED: [a_term(value, key)]}}


def an_affinity(document: dict[str, Any]) -> core.Affinity:
    return msgspec.convert(document, core.Affinity)


# Terms


def test_a_term_that_names_no_namespace_means_the_pods_own() -> None:
    terms = parse(an_affinity({"podAffinity": {REQUIRED: [a_term()]}}), "ns")
    assert terms.affinity[0].namespaces == {"ns"}
    assert terms.affinity[0].namespace_selector.nothing


def test_a_namespace_selector_takes_the_place_of_the_pods_own_namespace() -> None:
    listed = [a_term(namespaceSelector={}), a_term(namespaces=["x"])]
    terms = parse(an_affinity({"podAffinity": {REQUIRED: listed}}), "ns")
    assert [term.namespaces for term in terms.affinity] == [frozenset(), {"x"}]
    assert terms.affinity[0].selects("anywhere", {"app": "a"}, {})
    assert not terms.affinity[1].selects("ns", {"app": "a"}, {})


def test_anti_affinity_weighs_negative() -> None:
    preference = {"podAffinityTerm": a_term(), "weight": 7}
    terms = parse(an_affinity({"podAntiAffinity": {PREFERRED: [preference]}}), "ns")
    assert [weighted.weight for weighted in terms.preferred] == [-7]
    assert terms.has_preferences


def test_terms_are_read_once_for_a_shape_and_namespace() -> None:
    cluster = ClusterState()
    one, other = a_pod(cluster, "p", hates("a")), a_pod(cluster, "q", hates("a"))
    assert terms_of(one) is terms_of(other)
    assert terms_of(a_pod(cluster, "r")) is NO_TERMS


def test_a_list_with_a_bad_term_counts_as_empty_and_the_others_stay() -> None:
    bad = {"labelSelector": {"matchExpressions": [{"key": "k", "operator": "Near"}]}, "topologyKey": "zone"}
    terms = parse(an_affinity({"podAffinity": {REQUIRED: [a_term(), bad]}, **hates("a")}), "ns")
    assert terms.error == 'requiredAffinityTerms: "Near" is not a valid label selector operator'
    assert (len(terms.affinity), len(terms.anti_affinity)) == (0, 1)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ({"key": "k", "operator": "In"}, "values: Invalid value: []: for 'in', 'notin' operators, values set can't be"),
        ({"key": "k", "operator": "Exists", "values": ["v"]}, 'values: Invalid value: ["v"]: values set must be empty'),
        ({"key": "a b", "operator": "Exists"}, 'key: Invalid value: "a b": name part must consist of'),
        ({"key": "k", "operator": "In", "values": ["-"]}, 'values[0][k]: Invalid value: "-": a valid label must be'),
        ({"key": "k", "operator": "In", "values": ["v" * 64]}, "must be no more than 63 bytes"),
        ({"key": "k", "operator": "In", "values": ["-", "+"]}, "[values[0][k]: Invalid value"),
    ],
)
def test_what_is_wrong_with_a_selector(expression: dict[str, Any], message: str) -> None:
    view = parse(
        an_affinity(
            {"podAffinity": {REQUIRED: [{"labelSelector": {"matchExpressions": [expression]}, "topologyKey": "zone"}]}}
        ),
        "ns",
    )
    assert message in (view.error or "")


def test_a_good_selector_has_no_error() -> None:
    view = an_affinity({"podAffinity": {REQUIRED: [a_term()]}}).pod_affinity
    assert view is not None
    assert selector_error(view.required_during_scheduling_ignored_during_execution[0].label_selector) is None
    assert selector_error(None) is None


# Namespaces


def test_selected_namespaces_follow_changes() -> None:
    namespaces = Namespaces()
    namespaces["a"] = {"team": "red"}
    term = a_term(namespaceSelector={"matchLabels": {"team": "red"}})
    terms = parse(an_affinity({"podAffinity": {REQUIRED: [term]}}), "ns").affinity
    before, version = selection(terms, namespaces), namespaces.version
    assert before("a", {"app": "a"})
    namespaces["b"] = {"team": "red"}
    assert selection(terms, namespaces)("b", {"app": "a"})
    assert not before("b", {"app": "a"})
    assert namespaces.version > version
    del namespaces["a"]
    assert selection(terms, namespaces).parts[0][0] == frozenset({"b"})
    assert namespaces.labels_of("a") == {}


def test_setting_the_same_labels_again_is_no_change() -> None:
    namespaces = Namespaces()
    namespaces["a"] = {"team": "red"}
    version = namespaces.version
    namespaces["a"] = {"team": "red"}
    assert namespaces.version == version
    assert namespaces.selected(LabelSelector()) == {"a"}


# Domains


@given(st.lists(st.sampled_from([None, "z1", "z2", "z3"]), max_size=12), st.data())
def test_sums_by_domain(zones: list[str | None], data: st.DataObject) -> None:
    cluster = ClusterState()
    for number, zone in enumerate(zones):
        cluster.node_changed(a_node(f"n{number}", **({"zone": zone} if zone else {"other": "z1"})))
    amounts = data.draw(st.lists(st.integers(0, 5), min_size=len(zones), max_size=len(zones)))
    domains = Domains(cluster.labelled("zone"), cluster.width)
    wanted: Counter[str] = Counter()
    for zone, amount in zip(zones, amounts, strict=True):
        if zone is not None:
            wanted[zone] += amount
    by_slot = cluster.used[0, : cluster.width] * 0 + amounts
    sparse = {slot: amount for slot, amount in enumerate(amounts) if amount}
    for sums in (domains.sums(by_slot), domains.sparse_sums(sparse)):
        assert len(sums) == domains.count + 1
        found = [int(sums[number]) for number in domains.of]
        assert found == [wanted[zone] if zone is not None else 0 for zone in zones]
    assert domains.outside.tolist() == [zone is None for zone in zones]


# The index


def test_terms_are_counted_where_pods_with_them_are() -> None:
    cluster = ClusterState.of([a_node("n0"), a_node("n1")])
    index = cluster.affinity
    assert not index.has_terms
    cluster.assign(a_pod(cluster, "p", hates("a")), "n0")
    cluster.assign(a_pod(cluster, "q", hates("a")), "n1")
    cluster.assign(a_pod(cluster, "plain", app="a"), "n1")
    (found,) = index
    assert (found.kind, found.counts) == (TermKind.ANTI_AFFINITY, {0: 1, 1: 1})
    assert index.has_terms
    cluster.release("ns/p")
    cluster.release("ns/q")
    assert list(index) == []
    assert not index.has_terms


def test_pods_with_the_same_labels_in_other_namespaces_are_told_apart() -> None:
    cluster = ClusterState.of([a_node("n0")])
    cluster.assign(a_pod(cluster, "p", hates("a")), "n0")
    near = a_pod(cluster, "q", app="a")
    document = {"metadata": {"name": "q", "namespace": "far", "labels": {"app": "a"}}}
    far = cluster.shapes.info(msgspec.convert(document, core.Pod))
    assert [len(cluster.affinity.towards(pod, {})) for pod in (near, far, near)] == [1, 0, 1]


def test_the_version_tells_of_terms_that_get_their_first_pod() -> None:
    cluster = ClusterState.of([a_node("n0")])
    version = cluster.affinity.version
    cluster.assign(a_pod(cluster, "plain", app="a"), "n0")
    assert cluster.affinity.version == version
    cluster.assign(a_pod(cluster, "p", hates("a")), "n0")
    first = cluster.affinity.version
    assert first > version
    cluster.assign(a_pod(cluster, "q", hates("a")), "n0")
    assert cluster.affinity.version == first


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "remove", "relabel"]),
        st.sampled_from("abc"),  # what the pod hates
        st.sampled_from(["zone", "host"]),
        st.integers(0, 3),
        st.sampled_from("abc"),  # the pod's own label
    ),
    max_size=40,
)


@settings(max_examples=50, deadline=None)
@given(steps=steps, are_limits_tiny=st.booleans())
def test_kept_terms_and_sums_equal_those_of_the_pods(
    steps: list[tuple[str, str, str, int, str]], are_limits_tiny: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if are_limits_tiny:  # every way of forgetting, within a few steps
            for name, limit in (("_REMEMBERED_CELLS", 3), ("_REMEMBERED_PODS", 1), ("_FEW_EMPTY", 0)):
                patch.setattr(affinity, name, limit)
        cluster = ClusterState.of([a_node(f"n{n}", zone=f"z{n % 2}", host=f"n{n}") for n in range(4)])
        index, placed = cluster.affinity, {}
        for number, (what, hated, key, slot, own) in enumerate(steps):
            match what:
                case "add":
                    info = a_pod(cluster, f"p{number}", hates(hated, key))
                    placed[info.uid] = (hated, key, slot)
                    cluster.assign(info, f"n{slot}")
                case "remove" if placed:
                    uid = sorted(placed)[slot % len(placed)]
                    del placed[uid]
                    cluster.release(uid)
                case "relabel":
                    cluster.node_changed(a_node(f"n{slot}", zone=f"z{number % 3}", host=f"n{slot}"))
            check(cluster, index, placed, own)


def check(cluster: ClusterState, index: AffinityIndex, placed: dict[str, tuple[str, str, int]], own: str) -> None:
    wanted: Counter[tuple[str, int]] = Counter()
    for hated, key, slot in placed.values():
        if hated == own:
            for other in range(cluster.width):
                labels = [(cluster.nodes[at] or core.Node()).metadata.labels or {} for at in (slot, other)]
                wanted[key, other] += labels[0][key] == labels[1][key]
    found: Counter[tuple[str, int]] = Counter()
    for term in index.towards(a_pod(cluster, "asking", app=own), {}):
        key = term.term.topology_key
        domains = index.domains(key, cluster.nodes_version, cluster.labelled(key), cluster.width)
        sums = index.sums(term, domains)
        for slot in range(cluster.width):
            found[key, slot] += int(sums[domains.of[slot]])
    assert +found == +wanted
    assert index.has_terms == bool(placed)
