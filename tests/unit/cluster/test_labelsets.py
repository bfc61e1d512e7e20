"""Counts of pods by labels: kept ones must equal those counted from the pods themselves."""

from collections.abc import Mapping
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api import core
from muster.api.objects import Key
from muster.api.selectors import parse_labels
from muster.cluster import labelsets
from muster.cluster.labelsets import LabelSets
from muster.cluster.pods import PodInfo, Shapes

WIDTH = 6
SHAPE = Shapes().shape(core.PodSpec())


def a_pod(name: str = "p", namespace: str = "ns", is_terminating: bool = False, **labels: str) -> PodInfo:
    return PodInfo(Key(namespace, name), name, labels, SHAPE, is_terminating=is_terminating)


def is_red(namespace: str, labels: Mapping[str, str], is_terminating: bool) -> bool:
    return labels.get("color") == "red" and not is_terminating


def counted(pods: list[tuple[PodInfo, int]], matches: labelsets.Matches) -> list[int]:
    return [
        sum(at == slot and matches(pod.namespace, pod.labels, pod.is_terminating) for pod, at in pods)
        for slot in range(WIDTH)
    ]


def test_groups_are_told_apart_by_namespace_labels_and_whether_they_end() -> None:
    sets = LabelSets()
    sets.pod_assigned(a_pod("a", color="red"), 1)
    sets.pod_assigned(a_pod("b", color="red"), 1)
    sets.pod_assigned(a_pod("c", color="red", namespace="other"), 1)
    sets.pod_assigned(a_pod("d", color="red", is_terminating=True), 2)
    found = sorted((group.namespace, group.is_terminating, dict(group.counts)) for group in sets)
    assert found == [("ns", False, {1: 2}), ("ns", True, {2: 1}), ("other", False, {1: 1})]


def test_a_group_without_pods_is_not_listed() -> None:
    sets = LabelSets()
    pod = a_pod(color="red")
    sets.pod_assigned(pod, 1)
    sets.pod_released(pod, 1)
    assert list(sets) == []


def test_the_answer_is_the_callers_own() -> None:
    sets = LabelSets()
    sets.pod_assigned(a_pod(color="red"), 1)
    sets.counts_by_slot(is_red, WIDTH, "red")[:] = 7
    assert sets.counts_by_slot(is_red, WIDTH, "red").tolist() == [0, 1, 0, 0, 0, 0]


def test_a_question_asked_again_judges_only_groups_that_are_new() -> None:
    sets = LabelSets()
    calls = count()

    def matches(namespace: str, labels: Mapping[str, str], is_terminating: bool) -> bool:
        next(calls)
        return True

    for rank in range(50):
        sets.pod_assigned(a_pod(f"p{rank}", rank=str(rank)), rank % WIDTH)
    sets.counts_by_slot(matches, WIDTH, "all")
    sets.pod_assigned(a_pod("more", rank="50"), 0)
    sets.pod_assigned(a_pod("same", rank="50"), 0)
    assert sets.counts_by_slot(matches, WIDTH, "all").tolist() == [11, 9, 8, 8, 8, 8]
    assert next(calls) == 51


def test_groups_without_a_label_that_is_asked_for_are_not_judged() -> None:
    sets = LabelSets()
    judged: list[str] = []

    def matches(namespace: str, labels: Mapping[str, str], is_terminating: bool) -> bool:
        judged.append(labels["job"])
        return True

    selector = parse_labels("app=train,job=j3")
    for number in range(20):
        sets.pod_assigned(a_pod(f"p{number}", app="train", job=f"j{number % 5}", rank=str(number)), number % WIDTH)
    assert sets.counts_by_slot(matches, WIDTH, "j3", selector).tolist() == [1, 1, 1, 1, 0, 0]
    sets.pod_assigned(a_pod("late", app="train", job="j3"), 5)
    sets.pod_assigned(a_pod("other", app="train", job="j4"), 5)
    assert sets.counts_by_slot(matches, WIDTH, "j3", selector)[5] == 1
    assert judged == ["j3"] * 5


def test_the_axis_may_grow_between_questions() -> None:
    sets = LabelSets()
    sets.pod_assigned(a_pod("a", color="red"), 0)
    assert sets.counts_by_slot(is_red, 1, "red").tolist() == [1]
    sets.pod_assigned(a_pod("b", color="red"), 2)
    assert sets.counts_by_slot(is_red, 3, "red").tolist() == [1, 0, 1]


def test_an_answer_older_than_the_log_is_counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelsets, "_LOG_LIMIT", 4)
    sets = LabelSets()
    sets.counts_by_slot(is_red, WIDTH, "red")
    for number in range(5):
        sets.pod_assigned(a_pod(str(number), color="red"), number)
    assert sets.counts_by_slot(is_red, WIDTH, "red").tolist() == [1, 1, 1, 1, 1, 0]


changes = st.lists(
    st.tuples(
        st.sampled_from(["add", "remove", "ask"]),
        st.integers(0, WIDTH - 1),
        st.sampled_from(["red", "blue"]),
        st.integers(0, 5),
        st.booleans(),
    ),
    max_size=60,
)


@settings(max_examples=50)
@given(changes=changes, with_key=st.booleans(), with_selector=st.booleans(), are_limits_tiny=st.booleans())
def test_kept_counts_equal_counts_from_the_pods(
    changes: list[tuple[str, int, str, int, bool]], with_key: bool, with_selector: bool, are_limits_tiny: bool
) -> None:
    key, selector = "red" if with_key else None, parse_labels("rank,color=red") if with_selector else None
    with pytest.MonkeyPatch.context() as patch:
        if are_limits_tiny:  # every way of forgetting, within a few steps
            patch.setattr(labelsets, "_LOG_LIMIT", 4)
            patch.setattr(labelsets, "_FEW_EMPTY", 1)
        sets, pods = LabelSets(), []
        for number, (what, slot, color, rank, is_terminating) in enumerate(changes):
            match what:
                case "add":
                    pod = a_pod(str(number), "ns", is_terminating, color=color, rank=str(rank))
                    pods.append((pod, slot))
                    sets.pod_assigned(pod, slot)
                case "remove" if pods:
                    sets.pod_released(*pods.pop(rank % len(pods)))
                case "ask":
                    found = sets.counts_by_slot(is_red, WIDTH, key, selector)
                    assert found.tolist() == counted(pods, is_red)
        assert sets.counts_by_slot(is_red, WIDTH, key, selector).tolist() == counted(pods, is_red)
