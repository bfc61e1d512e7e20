"""Budgets: who goes beyond them, and what is left of them after evictions."""

from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.placement.preempt_worlds import World, pod

from muster.api import policy
from muster.api.selectors import parse_labels
from muster.placement.preempting import Budget, Budgets, Victim
from muster.placement.preempting.victims import alone


def victims(*labels: str) -> list[Victim]:
    world = World()
    return [
        alone(world.info(pod(f"p{number}", labels={"app": label} if label else {})), 0)
        for number, label in enumerate(labels)
    ]


def budget(label: str, allowed: int) -> Budget:
    return Budget("here", parse_labels(f"app={label}"), allowed)


def split(budgets: Budgets, found: list[Victim]) -> tuple[list[str], list[str]]:
    beyond, within = budgets.split(found)
    return [victim.pods[0].key.name for victim, _ in beyond], [victim.pods[0].key.name for victim in within]


def test_victims_use_a_budget_up_in_their_order() -> None:
    assert split(Budgets([budget("a", 1)]), victims("a", "b", "a", "a")) == (["p2", "p3"], ["p0", "p1"])


def test_a_budget_of_another_namespace_says_nothing() -> None:
    elsewhere = replace(budget("a", 0), namespace="elsewhere")
    assert split(Budgets([elsewhere]), victims("a")) == ([], ["p0"])


def test_a_pod_whose_eviction_is_counted_already_is_not_counted_again() -> None:
    counted = replace(budget("a", 0), disrupted=frozenset({"p0"}))
    assert split(Budgets([counted]), victims("a", "a")) == (["p1"], ["p0"])


def test_a_victim_of_several_pods_goes_beyond_with_any_of_them_and_says_how_many() -> None:
    one, two, three = (victim.pods[0] for victim in victims("a", "b", "a"))
    beyond, within = Budgets([budget("a", 0)]).split([Victim((one, two, three), 0)])
    assert [count for _, count in beyond] == [2]
    assert within == []


def test_evictions_count_before_the_controller_has_seen_them() -> None:
    budgets, (first, second, other) = Budgets([budget("a", 1)]), victims("a", "a", "b")
    assert budgets.after(other.pods) is budgets
    left = budgets.after(first.pods)
    assert split(left, [first, second]) == (["p1"], ["p0"])
    assert split(budgets, [second]) == ([], ["p1"])


def test_budgets_are_read_from_objects() -> None:
    documents = [
        {
            "metadata": {"name": "x", "namespace": "here"},
            "spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]}},
            "status": {"disruptionsAllowed": 1, "disruptedPods": {"p1": "2026-01-01T00:00:00Z"}},
        },
        {"metadata": {"name": "no selector", "namespace": "here"}},
        {
            "metadata": {"name": "nonsense", "namespace": "here"},
            "spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}},
        },
    ]
    budgets = Budgets.of(msgspec.convert(document, policy.PodDisruptionBudget) for document in documents)
    assert split(budgets, victims("a", "a", "b", "")) == (["p2"], ["p0", "p1", "p3"])


@given(st.lists(st.sampled_from("ab"), max_size=8), st.integers(0, 3), st.integers(0, 3))
def test_no_more_stay_within_than_budgets_allow(labels: list[str], most_a: int, most_b: int) -> None:
    found = victims(*labels)
    beyond, within = Budgets([budget("a", most_a), budget("b", most_b)]).split(found)
    for label, most in (("a", most_a), ("b", most_b)):
        staying = sum(victim.pods[0].labels["app"] == label for victim in within)
        assert staying == min(most, labels.count(label))
    assert len(beyond) + len(within) == len(found)
