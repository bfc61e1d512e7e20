"""Selectors over columns against the same rules in plain Python, node by node."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.placement.plugin_views import names, node, pod

from muster.api import core
from muster.api.selectors import Operator, Requirement
from muster.cluster.state import ClusterState
from muster.placement.plugins.node_selection import compile_term, labelled_so, required

KEYS = ("zone", "gpu", "rank")
VALUES = ("a", "b", "", "5", "07", "-3", "12", "9223372036854775807")
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))


def expressions() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "key": st.sampled_from((*KEYS, "absent", "bad key!")),
            "operator": st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near")),
            "values": st.lists(st.sampled_from((*VALUES, "not a value!", "9223372036854775808")), max_size=2),
        }
    )


def name_fields() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "key": st.sampled_from(("metadata.name", "metadata.namespace")),
            "operator": st.sampled_from(("In", "NotIn", "Exists")),
            "values": st.lists(st.sampled_from(("n0", "n1", "gone", "")), max_size=2),
        }
    )


TERMS = st.lists(
    st.fixed_dictionaries(
        {"matchExpressions": st.lists(expressions(), max_size=2), "matchFields": st.lists(name_fields(), max_size=1)}
    ),
    max_size=3,
)


def holds(expression: dict[str, Any], labels: dict[str, str]) -> bool | None:
    """None: the expression is not valid."""
    key, operator, values = expression["key"], expression["operator"], expression["values"]
    if key == "bad key!" or any(value in ("not a value!", "-3") for value in values):
        return None
    found = labels.get(key)
    match operator, len(values):
        case "In", 1 | 2:
            return found in values
        case "NotIn", 1 | 2:
            return found not in values
        case "Exists", 0:
            return found is not None
        case "DoesNotExist", 0:
            return found is None
        case "Gt" | "Lt", 1:
            if not values[0].isdigit() or int(values[0]) >= 2**63:
                return None
            if found is None or not found.lstrip("-").isdigit():
                return False
            return int(found) > int(values[0]) if operator == "Gt" else int(found) < int(values[0])
        case _:
            return None


def names_so(field: dict[str, Any], name: str) -> bool | None:
    if field["operator"] == "Exists" or len(field["values"]) != 1:
        return None
    value = name if field["key"] == "metadata.name" else ""
    return (value == field["values"][0]) is (field["operator"] == "In")


def reference(terms: list[dict[str, Any]], labels: dict[str, str], name: str) -> bool:
    verdicts = [
        [holds(expression, labels) for expression in term["matchExpressions"]]
        + [names_so(field, name) for field in term["matchFields"]]
        for term in terms
    ]
    return any(verdict and all(verdict) for verdict in verdicts)


@given(
    st.lists(LABELS, max_size=6), TERMS, st.booleans(), st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
)
def test_columns_and_plain_rules_agree(
    labels: list[dict[str, str]], terms: list[dict[str, Any]], has_affinity: bool, selector: dict[str, str]
) -> None:
    cluster = ClusterState.of([node(f"n{number}", found) for number, found in enumerate(labels)])
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    spec: dict[str, Any] = {"affinity": affinity} if has_affinity else {}
    wanted = pod(cluster, nodeSelector=selector, **spec)
    expected = {
        f"n{number}"
        for number, found in enumerate(labels)
        if selector.items() <= found.items() and (not has_affinity or reference(terms, found, f"n{number}"))
    }
    assert names(cluster, required(wanted).nodes(cluster)) == expected
    for slot, name in enumerate(cluster.names):
        one = cluster.nodes[slot]
        assert one is not None
        assert required(wanted).matches(one) is (name in expected)


def test_a_node_that_is_gone_matches_nothing_and_its_slot_is_used_again() -> None:
    cluster = ClusterState.of([node("a", {"zone": "x"}), node("b")])
    anything_else = pod(cluster, affinity=_required({"key": "zone", "operator": "NotIn", "values": ["x"]}))
    cluster.node_removed("b")
    assert not required(anything_else).nodes(cluster).any()
    cluster.node_changed(node("c", {"zone": "y"}))
    assert names(cluster, required(anything_else).nodes(cluster)) == {"c"}


def test_a_shape_is_compiled_once() -> None:
    cluster = ClusterState.of([node("a")])
    first, second = pod(cluster, "one", nodeSelector={"x": "y"}), pod(cluster, "two", nodeSelector={"x": "y"})
    assert required(first) is required(second)


def test_an_empty_term_and_an_invalid_one_match_nothing() -> None:
    assert compile_term(core.NodeSelectorTerm()) is None
    bad = core.NodeSelectorRequirement(key="zone", operator="In", values=())
    assert compile_term(core.NodeSelectorTerm(match_expressions=(bad,))) is None


def test_a_label_that_no_node_has() -> None:
    cluster = ClusterState.of([node("a")])
    for operator, holds_everywhere in (("In", False), ("NotIn", True), ("Exists", False), ("DoesNotExist", True)):
        requirement = Requirement("none", Operator(operator), frozenset({"v"}))
        assert labelled_so(requirement, cluster).tolist() == [holds_everywhere]


def _required(expression: dict[str, Any]) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
