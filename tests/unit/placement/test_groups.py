"""What the engines know of pod groups, and a model of it in plain sets."""

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from muster.api import core, volcano
from muster.api.scheduling.groups import CompositePodGroup, PodGroup
from muster.cluster.groups import (
    MAX_TREE_DEPTH,
    TASK_LABEL,
    BrokenHierarchy,
    Group,
    GroupKey,
    Mode,
    PodGroups,
    Topology,
    from_kubernetes,
    from_volcano,
    part_of,
    short_task,
)
from muster.cluster.pods import PodInfo, Shapes
from muster.testing.builders import a_pod

SHAPES = Shapes()
ROOT = GroupKey("default", "root", is_composite=True)


def pod(name: str, group: str | None = "g", task: str = "") -> PodInfo:
    builder = a_pod(name).set(name, "metadata", "uid")
    builder = builder.in_group(group) if group else builder
    return SHAPES.info(msgspec.convert((builder.label(TASK_LABEL, task) if task else builder).document(), core.Pod))


def key(name: str) -> GroupKey:
    return GroupKey("default", name)


def test_a_volcano_group_reduces_to_its_minimums_and_tiers() -> None:
    document = {
        "metadata": {"name": "g", "namespace": "ns"},
        "spec": {
            "minMember": 4,
            "minTaskMember": {"master": 1, "worker": 3},
            "networkTopology": {"mode": "hard", "highestTierAllowed": 2},
        },
    }
    found = from_volcano(msgspec.convert(document, volcano.PodGroup), priority=7)
    assert (found.key, found.min_count, found.priority) == (GroupKey("ns", "g"), 4, 7)
    assert found.min_per_task == {"master": 1, "worker": 3}
    assert found.topology == Topology(Mode.REQUIRED, highest_tier=2)
    plain = from_volcano(msgspec.convert({"metadata": {"name": "g"}}, volcano.PodGroup))
    assert (plain.min_count, plain.is_gang, plain.topology, plain.priority) == (1, True, None, None)


def test_a_soft_volcano_topology() -> None:
    document = {"spec": {"networkTopology": {"mode": "soft", "highestTierName": "island"}}}
    found = from_volcano(msgspec.convert(document, volcano.PodGroup)).topology
    assert found == Topology(Mode.SOFT, highest_tier_name="island")


def test_kubernetes_groups_reduce_alike() -> None:
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 3}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
        "parentCompositePodGroupName": "root",
        "priority": 5,
    }
    document = {"metadata": {"name": "g", "namespace": "default"}, "spec": spec}
    assert from_kubernetes(msgspec.convert(document, PodGroup)) == Group(
        key("g"), min_count=3, topology=Topology(keys=("rack",)), priority=5, parent=ROOT
    )
    top = {"metadata": {"name": "root", "namespace": "default"}, "spec": {"schedulingPolicy": {"basic": {}}}}
    assert from_kubernetes(msgspec.convert(top, CompositePodGroup)) == Group(ROOT, is_gang=False)
    top["spec"] = {"schedulingPolicy": {"gang": {"minGroupCount": 2}}}
    assert from_kubernetes(msgspec.convert(top, CompositePodGroup)).min_count == 2


def test_members_may_come_before_their_group() -> None:
    groups = PodGroups()
    groups.pending(pod("a"))
    assert not groups.is_complete(key("g"))
    groups.put(Group(key("g"), min_count=2))
    assert not groups.is_complete(key("g"))
    groups.bound(pod("b"), "n")
    assert groups.is_complete(key("g"))
    assert not groups.is_placed(key("g"))
    groups.assumed(pod("a"), "n")
    assert groups.is_placed(key("g"))
    groups.pending(pod("a"))
    assert not groups.is_placed(key("g"))


def test_each_task_has_its_minimum() -> None:
    groups = PodGroups()
    groups.put(Group(key("g"), min_count=3, min_per_task={"master": 1, "worker": 2}))
    for number in range(3):
        groups.pending(pod(f"w{number}", task="worker"))
    assert not groups.is_complete(key("g"))
    groups.pending(pod("m", task="master"))
    assert groups.is_complete(key("g"))
    groups.remove("m")
    assert not groups.is_complete(key("g"))


def test_minimums_of_tasks_beyond_the_gang_are_not_enforced() -> None:
    loose = Group(key("g"), min_count=1, min_per_task={"worker": 2})
    assert short_task(loose, {}) is None
    assert short_task(Group(key("g"), min_count=2, min_per_task={"worker": 2}), {"worker": 1}) == "worker"


def test_a_tree_counts_by_its_children() -> None:
    groups = PodGroups()
    groups.put(Group(ROOT, min_count=2))
    for name in "abc":
        groups.put(Group(key(name), parent=ROOT))
    groups.pending(pod("p", "a"))
    assert (groups.root(key("a")), groups.is_complete(ROOT)) == (ROOT, False)
    groups.bound(pod("q", "b"), "n")
    assert (groups.is_complete(ROOT), groups.is_placed(ROOT)) == (True, False)
    assert groups.leaves(ROOT) == [key("a"), key("b"), key("c")]
    assert [(found.uid, node) for found, node in groups.scheduled(ROOT)] == [("q", "n")]
    groups.drop(key("b"))
    assert groups.scheduled_count(ROOT) == 0


def test_what_is_missing_or_wrong_in_a_tree_is_said() -> None:
    groups = PodGroups()
    with pytest.raises(BrokenHierarchy, match="pod group state not found for podgroup/default/g"):
        groups.climb(key("g"))
    groups.pending(pod("p"))
    with pytest.raises(BrokenHierarchy, match="pod group object not found in state for podgroup/default/g"):
        groups.climb(key("g"))
    groups.put(Group(key("g"), parent=ROOT))
    with pytest.raises(BrokenHierarchy, match="composite pod group object not found in state for compositepodgroup/"):
        groups.climb(key("g"))
    assert groups.root(key("g")) is None
    other = GroupKey("default", "other", is_composite=True)
    groups.put(Group(ROOT, parent=other))
    groups.put(Group(other, parent=ROOT))
    with pytest.raises(BrokenHierarchy, match="cycle detected"):
        groups.climb(key("g"))


def test_a_tree_has_at_most_four_levels() -> None:
    groups = PodGroups()
    chain = [GroupKey("default", f"c{number}", is_composite=True) for number in range(MAX_TREE_DEPTH)]
    for above, below in zip(chain, [*chain[1:], key("g")], strict=True):
        groups.put(Group(below, parent=above))
    groups.put(Group(chain[0]))
    with pytest.raises(BrokenHierarchy, match="exceeded maximum hierarchy depth"):
        groups.climb(key("g"))
    with pytest.raises(BrokenHierarchy, match="exceeded maximum hierarchy depth"):
        groups.leaves(chain[0])
    assert groups.root(chain[-1]) == chain[0]


class GroupsAgainstSets(RuleBasedStateMachine):
    """Pods move between groups and states in any order; sets of uids say what must be known."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = PodGroups()
        self.known: dict[str, tuple[PodInfo, str, str]] = {}

    @rule(
        uid=st.sampled_from("abcd"),
        group=st.sampled_from(["g", "h", None]),
        task=st.sampled_from(["", "x"]),
        state=st.sampled_from(["pending", "assumed", "bound"]),
    )
    def move(self, uid: str, group: str | None, task: str, state: str) -> None:
        found = pod(uid, group, task)
        if state == "pending":
            self.groups.pending(found)
        elif state == "assumed":
            self.groups.assumed(found, "n")
        else:
            self.groups.bound(found, "m")
        self.known.pop(uid, None)
        if group:
            self.known[uid] = (found, group, state)

    @rule(uid=st.sampled_from("abcd"))
    def remove(self, uid: str) -> None:
        self.groups.remove(uid)
        self.known.pop(uid, None)

    @invariant()
    def agrees(self) -> None:
        for group in ("g", "h"):
            members = self.groups.members(key(group))
            mine = {uid: value for uid, value in self.known.items() if value[1] == group}
            for state in ("pending", "assumed", "bound"):
                assert set(getattr(members, state)) == {uid for uid, value in mine.items() if value[2] == state}
            placed = {uid for uid, value in mine.items() if value[2] != "pending"}
            assert (members.known_count, members.scheduled_count) == (len(mine), len(placed))
            for task in ("", "x"):
                alike = {uid for uid, value in mine.items() if value[0].labels.get(TASK_LABEL, "") == task}
                assert members.tasks_known[task] == len(alike)
                assert members.tasks_scheduled[task] == len(alike & placed)
            assert {found.uid: node for found, node in members.scheduled()} == {
                uid: {"assumed": "n", "bound": "m"}[mine[uid][2]] for uid in placed
            }


GroupsAgainstSets.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_groups_against_sets = GroupsAgainstSets.TestCase


def test_members_that_have_succeeded_count_until_they_are_deleted() -> None:
    """A job whose worker is started anew after others are done would else wait for ever."""
    groups = PodGroups()
    groups.put(Group(key("g"), min_count=2, min_per_task={"worker": 2}))
    done, again = pod("done", task="worker"), pod("again", task="worker")
    groups.bound(done, "n0")
    groups.succeeded(done)
    groups.pending(again)
    assert groups.is_complete(key("g"))
    assert not groups.is_placed(key("g"))
    assert list(groups.members(key("g")).scheduled()) == []
    groups.assumed(again, "n1")
    assert groups.is_placed(key("g"))
    groups.remove(done.uid)
    assert not groups.is_complete(key("g"))
    groups.remove(again.uid)
    assert groups.members(key("g")).known_count == 0


def test_a_volcano_group_splits_into_parts_by_labels() -> None:
    policies = [
        {
            "name": "pairs",
            "subGroupSize": 2,
            "minSubGroups": 1,
            "matchLabelKeys": [TASK_LABEL],
            "labelSelector": {"matchExpressions": [{"key": TASK_LABEL, "operator": "NotIn", "values": ["lone"]}]},
            "networkTopology": {"highestTierName": "rack"},
        },
        {"name": "broken", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
        {"name": "rest"},
    ]
    document = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"subGroupPolicy": policies}}
    group = from_volcano(msgspec.convert(document, volcano.PodGroup))
    pairs, _, rest = group.parts
    assert (pairs.size, pairs.min_parts, pairs.topology) == (2, 1, Topology(highest_tier_name="rack"))
    assert (rest.size, rest.min_parts, rest.topology) == (1, 0, None)
    assert part_of(group, pod("p", task="worker")) == (0, ("worker",))
    assert part_of(group, pod("p", task="lone")) == (2, ())
    assert part_of(group, pod("p")) == (2, ())
