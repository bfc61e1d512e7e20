"""GangScheduling and PodGroupPodsCount beyond Kubernetes' own cases: Volcano's groups, tasks, and ways to wake up."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import core, volcano
from muster.cluster.groups import TASK_LABEL, Group, GroupKey, PodGroups
from muster.cluster.pods import PodInfo, Shapes
from muster.cluster.state import ClusterState
from muster.placement.framework import Code, Hint, Progress
from muster.placement.plugins.gang_scheduling import GangScheduling
from muster.placement.plugins.pod_group_pods_count import PodGroupPodsCount
from muster.testing.builders import a_pod

SHAPES = Shapes()
KEY = GroupKey("default", "g")


def view(name: str, group: str | None = "g", task: str = "") -> core.Pod:
    builder = a_pod(name).set(name, "metadata", "uid")
    builder = builder.in_group(group) if group else builder
    return msgspec.convert((builder.label(TASK_LABEL, task) if task else builder).document(), core.Pod)


def pod(name: str, group: str | None = "g", task: str = "") -> PodInfo:
    return SHAPES.info(view(name, group, task))


def group_view(name: str = "g", **spec: object) -> volcano.PodGroup:
    return msgspec.convert({"metadata": {"name": name, "namespace": "default"}, "spec": spec}, volcano.PodGroup)


def test_a_gang_waits_for_the_pods_of_each_task() -> None:
    groups = PodGroups()
    groups.put(Group(KEY, min_count=2, min_per_task={"master": 1}))
    workers = [pod("w0", task="worker"), pod("w1", task="worker")]
    for worker in workers:
        groups.pending(worker)
    plugin = GangScheduling(groups)
    assert plugin.pre_enqueue(workers[0]).reasons == (
        'waiting for minTaskMember pods of task "master" from a gang to appear in scheduling queue',
    )
    groups.pending(pod("m", task="master"))
    assert plugin.pre_enqueue(workers[0]).is_success
    for worker in workers:
        groups.assumed(worker, "n")
    status, seconds = plugin.permit(workers[0], "n")
    assert (status.code, seconds) == (Code.WAIT, 300.0)
    assert status.reasons == ('waiting for minTaskMember pods of task "master" from a gang to be scheduled',)
    assert [found.uid for found in plugin.activated_by(workers[0])] == ["m"]
    assert plugin.allowed_by(workers[0]) == frozenset()
    groups.assumed(pod("m", task="master"), "n")
    assert plugin.permit(workers[0], "n")[0].is_success
    assert plugin.allowed_by(workers[0]) == {"w0", "w1", "m"}


def test_pods_of_no_group_pass_everywhere() -> None:
    plugin = GangScheduling(PodGroups())
    alone = pod("p", group=None)
    assert plugin.pre_enqueue(alone).is_success
    assert plugin.permit(alone, "n")[0].is_success
    assert (list(plugin.activated_by(alone)), plugin.allowed_by(alone)) == ([], frozenset())


@pytest.mark.parametrize("hierarchies", [False, True])
def test_a_group_that_is_gone_at_permit_is_an_error(hierarchies: bool) -> None:
    groups = PodGroups()
    groups.assumed(pod("p"), "n")
    status, _ = GangScheduling(groups, hierarchies).permit(pod("p"), "n")
    assert status.code is Code.ERROR


@given(
    least=st.integers(0, 5),
    task_least=st.integers(0, 3),
    scheduled=st.integers(0, 6),
    remaining=st.integers(0, 6),
    task=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_a_placement_is_given_up_as_soon_as_and_only_when_the_rest_cannot_do(
    least: int, task_least: int, scheduled: int, remaining: int, task: tuple[int, int]
) -> None:
    group = Group(KEY, min_count=least, min_per_task={"t": task_least})
    found = GangScheduling(PodGroups()).placement_feasible(group, Progress(scheduled, remaining, {"t": task}))
    counts = task_least <= least
    if scheduled + remaining < least or (counts and sum(task) < task_least):
        wanted = Code.UNSCHEDULABLE
    elif scheduled < least or (counts and task[0] < task_least):
        wanted = Code.WAIT
    else:
        wanted = Code.SUCCESS
    assert found.code is wanted


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ({"minMember": 3}, {"minMember": 2}, Hint.QUEUE),
        ({"minMember": 2}, {"minMember": 3}, Hint.SKIP),
        ({"minMember": 2}, {"minMember": 2, "queue": "q"}, Hint.SKIP),
        ({"minMember": 2, "minTaskMember": {"t": 2}}, {"minMember": 2, "minTaskMember": {"t": 1}}, Hint.QUEUE),
        ({"minMember": 2, "minTaskMember": {"t": 2}}, {"minMember": 2}, Hint.QUEUE),
        ({"minMember": 2}, {"minMember": 2, "minTaskMember": {"t": 1}}, Hint.SKIP),
    ],
)
def test_a_volcano_group_that_asks_for_less_wakes_its_pods(before: dict, after: dict, wanted: Hint) -> None:
    plugin, cluster = GangScheduling(PodGroups()), ClusterState()
    assert plugin.after_group_updated(pod("p"), group_view(**before), group_view(**after), cluster) is wanted
    other = pod("p", group="other")
    assert plugin.after_group_updated(other, group_view(**before), group_view(**after), cluster) is Hint.SKIP


def test_objects_of_the_wrong_kind_raise() -> None:
    plugin, cluster = GangScheduling(PodGroups(), hierarchies=True), ClusterState()
    for hint in (
        plugin.after_pod_added,
        plugin.after_group_added,
        plugin.after_group_updated,
        plugin.after_composite_added,
    ):
        with pytest.raises(TypeError):
            hint(pod("p"), None, core.Node(), cluster)
        with pytest.raises(TypeError):
            hint(pod("p"), None, None, cluster)
    with pytest.raises(TypeError):
        plugin.after_group_updated(pod("p"), None, group_view(), cluster)


def test_a_pod_of_no_group_wakes_nobody() -> None:
    plugin = GangScheduling(PodGroups())
    assert plugin.after_pod_added(pod("p"), None, view("q", group=None), ClusterState()) is Hint.SKIP
    assert plugin.after_pod_added(pod("p"), None, view("q"), ClusterState()) is Hint.QUEUE


def test_composite_groups_are_listened_to_only_with_hierarchies() -> None:
    resources = [wake.resource for wake in GangScheduling(PodGroups()).wakes()]
    assert resources == ["UnscheduledPod", "Pod", "PodGroup", "PodGroup"]
    assert GangScheduling(PodGroups(), hierarchies=True).wakes()[-1].resource == "CompositePodGroup"


@given(st.lists(st.integers(0, 1000), max_size=8))
def test_placement_scores_are_shares_of_the_best(scores: list[int]) -> None:
    status, found = PodGroupPodsCount(PodGroups()).normalize_placements(scores)
    assert status.is_success == (max(scores, default=0) > 0)
    assert list(found) == ([score * 100 // max(scores) for score in scores] if status.is_success else [])
