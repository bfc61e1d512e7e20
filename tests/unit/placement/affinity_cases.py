"""Random clusters with affinity, and Kubernetes' rules for them written plainly: one node and one pod at a time."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import strategies as st

from muster.api import core
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState

NAMESPACES = {"n1": {"team": "red"}, "n2": {"team": "blue"}}  # "n3" has pods, but is not known
AFFINITY, ANTI_AFFINITY, EXISTING = (
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't satisfy existing pods anti-affinity rules",
)

labels = st.fixed_dictionaries({}, optional={"app": st.sampled_from("ab"), "tier": st.sampled_from("xy")})
selectors = st.one_of(
    st.none(),
    st.just({}),
    st.builds(lambda value: {"matchLabels": {"app": value}}, st.sampled_from("ab")),
    st.builds(
        lambda key, operator: {"matchExpressions": [{"key": key, "operator": operator, "values": ["a", "x"]}]},
        st.sampled_from(["app", "tier"]),
        st.sampled_from(["In", "NotIn"]),
    ),
    st.builds(
        lambda key, operator: {"matchExpressions": [{"key": key, "operator": operator}]},
        st.sampled_from(["app", "tier"]),
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)
namespace_selectors = st.sampled_from(
    [
        None,
        None,
        {},
        {"matchLabels": {"team": "red"}},
        {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
    ]
)
terms = st.builds(
    lambda selector, namespaces, namespace_selector, key: {
        "labelSelector": selector,
        "namespaces": namespaces,
        "namespaceSelector": namespace_selector,
        "topologyKey": key,
    },
    selectors,
    st.lists(st.sampled_from(["n1", "n2", "n3"]), max_size=2),
    namespace_selectors,
    st.sampled_from(["zone", "zone", "host", "rack"]),
)
preferences = st.builds(lambda term, weight: {"podAffinityTerm": term, "weight": weight}, terms, st.integers(1, 9))
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
sides = st.one_of(
    st.none(),
    st.builds(
        lambda required, preferred: {REQUIRED: required, PREFERRED: preferred},
        st.lists(terms, max_size=2),
        st.lists(preferences, max_size=2),
    ),
)


@dataclass
class AnyPod:
    namespace: str
    labels: dict[str, str]
    affinity: dict[str, Any]

    def terms(self, side: str, how: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (self.affinity.get(side) or {}).get(how, [])
        return found


pods = st.builds(
    lambda namespace, labels, near, away: AnyPod(namespace, labels, {"podAffinity": near, "podAntiAffinity": away}),
    st.sampled_from(["n1", "n2", "n3"]),
    labels,
    sides,
    sides,
)
nodes = st.lists(
    st.fixed_dictionaries({}, optional={"zone": st.sampled_from(["z1", "z2"]), "host": st.sampled_from("pqrs")}),
    min_size=1,
    max_size=5,
)


@dataclass
class World:
    """Nodes by their labels, and pods by the number of their node; the same as a ClusterState."""

    nodes: list[dict[str, str]]
    placed: list[tuple[AnyPod, int]] = field(default_factory=list)
    cluster: ClusterState = field(default_factory=ClusterState)
    _made: int = 0

    def __post_init__(self) -> None:
        for number, found in enumerate(self.nodes):
            document = {"metadata": {"name": f"node{number}", "labels": found}}
            self.cluster.node_changed(msgspec.convert(document, core.Node))
        self.cluster.namespaces.update(NAMESPACES)

    def info(self, pod: AnyPod) -> PodInfo:
        self._made += 1
        document = {
            "metadata": {"name": f"p{self._made}", "namespace": pod.namespace, "labels": pod.labels},
            "spec": {"affinity": without_nones(pod.affinity), "containers": []},
        }
        return self.cluster.shapes.info(msgspec.convert(document, core.Pod))

    def place(self, pod: AnyPod, node: int) -> PodInfo:
        info = self.info(pod)
        self.placed.append((pod, node))
        self.cluster.assign(info, f"node{node}")
        return info


def without_nones(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nones(item) for key, item in value.items() if item is not None}
    return [without_nones(item) for item in value] if isinstance(value, list) else value


# The rules


def matches(selector: dict[str, Any] | None, found: dict[str, str]) -> bool:
    if selector is None:
        return False
    if any(found.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for expression in selector.get("matchExpressions", []):
        value = found.get(expression["key"])
        verdict = {
            "In": value in expression.get("values", []),
            "NotIn": value not in expression.get("values", []),
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[expression["operator"]]
        if not verdict:
            return False
    return True


def own_term_selects(term: dict[str, Any], owner: AnyPod, other: AnyPod) -> bool:
    """A term of the pod to be placed: its namespace selector means namespaces that exist, or all if it is empty."""
    selector = term["namespaceSelector"]
    if selector == {}:
        return matches(term["labelSelector"], other.labels)
    names = set(term["namespaces"])
    if selector is not None:
        names |= {name for name, found in NAMESPACES.items() if matches(selector, found)}
    elif not names:
        names = {owner.namespace}
    return other.namespace in names and matches(term["labelSelector"], other.labels)


def their_term_selects(term: dict[str, Any], owner: AnyPod, pod: AnyPod) -> bool:
    """A term of a pod on a node: its namespace selector is held against the labels of the other's namespace."""
    names = set(term["namespaces"])
    if term["namespaceSelector"] is None and not names:
        names = {owner.namespace}
    is_named = pod.namespace in names or matches(term["namespaceSelector"], NAMESPACES.get(pod.namespace, {}))
    return is_named and matches(term["labelSelector"], pod.labels)


def reason(pod: AnyPod, node: dict[str, str], world: World) -> str | None:
    """Why the node does not take the pod, None where it does."""
    near, hated, hating = counts(pod, world)
    wanted = pod.terms("podAffinity", REQUIRED)
    if wanted:
        if any(term["topologyKey"] not in node for term in wanted):
            return AFFINITY
        is_near = all(near[term["topologyKey"], node[term["topologyKey"]]] > 0 for term in wanted)
        is_first = not near and all(own_term_selects(term, pod, pod) for term in wanted)
        if not is_near and not is_first:
            return AFFINITY
    if any(hated[pair] > 0 for pair in node.items()):
        return ANTI_AFFINITY
    return EXISTING if any(hating[pair] > 0 for pair in node.items()) else None


Pairs = Counter[tuple[str, str]]


def counts(pod: AnyPod, world: World) -> tuple[Pairs, Pairs, Pairs]:
    near, hated, hating = Pairs(), Pairs(), Pairs()
    wanted = pod.terms("podAffinity", REQUIRED)
    for other, number in world.placed:
        node = world.nodes[number]
        if wanted and all(own_term_selects(term, pod, other) for term in wanted):
            count(near, node, wanted)
        count(
            hated,
            node,
            [term for term in pod.terms("podAntiAffinity", REQUIRED) if own_term_selects(term, pod, other)],
        )
        count(
            hating,
            node,
            [term for term in other.terms("podAntiAffinity", REQUIRED) if their_term_selects(term, other, pod)],
        )
    return near, hated, hating


def count(pairs: Pairs, node: dict[str, str], found: Sequence[dict[str, Any]]) -> None:
    for term in found:
        if term["topologyKey"] in node:
            pairs[term["topologyKey"], node[term["topologyKey"]]] += 1


def raw_scores(pod: AnyPod, world: World, hard_weight: int) -> list[int] | None:
    """By node, None where no preference holds for any pod."""
    weights: Pairs = Counter()
    for other, number in world.placed:
        node = world.nodes[number]
        for side, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
            for preference in pod.terms(side, PREFERRED):
                if own_term_selects(preference["podAffinityTerm"], pod, other):
                    weigh(weights, node, preference["podAffinityTerm"], sign * preference["weight"])
            for preference in other.terms(side, PREFERRED):
                if their_term_selects(preference["podAffinityTerm"], other, pod):
                    weigh(weights, node, preference["podAffinityTerm"], sign * preference["weight"])
        for term in other.terms("podAffinity", REQUIRED):
            if hard_weight and their_term_selects(term, other, pod):
                weigh(weights, node, term, hard_weight)
    if not weights:
        return None
    return [sum(weights[pair] for pair in node.items()) for node in world.nodes]


def weigh(weights: Pairs, node: dict[str, str], term: dict[str, Any], weight: int) -> None:
    if term["topologyKey"] in node:
        weights[term["topologyKey"], node[term["topologyKey"]]] += weight


def normalized(scores: list[int]) -> list[int]:
    least, greatest = min(scores), max(scores)
    if least == greatest:
        return [0] * len(scores)
    return [int(100.0 * ((score - least) / (greatest - least))) for score in scores]
