from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.placement.plugin_views import names, node, pod

from muster.api import raw
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement import extending
from muster.placement.extending import (
    Answered,
    Ask,
    Consultant,
    ExtenderConfig,
    Failed,
    Filtered,
    FromColumns,
    ManagedResource,
    Reply,
    Verb,
)
from muster.placement.framework import Code
from muster.placement.in_tree import Shared, default_profile
from muster.placement.judging import Judgement
from muster.placement.plugins.default_preemption import DefaultPreemption
from muster.placement.preempting import Budgets, Candidate, NoPreemption, Preemption

T = TypeVar("T")
VERBS = {Verb.FILTER: "filter", Verb.PRIORITIZE: "prioritize", Verb.PREEMPT: "preempt", Verb.BIND: "bind"}
CACHED = ExtenderConfig("http://cached", VERBS, weight=2, is_node_cache_capable=True)
WHOLE = ExtenderConfig("http://whole", VERBS)
LENIENT = replace(CACHED, url_prefix="http://lenient", is_ignorable=True)


@pytest.fixture
def cluster() -> ClusterState:
    state = ClusterState.of([node(name, {"host": name}) for name in ("a", "b", "c", "gone")])
    state.node_removed("gone")
    return state


def mask(cluster: ClusterState, *wanted: str) -> Any:
    found = cluster.mask()
    found[[cluster.slots[name] for name in wanted]] = True
    return found


def run(conversation: Generator[Ask, Reply, T], replies: Mapping[str, Any]) -> tuple[T, list[Ask]]:
    """Answers each question by the extender's URL: a document, or a Failed."""
    asked: list[Ask] = []
    reply: Reply | None = None
    try:
        while True:
            ask = next(conversation) if reply is None else conversation.send(reply)
            asked.append(ask)
            said = replies[ask.extender.url_prefix]
            reply = said if isinstance(said, Failed) else Answered(said)
    except StopIteration as stop:
        return stop.value, asked


# Whom to ask


@pytest.mark.parametrize(
    ("spec", "is_asked"),
    [
        ({"containers": [{"name": "c"}]}, False),
        ({"containers": [{"name": "c", "resources": {"requests": {"example.com/foo": "1"}}}]}, True),
        ({"containers": [{"name": "c", "resources": {"limits": {"example.com/foo": "1"}}}]}, True),
        (
            {"containers": [], "initContainers": [{"name": "i", "resources": {"limits": {"example.com/foo": "1"}}}]},
            True,
        ),
        ({"containers": [{"name": "c", "resources": {"requests": {"example.com/bar": "1"}}}]}, False),
    ],
)
def test_an_extender_that_manages_resources_is_asked_about_pods_that_want_them(
    cluster: ClusterState, spec: dict[str, Any], is_asked: bool
) -> None:
    subject = pod(cluster, **spec)
    extender = replace(CACHED, managed_resources=(ManagedResource("example.com/foo"),))
    assert extender.is_interested(subject) is is_asked
    assert CACHED.is_interested(subject)
    _, asked = run(
        extending.filtering([extender], subject, mask(cluster, "a"), cluster), {"http://cached": {"NodeNames": []}}
    )
    assert bool(asked) is is_asked
    assert (extending.binder_of([extender], subject) is extender) is is_asked


def test_an_extender_is_not_asked_for_what_it_has_no_verb_for(cluster: ClusterState) -> None:
    mute = replace(CACHED, verbs={})
    subject = pod(cluster)
    outcome, asked = run(extending.filtering([mute], subject, mask(cluster, "a"), cluster), {})
    assert isinstance(outcome, Filtered)
    scores, more = run(extending.prioritizing([mute], subject, mask(cluster, "a"), cluster), {})
    assert asked == more == []
    assert not scores.scores.any()
    assert extending.binder_of([mute], subject) is None


# What is said


def test_an_extender_that_knows_the_nodes_is_told_their_names_and_others_all_there_is(cluster: ClusterState) -> None:
    subject = pod(cluster, "p", containers=[{"name": "c", "image": "i"}])
    documents = FromColumns(cluster)
    short = extending.filter_request(CACHED, subject, mask(cluster, "a", "c"), cluster, documents).document
    assert (short["NodeNames"], short["Nodes"]) == (["a", "c"], None)
    whole = extending.prioritize_request(WHOLE, subject, mask(cluster, "b"), cluster, documents).document
    assert whole["NodeNames"] is None
    (item,) = whole["Nodes"]["items"]
    assert (item["kind"], item["metadata"]["name"], item["metadata"]["labels"]) == ("Node", "b", {"host": "b"})
    assert whole["Pod"]["metadata"] == {"name": "p", "namespace": "ns", "uid": "p", "labels": {}}
    assert whole["Pod"]["spec"]["containers"][0]["image"] == "i"
    raw.encode(whole)


def test_a_binding_is_told_as_kube_scheduler_tells_it(cluster: ClusterState) -> None:
    ask = extending.bind_request(WHOLE, pod(cluster, "p"), "a")
    assert (ask.verb, ask.extender.url(ask.verb)) == (Verb.BIND, "http://whole/bind")
    assert ask.document == {"PodName": "p", "PodNamespace": "ns", "PodUID": "p", "Node": "a"}


# What is made of a filter's answer


def test_nodes_are_left_failed_or_hopeless(cluster: ClusterState) -> None:
    answer = {
        "NodeNames": ["b"],
        "FailedNodes": {"a": "too hot", "c": "too hot"},
        "FailedAndUnresolvableNodes": {"c": "no switch"},
    }
    outcome = extending.apply_filter_answer(CACHED, mask(cluster, "a", "b", "c"), cluster, Answered(answer))
    assert isinstance(outcome, Filtered)
    assert names(cluster, outcome.nodes) == {"b"}
    said = {(found.reason, found.is_unresolvable): names(cluster, found.nodes) for found in outcome.rejections}
    assert said == {("too hot", False): {"a"}, ("no switch", True): {"c"}}


def test_a_node_that_is_left_out_without_a_word_is_rejected(cluster: ClusterState) -> None:
    outcome = extending.apply_filter_answer(
        WHOLE, mask(cluster, "a", "b"), cluster, Answered({"nodes": {"items": [{"metadata": {"name": "a"}}]}})
    )
    assert isinstance(outcome, Filtered)
    assert names(cluster, outcome.nodes) == {"a"}
    (rejection,) = outcome.rejections
    assert "http://whole" in rejection.reason
    assert names(cluster, rejection.nodes) == {"b"}


def test_the_case_of_field_names_does_not_matter(cluster: ClusterState) -> None:
    outcome = extending.apply_filter_answer(
        CACHED, mask(cluster, "a", "b"), cluster, Answered({"nodenames": ["a"], "failednodes": {"b": "no"}})
    )
    assert isinstance(outcome, Filtered)
    assert names(cluster, outcome.nodes) == {"a"}
    assert [found.reason for found in outcome.rejections] == ["no"]


def test_an_extender_with_a_word_for_every_node_is_heard_only_so_far() -> None:
    wide = ClusterState.of([node(f"n{number}") for number in range(500)])
    answer = {"NodeNames": [], "FailedNodes": {name: f"{name} " * 1000 for name in wide.slots}}
    outcome = extending.apply_filter_answer(CACHED, wide.mask(True), wide, Answered(answer))
    assert isinstance(outcome, Filtered)
    assert len(outcome.rejections) <= 101
    assert max(len(found.reason) for found in outcome.rejections) <= 256
    assert sum(int(found.nodes.sum()) for found in outcome.rejections) == 500


GARBAGE: dict[str, Any] = {
    "nothing": None,
    "text": "ok",
    "a list": [],
    "another object": {"hello": "world"},
    "an empty object": {},
    "names that are an object": {"NodeNames": {"a": 1}},
    "names that are numbers": {"NodeNames": [1]},
    "nodes that are a list": {"Nodes": ["a"], "NodeNames": None},
    "nodes without metadata": {"Nodes": {"items": [{"name": "a"}]}},
    "reasons that are a list": {"NodeNames": ["a"], "FailedNodes": ["b"]},
    "reasons that are numbers": {"NodeNames": ["a"], "FailedNodes": {"b": 3}},
    "an error": {"NodeNames": ["a"], "Error": "out of memory"},
    "an error that is no text": {"NodeNames": ["a"], "Error": {}},
    "a node that does not exist": {"NodeNames": ["a", "z"]},
    "a node that it was not asked about": {"NodeNames": ["a", "c"]},
    "a node that is gone": {"NodeNames": ["a", "gone"]},
    "a failed node that it was not asked about": {"NodeNames": ["a"], "FailedNodes": {"c": "no"}},
    "a hopeless node that it was not asked about": {"NodeNames": ["a"], "FailedAndUnresolvableNodes": {"z": "no"}},
}


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_and_lies_are_failures(cluster: ClusterState, what: str) -> None:
    asked = mask(cluster, "a", "b")
    outcome = extending.apply_filter_answer(CACHED, asked, cluster, Answered(GARBAGE[what]))
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("extender http://cached: ")


def test_an_extender_that_fails_costs_the_attempt_unless_it_may_be_ignored(cluster: ClusterState) -> None:
    subject, broken = pod(cluster), Failed("did not answer")
    outcome, _ = run(
        extending.filtering([CACHED, WHOLE], subject, mask(cluster, "a"), cluster), {"http://cached": broken}
    )
    assert outcome == broken
    ignored, asked = run(
        extending.filtering([LENIENT, CACHED], subject, mask(cluster, "a", "b"), cluster),
        {"http://lenient": {"NodeNames": ["z"]}, "http://cached": {"NodeNames": ["b"]}},
    )
    assert isinstance(ignored, Filtered)
    assert names(cluster, ignored.nodes) == {"b"}
    assert "'z'" in ignored.ignored[0].reason
    assert asked[1].document["NodeNames"] == ["a", "b"]


def test_each_extender_sees_what_those_before_it_left_and_none_is_asked_when_nothing_is(cluster: ClusterState) -> None:
    other = replace(CACHED, url_prefix="http://other")
    third = replace(CACHED, url_prefix="http://third")
    outcome, asked = run(
        extending.filtering([CACHED, other, third], pod(cluster), mask(cluster, "a", "b"), cluster),
        {"http://cached": {"NodeNames": ["b"]}, "http://other": {"NodeNames": [], "FailedNodes": {"b": "full"}}},
    )
    assert isinstance(outcome, Filtered)
    assert [ask.document["NodeNames"] for ask in asked] == [["a", "b"], ["b"]]
    assert not outcome.nodes.any()
    assert outcome.rejections[-1].reason == "full"


# Priorities


def test_priorities_are_weighed_and_brought_to_the_scale_of_plugins(cluster: ClusterState) -> None:
    answers = {
        "http://cached": [{"Host": "a", "Score": 10}, {"host": "b", "score": 3}],
        "http://whole": [{"Host": "a", "Score": 1}],
    }
    found, _ = run(extending.prioritizing([CACHED, WHOLE], pod(cluster), mask(cluster, "a", "b"), cluster), answers)
    assert {name: int(found.scores[slot]) for name, slot in cluster.slots.items()} == {"a": 210, "b": 60, "c": 0}


@pytest.mark.parametrize(
    "answer",
    [
        {"Host": "a", "Score": 1},
        [["a", 1]],
        [{"Host": "c", "Score": 1}],
        [{"Host": "a", "Score": 11}],
        [{"Host": "a", "Score": -1}],
        [{"Host": "a", "Score": "7"}],
        [{"Host": "a", "Score": True}],
        [{"Host": 1, "Score": 1}],
        [{"Score": 1}],
        Failed("timed out"),
    ],
)
def test_who_cannot_score_has_no_say_and_costs_nothing(cluster: ClusterState, answer: Any) -> None:
    answers = {"http://cached": answer, "http://whole": [{"Host": "b", "Score": 5}]}
    found, _ = run(extending.prioritizing([CACHED, WHOLE], pod(cluster), mask(cluster, "a", "b"), cluster), answers)
    assert {name: int(found.scores[slot]) for name, slot in cluster.slots.items()} == {"a": 0, "b": 50, "c": 0}
    assert len(found.ignored) == 1


# Binding


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Answered({}), None),
        (Answered({"Error": ""}), None),
        (Answered({"Error": "no such pod"}), "extender http://whole: no such pod"),
        (Answered([]), "extender http://whole: answered with an array where an object was expected"),
        (Failed("gone"), "gone"),
    ],
)
def test_a_binding_is_done_or_it_failed(reply: Reply, reason: str | None) -> None:
    failed = extending.apply_bind_answer(WHOLE, reply)
    assert (failed.reason if failed else None) == reason


# Preemption


class World:
    """Two full nodes, each with pods of low priority, and a pod that wants in."""

    def __init__(self, *extenders: ExtenderConfig) -> None:
        full = {"allocatable": {"pods": "10", "cpu": "2"}}
        self.cluster = ClusterState.of([node("a", status=full), node("b", status=full)])
        for host in ("a", "b"):
            for number in range(2):
                self.cluster.assign(self.pod(f"{host}{number}", priority=number), host)
        self.consultants = [Consultant(extender) for extender in extenders]
        self.profile = default_profile(Shared(preemption_extenders=self.consultants))
        (plugin,) = self.profile.post_filter
        assert isinstance(plugin, DefaultPreemption)
        self.plugin = plugin
        self.subject = self.pod("wants", priority=100)
        self.judgement = Judgement(self.profile, self.subject, self.cluster)
        self.attempts = 0

    def pod(self, name: str, priority: int) -> PodInfo:
        container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
        return pod(self.cluster, name, containers=[container], priority=priority)

    def attempt(self) -> Preemption | NoPreemption:
        self.attempts += 1
        return self.plugin.post_filter(self.subject, self.judgement, self.cluster, Budgets()).outcome

    def preempt(self, replies: Mapping[str, Any]) -> tuple[Preemption | NoPreemption, list[Ask]]:
        return run(extending.consulting(self.consultants, self.attempt, self.cluster), replies)


def test_an_extender_narrows_down_where_pods_are_evicted() -> None:
    world = World(CACHED)
    outcome, (ask,) = world.preempt({"http://cached": {"NodeNameToMetaVictims": {"b": {"Pods": [{"UID": "b0"}]}}}})
    assert isinstance(outcome, Preemption)
    assert (outcome.node, [victim.uid for victim in outcome.victims]) == ("b", ["b0"])
    assert ask.document["NodeNameToMetaVictims"] == {
        host: {"Pods": [{"UID": f"{host}0"}], "NumPDBViolations": 0} for host in ("a", "b")
    }
    assert world.attempts == 2


def test_an_extender_may_choose_other_victims_on_the_node_and_the_most_important_is_first() -> None:
    chosen = {"b": {"Pods": [{"UID": "b0"}, {"UID": "b1"}, {"UID": "b0"}], "NumPDBViolations": 1}}
    outcome, _ = World(WHOLE).preempt({"http://whole": {"NodeNameToMetaVictims": chosen}})
    assert isinstance(outcome, Preemption)
    assert [victim.uid for victim in outcome.victims] == ["b1", "b0"]
    assert outcome.violations == 1


def test_an_extender_that_keeps_no_nodes_is_shown_whole_pods() -> None:
    _, (ask,) = World(WHOLE).preempt({"http://whole": {"NodeNameToMetaVictims": None}})
    victim = ask.document["NodeNameToVictims"]["a"]["Pods"][0]
    assert (victim["metadata"]["uid"], victim["spec"]["nodeName"]) == ("a0", "a")
    assert ask.document["NodeNameToMetaVictims"] is None


def test_extenders_have_their_say_one_after_the_other() -> None:
    world = World(CACHED, LENIENT)
    agreed = {host: {"Pods": [{"UID": f"{host}0"}]} for host in ("a", "b")}
    outcome, asked = world.preempt(
        {
            "http://cached": {"NodeNameToMetaVictims": {"b": agreed["b"]}},
            "http://lenient": {"NodeNameToMetaVictims": {"b": agreed["b"]}},
        }
    )
    assert isinstance(outcome, Preemption)
    assert outcome.node == "b"
    assert [list(ask.document["NodeNameToMetaVictims"]) for ask in asked] == [["a", "b"], ["b"]]


LIES: dict[str, Any] = {
    "no object": [],
    "another node": {"NodeNameToMetaVictims": {"z": {"Pods": [{"UID": "a0"}]}}},
    "a pod of another node": {"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "b0"}]}}},
    "pods that are no list": {"NodeNameToMetaVictims": {"a": {"Pods": "a0"}}},
    "victims that are no object": {"NodeNameToMetaVictims": {"a": None}},
    "fewer than no violations": {"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "a0"}], "NumPDBViolations": -1}}},
    "silence": Failed("did not answer"),
}


@pytest.mark.parametrize("what", LIES)
def test_an_extender_that_lies_about_victims_stops_the_preemption_or_is_ignored(what: str) -> None:
    outcome, _ = World(CACHED).preempt({"http://cached": LIES[what]})
    assert isinstance(outcome, NoPreemption)
    assert outcome.status.code is Code.ERROR
    ignored, _ = World(LENIENT).preempt({"http://lenient": LIES[what]})
    assert isinstance(ignored, Preemption)


def test_outside_of_a_conversation_nobody_can_be_asked() -> None:
    world = World(CACHED)
    outcome = world.attempt()
    assert isinstance(outcome, NoPreemption)
    assert "cannot be asked here" in outcome.status.reasons[0]
    world.preempt({"http://cached": {"NodeNameToMetaVictims": {}}})
    assert isinstance(world.attempt(), NoPreemption), "what was said in one conversation is not used in another"


def test_no_answer_is_kept_for_other_candidates() -> None:
    consultant, cluster = Consultant(CACHED), ClusterState.of([node("a"), node("b")])
    subject, victim = pod(cluster), pod(cluster, "v")
    cluster.assign(victim, "a")
    asked_for = ["a", "b"]

    def attempt() -> Any:
        return consultant.process_preemption(subject, {asked_for[-1]: Candidate(asked_for.pop(), (victim,))})

    conversation = extending.consulting([consultant], attempt, cluster)
    first = next(conversation)
    second = conversation.send(Answered({"NodeNameToMetaVictims": {}}))
    assert list(first.document["NodeNameToMetaVictims"]) == ["b"]
    assert list(second.document["NodeNameToMetaVictims"]) == ["a"]
    conversation.close()


# Whatever comes back


ANSWERS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-20, 20)
    | st.floats(allow_nan=False)
    | st.sampled_from(["", "a", "b", "z"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error", "items", "metadata"),
                    *(
                        "Host",
                        "Score",
                        "NodeNameToMetaVictims",
                        "Pods",
                        "UID",
                        "NumPDBViolations",
                        "a",
                        "b",
                        "z",
                        "name",
                    ),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(ANSWERS, st.booleans())
def test_no_answer_raises_or_adds_nodes(answer: Any, is_cached: bool) -> None:
    cluster = ClusterState.of([node("a"), node("b"), node("c")])
    extender = CACHED if is_cached else WHOLE
    asked = mask(cluster, "a", "b")
    filtered = extending.apply_filter_answer(extender, asked, cluster, Answered(answer))
    if isinstance(filtered, Filtered):
        assert names(cluster, filtered.nodes) <= {"a", "b"}
        rejected = set().union(*(names(cluster, found.nodes) for found in filtered.rejections))
        assert rejected == {"a", "b"} - names(cluster, filtered.nodes)
    scores = extending.apply_prioritize_answer(extender, asked, cluster, Answered(answer))
    if not isinstance(scores, Failed):
        assert int(scores.min()) >= 0
        assert int(scores.max()) <= 100 * extender.weight
        assert int(scores[cluster.slots["c"]]) == 0
    extending.apply_bind_answer(extender, Answered(answer))
    victim = pod(cluster, "v")
    candidates = {"a": Candidate("a", (victim,))}
    agreed = extending.apply_preempt_answer(extender, candidates, cluster, Answered(answer))
    if not isinstance(agreed, Failed):
        assert set(agreed) <= {"a"}
        assert all(candidate.victims in ((), (victim,)) for candidate in agreed.values())
