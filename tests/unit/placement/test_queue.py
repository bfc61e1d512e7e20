"""The scheduling queue, one behaviour at a time. What must hold in any order of events is in test_queue_model.py."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import msgspec
import pytest

from muster.api import core, volcano
from muster.api.meta import Resource
from muster.api.scheduling.groups import CompositePodGroup
from muster.cluster.groups import Group, GroupKey, PodGroups
from muster.cluster.pods import PodInfo, Shapes
from muster.cluster.state import ClusterState
from muster.placement.framework import Action, Code, Hint, Plugin, Status, Wake
from muster.placement.plugins.gang_scheduling import GangScheduling
from muster.placement.plugins.scheduling_gates import SchedulingGates
from muster.placement.profiles import DEFAULT_SCHEDULER, Profile
from muster.placement.queueing import ClusterChange, Place, Queued, SchedulingQueue, Timing
from muster.placement.queueing.backoff import duration
from muster.testing.builders import a_pod

SHAPES = Shapes()
NODE_ADDED = ClusterChange("Node", Action.ADD, None, core.Node())
FIT = frozenset({"Fit"})


class Fit:
    """Helped by a node unless it is named "small"."""

    name: ClassVar[str] = "Fit"

    def __init__(self, reads_labels: bool = True) -> None:
        self.asked: list[str] = []
        self._reads_labels = reads_labels

    def wakes(self) -> Sequence[Wake]:
        return (
            Wake("Node", frozenset({Action.ADD}), self.after_node_added, self._reads_labels),
            Wake("UnscheduledPod", frozenset({Action.UPDATE_POD_SCALE_DOWN})),
        )

    def after_node_added(self, pod: PodInfo, _old: Resource | None, new: Resource | None, _: ClusterState) -> Hint:
        self.asked.append(pod.key.name)
        if not isinstance(new, core.Node):
            raise TypeError("no node")
        return Hint.SKIP if new.metadata.name == "small" else Hint.QUEUE


class Waiter:
    """Nothing that the cluster tells of helps, except a node's removal."""

    name: ClassVar[str] = "Waiter"

    def wakes(self) -> Sequence[Wake]:
        return (Wake("Node", frozenset({Action.DELETE})),)


class World:
    def __init__(self, timing: Timing | None = None, reads_labels: bool = True) -> None:
        self.fit = Fit(reads_labels)
        self.groups = PodGroups()
        plugins: list[Plugin] = [SchedulingGates(), GangScheduling(self.groups), self.fit, Waiter()]
        self.queue = SchedulingQueue(
            {DEFAULT_SCHEDULER: Profile.of(plugins)}, ClusterState(SHAPES), self.groups, timing
        )

    def add(self, found: PodInfo, now: float = 0.0) -> PodInfo:
        self.groups.pending(found)
        self.queue.add(found, now)
        return found

    def gang(self, name: str, least: int, priority: int | None = None) -> None:
        self.groups.put(Group(GroupKey("default", name), min_count=least, priority=priority))

    def pop(self, now: float = 0.0) -> Queued:
        found = self.queue.pop(now)
        assert found is not None
        return found

    def place_of(self, found: PodInfo) -> Place | None:
        standing = self.queue.standing(found.uid)
        return standing.place if standing else None


def pod(name: str, priority: int = 0, group: str | None = None, gates: Sequence[str] = ()) -> PodInfo:
    builder = a_pod(name).set(priority, "spec", "priority").set(name, "metadata", "uid")
    builder = builder.in_group(group) if group else builder
    for gate in gates:
        builder = builder.gated(gate)
    return SHAPES.info(msgspec.convert(builder.document(), core.Pod))


def names(attempt: Queued | None) -> list[str]:
    return [found.key.name for found in attempt.pods] if attempt else []


def node(name: str) -> ClusterChange:
    return ClusterChange("Node", Action.ADD, None, msgspec.convert({"metadata": {"name": name}}, core.Node))


def test_higher_priority_goes_first_and_equals_by_arrival() -> None:
    world = World()
    for number, (name, priority) in enumerate([("a", 0), ("b", 5), ("c", 0), ("d", 5)]):
        world.add(pod(name, priority), now=float(number))
    assert [names(world.pop(9.0)) for _ in range(4)] == [["b"], ["d"], ["a"], ["c"]]
    assert world.queue.pop(9.0) is None


def test_place_among_equals_is_that_of_first_arrival_not_of_last_attempt() -> None:
    world = World(Timing(max_backoff=0))
    old, young = world.add(pod("old"), 0.0), world.add(pod("young"), 1.0)
    world.queue.rejected(world.pop(2.0), FIT, 2.0)
    world.queue.changed(NODE_ADDED, 3.0)
    assert names(world.pop(3.0)) == [old.key.name]
    assert names(world.pop(3.0)) == [young.key.name]


def test_what_was_rejected_waits_until_its_plugin_is_helped() -> None:
    world = World()
    found = world.add(pod("p"))
    world.queue.rejected(world.pop(), FIT, 0.0)
    assert world.place_of(found) is Place.UNSCHEDULABLE
    world.queue.changed(node("small"), 1.0)
    world.queue.changed(ClusterChange("Node", Action.DELETE, core.Node()), 1.0)
    assert world.place_of(found) is Place.UNSCHEDULABLE
    world.queue.changed(node("large"), 1.0)
    assert world.place_of(found) is Place.BACKOFF


def test_a_hint_that_raises_counts_as_help_and_names_its_plugin() -> None:
    world = World()
    found = world.add(pod("p"))
    world.queue.rejected(world.pop(), FIT, 0.0)
    world.queue.changed(ClusterChange("Node", Action.ADD, None, core.Pod()), 0.0)
    assert world.place_of(found) is Place.BACKOFF
    assert [(fault.plugin, fault.error) for fault in world.queue.faults] == [("Fit", "TypeError: no node")]


def test_a_plugin_nobody_knows_is_helped_by_any_change() -> None:
    world = World()
    found = world.add(pod("p"))
    world.queue.rejected(world.pop(), frozenset({"Extender"}), 0.0)
    world.queue.changed(ClusterChange("Service", Action.UPDATE), 5.0)
    assert world.place_of(found) is Place.ACTIVE


def test_pods_alike_cost_one_question() -> None:
    world = World()
    for number in range(50):
        world.add(pod(f"p{number}"))
    for _ in range(50):
        world.queue.rejected(world.pop(), FIT, 0.0)
    world.queue.changed(node("small"), 0.0)
    assert len(world.fit.asked) == 1
    world.queue.changed(NODE_ADDED, 0.0)
    assert world.queue.counts().entities[Place.BACKOFF] == 50


@pytest.mark.parametrize(("reads_labels", "expected"), [(True, 50), (False, 1)])
def test_members_of_a_gang_that_differ_in_labels_cost_one_question_where_no_hint_reads_them(
    reads_labels: bool, expected: int
) -> None:
    world = World(reads_labels=reads_labels)
    world.gang("g", 50)
    members = [world.add(replace(pod(f"p{number}", group="g"), labels={"index": str(number)})) for number in range(50)]
    world.queue.rejected(world.pop(), FIT, 0.0)
    world.queue.changed(node("small"), 0.0)
    assert len(world.fit.asked) == expected
    for gone in members[:-1]:  # the one that was asked for all, too
        world.queue.remove(gone.uid)
    world.queue.changed(NODE_ADDED, 0.0)
    assert world.place_of(members[-1]) is not Place.UNSCHEDULABLE


def test_a_pending_plugin_brings_it_back_without_rest() -> None:
    world = World()
    found = world.add(pod("p"))
    world.queue.rejected(world.pop(), frozenset({"Waiter"}), 0.0, pending=FIT)
    world.queue.changed(NODE_ADDED, 0.0)
    assert world.place_of(found) is Place.ACTIVE


@pytest.mark.parametrize("pending", [False, True])
def test_a_change_while_in_flight_is_not_missed(pending: bool) -> None:
    world = World()
    found = world.add(pod("p"))
    attempt = world.pop()
    world.queue.changed(NODE_ADDED, 0.0)
    world.queue.rejected(attempt, frozenset() if pending else FIT, 0.0, pending=FIT if pending else frozenset())
    assert world.place_of(found) is (Place.ACTIVE if pending else Place.BACKOFF)


def test_a_change_before_the_attempt_is_not_held_against_it() -> None:
    world = World()
    first, second = world.add(pod("first", 1)), world.add(pod("second"))
    attempt = world.pop()
    world.queue.changed(NODE_ADDED, 0.0)
    later = world.pop()
    world.queue.rejected(later, FIT, 0.0)
    world.queue.rejected(attempt, FIT, 0.0)
    assert (world.place_of(first), world.place_of(second)) == (Place.BACKOFF, Place.UNSCHEDULABLE)


def test_a_pod_changed_in_flight_is_held_against_its_own_change() -> None:
    world = World()
    found = world.add(pod("p"))
    attempt = world.pop()
    world.queue.update(found, 0.0, [ClusterChange("UnscheduledPod", Action.UPDATE_POD_SCALE_DOWN)])
    world.queue.rejected(attempt, FIT, 0.0)
    assert world.place_of(found) is Place.BACKOFF


def test_a_pod_that_changes_is_asked_about_alone() -> None:
    world = World()
    one, other = world.add(pod("one")), world.add(pod("other"))
    for _ in range(2):
        world.queue.rejected(world.pop(), FIT, 0.0)
    world.queue.update(one, 9.0, [ClusterChange("UnscheduledPod", Action.UPDATE_POD_LABEL)])
    assert world.place_of(one) is Place.UNSCHEDULABLE
    world.queue.update(one, 9.0, [ClusterChange("UnscheduledPod", Action.UPDATE_POD_SCALE_DOWN)])
    assert (world.place_of(one), world.place_of(other)) == (Place.ACTIVE, Place.UNSCHEDULABLE)


def test_rests_double_up_to_the_longest_and_are_cut_short_when_there_is_nothing_else() -> None:
    world = World()
    world.add(pod("p"))
    now, rests = 0.0, []
    for _ in range(6):
        world.queue.rejected(world.pop(now), FIT, now)
        world.queue.changed(NODE_ADDED, now)
        standing = world.queue.standing("p")
        assert standing is not None
        assert standing.backoff_until is not None
        rests.append(standing.backoff_until - now)
    assert rests == [1, 2, 4, 8, 10, 10]


def test_what_is_active_goes_before_what_rests() -> None:
    world = World()
    world.add(pod("resting", priority=100))
    world.queue.rejected(world.pop(), FIT, 0.0)
    world.queue.changed(NODE_ADDED, 0.0)
    world.add(pod("fresh"))
    assert names(world.pop(0.5)) == ["fresh"]
    assert names(world.pop(0.5)) == ["resting"]


def test_of_one_shape_the_eldest_goes_first_also_where_it_rests_longest() -> None:
    world = World()
    for name in ("eldest", "elder"):
        world.add(pod(name))
    for now in (0.0, 1.0, 3.0):
        attempts = [world.pop(now), world.pop(now)]
        for attempt in attempts:
            world.queue.rejected(attempt, FIT, now)
        world.queue.changed(NODE_ADDED, now)
    world.add(pod("fresh"), 3.0)
    assert names(world.pop(3.5)) == ["eldest"]
    assert names(world.pop(3.5)) == ["fresh"], "one newcomer wakes one of those who rest, not all"
    assert names(world.pop(3.5)) == ["elder"]


def test_after_an_error_the_rest_is_kept_and_counted_on_its_own() -> None:
    world = World()
    world.add(pod("p"))
    world.queue.rejected(world.pop(), FIT, 0.0)
    world.queue.changed(NODE_ADDED, 0.0)
    world.queue.failed(world.pop(), 0.0)
    assert world.queue.pop(1.9) is None
    assert world.queue.next_time(1.0) == 2.0
    assert names(world.pop(2.0)) == ["p"]


def test_errors_of_binding_add_up() -> None:
    world = World()
    found = world.add(pod("p"), 3.0)
    now = 3.0
    rests = []
    for _ in range(3):
        attempt = world.pop(now)
        world.queue.placed(attempt, ["p"], now)
        assert world.place_of(found) is None
        world.queue.add(found, now, arrived=attempt.arrived, errors=attempt.errors + 1)
        due = world.queue.next_time(now)
        assert due is not None
        rests.append(due - now)
        now = due
    standing = world.queue.standing("p")
    assert standing is not None
    assert standing.arrived == 3.0
    assert rests == [2, 3, 5]  # a window more than the backoff, for the window it ends in


def test_without_any_event_it_is_tried_again_after_five_minutes() -> None:
    world = World()
    found = world.add(pod("p"))
    world.queue.rejected(world.pop(), frozenset({"Waiter"}), 0.0)
    due = world.queue.next_time(1.0)
    assert due == 300.0
    assert world.queue.pop(299.9) is None
    assert world.queue.next_time(299.9) == 329.9
    assert names(world.pop(330.0)) == [found.key.name]


def test_gates_hold_a_pod_and_its_update_lets_it_in() -> None:
    world = World()
    found = world.add(pod("p", gates=["quota"]))
    standing = world.queue.standing("p")
    assert standing is not None
    assert (standing.place, standing.plugins) == (Place.GATED, frozenset({"SchedulingGates"}))
    assert standing.reason == "waiting for scheduling gates: [quota]"
    assert world.queue.pop(0.0) is None
    world.queue.update(pod("p"), 1.0)
    assert names(world.pop(1.0)) == [found.key.name]


def test_a_gate_that_raises_holds_the_pod_and_is_named() -> None:
    class Broken:
        name: ClassVar[str] = "Broken"

        def pre_enqueue(self, pod: PodInfo) -> Status:
            raise RuntimeError("oh")

    queue = SchedulingQueue({DEFAULT_SCHEDULER: Profile.of([Broken()])}, ClusterState(SHAPES))
    queue.add(pod("p"), 0.0)
    standing = queue.standing("p")
    assert standing is not None
    assert (standing.place, standing.reason) == (Place.GATED, "RuntimeError: oh")
    assert queue.faults[0].plugin == "Broken"


def test_a_gang_is_one_entity_that_waits_for_its_members() -> None:
    world = World()
    world.gang("g", least=3)
    members = [world.add(pod(f"p{number}", group="g"), float(number)) for number in range(2)]
    assert {world.place_of(member) for member in members} == {Place.GATED}
    standing = world.queue.standing("p0")
    assert standing is not None
    assert standing.reason == "waiting for minCount pods from a gang to appear in scheduling queue"
    world.add(pod("p2", group="g"), 2.0)
    attempt = world.pop(2.0)
    assert names(attempt) == ["p0", "p1", "p2"]
    assert attempt.is_gang
    assert attempt.arrived == 0.0
    assert world.queue.counts().entities[Place.IN_FLIGHT] == 1


def test_a_gang_that_is_held_back_is_asked_about_once_for_each_member_that_comes() -> None:
    class Counting:
        """Holds back all until it is opened; any pod that comes may help."""

        name: ClassVar[str] = "Counting"
        asked = 0
        is_open = False

        def pre_enqueue(self, _pod: PodInfo) -> Status:
            self.asked += 1
            return Status() if self.is_open else Status(Code.UNRESOLVABLE, ("closed",))

        def wakes(self) -> Sequence[Wake]:
            return (Wake("UnscheduledPod", frozenset({Action.ADD})),)

    gate = Counting()
    queue = SchedulingQueue({DEFAULT_SCHEDULER: Profile.of([gate])}, ClusterState(SHAPES))

    def comes(name: str) -> None:
        queue.add(pod(name, group="g"), 0.0)
        view = msgspec.convert({"metadata": {"name": name, "uid": name}}, core.Pod)
        queue.changed(ClusterChange("UnscheduledPod", Action.ADD, None, view), 0.0)

    for number in range(20):
        comes(f"p{number}")
    assert gate.asked == 20
    gate.is_open = True
    comes("last")
    assert len(names(queue.pop(0.0))) == 21


def test_the_group_that_comes_last_lets_its_pods_in() -> None:
    world = World()
    for number in range(2):
        world.add(pod(f"p{number}", group="g"))
    assert world.queue.pop(0.0) is None
    world.gang("g", least=2)
    seen = msgspec.convert({"metadata": {"name": "g", "namespace": "default"}}, volcano.PodGroup)
    world.queue.changed(ClusterChange("PodGroup", Action.ADD, None, seen), 1.0)
    assert names(world.pop(1.0)) == ["p0", "p1"]


def test_a_gang_that_lost_a_member_is_held_back_again() -> None:
    world = World()
    world.gang("g", least=2)
    members = [world.add(pod(f"p{number}", group="g")) for number in range(2)]
    world.groups.remove("p1")
    world.queue.remove("p1")
    assert world.queue.pop(0.0) is None
    assert world.place_of(members[0]) is Place.GATED


def test_members_that_come_in_flight_join_the_next_attempt() -> None:
    world = World()
    world.gang("g", least=2)
    for number in range(2):
        world.add(pod(f"p{number}", group="g"))
    attempt = world.pop()
    world.add(pod("late", group="g"))
    assert names(attempt) == ["p0", "p1"]
    for member in attempt.pods:
        world.groups.assumed(member, "n")
    world.queue.placed(attempt, ["p0", "p1"], 1.0)
    assert names(world.pop(1.0)) == ["late"]


def test_pods_beyond_the_minimum_wait_and_do_not_block() -> None:
    world = World()
    world.gang("g", least=1)
    one, two = world.add(pod("p0", group="g")), world.add(pod("p1", group="g"))
    attempt = world.pop()
    world.groups.assumed(one, "n")
    world.queue.rejected(attempt, FIT, 0.0, placed=["p0"])
    assert (world.place_of(one), world.place_of(two)) == (None, Place.UNSCHEDULABLE)
    assert world.queue.oldest_blocked_gang(1000.0, 0.0) is None


def test_one_backoff_for_the_whole_gang_longer_for_a_larger_one() -> None:
    assert duration(9, 1, 1.0, 10.0) == 10
    assert duration(9, 16, 1.0, 10.0) == 40
    assert duration(5000, 16, 1.0, 10.0) == 40
    world = World()
    world.gang("g", least=4)
    for number in range(4):
        world.add(pod(f"p{number}", group="g"))
    for _ in range(6):
        world.queue.rejected(world.pop(), FIT, 0.0)
        world.queue.changed(NODE_ADDED, 0.0)
    standing = world.queue.standing("p3")
    assert standing is not None
    assert standing.backoff_until == 20


def test_the_oldest_blocked_gang_is_first_in_order_among_those_that_waited_long_enough() -> None:
    world = World()
    for name in ("old", "young"):
        world.gang(name, least=1)
    world.gang("urgent", least=1, priority=10)
    for at, name in enumerate(("old", "young", "urgent")):
        world.add(pod(name, group=name), float(at))
        world.queue.rejected(world.pop(float(at)), FIT, float(at))
    assert world.queue.oldest_blocked_gang(10.0, 11.0) is None
    assert names(world.queue.oldest_blocked_gang(10.0, 9.0)) == ["old"]
    assert names(world.queue.oldest_blocked_gang(10.0, 5.0)) == ["urgent"]
    world.queue.changed(NODE_ADDED, 20.0)
    attempt = world.pop(20.0)
    assert names(attempt) == ["urgent"]
    world.queue.placed(attempt, ["urgent"], 20.0)
    assert names(world.queue.oldest_blocked_gang(20.0, 5.0)) == ["old"]


def test_composite_groups_make_one_entity_of_their_tree() -> None:
    groups = PodGroups()
    plugins = [GangScheduling(groups, hierarchies=True)]
    queue = SchedulingQueue({DEFAULT_SCHEDULER: Profile.of(plugins)}, ClusterState(SHAPES), groups)
    root = GroupKey("default", "root", is_composite=True)
    for name in ("a", "b"):
        groups.put(Group(GroupKey("default", name), parent=root))
        member = pod(name, group=name)
        groups.pending(member)
        queue.add(member, 0.0)
    assert queue.counts().entities[Place.GATED] == 2
    groups.put(Group(root, min_count=2))
    seen = msgspec.convert({"metadata": {"name": "root", "namespace": "default"}}, CompositePodGroup)
    queue.changed(ClusterChange("CompositePodGroup", Action.ADD, None, seen), 1.0)
    attempt = queue.pop(1.0)
    assert attempt is not None
    assert attempt.key == root
    assert sorted(names(attempt)) == ["a", "b"]


def test_a_member_unlike_the_others_is_worth_another_try_and_one_more_alike_is_not() -> None:
    world = World()
    world.gang("g", least=1)
    first = world.add(pod("p0", group="g"))
    world.queue.rejected(world.pop(), FIT, 0.0)
    world.add(pod("p1", group="g"), 9.0)
    assert world.place_of(first) is Place.UNSCHEDULABLE
    world.add(pod("p2", group="g", priority=1), 9.0)
    assert world.place_of(first) is Place.ACTIVE


def test_activation_brings_back_at_once_what_waits_and_after_its_rest_what_flies() -> None:
    world = World()
    waiting, flying = world.add(pod("waiting", 1)), world.add(pod("flying"))
    world.queue.rejected(world.pop(), FIT, 0.0)
    attempt = world.pop()
    world.queue.activate(["waiting", "flying", "unknown"], 0.0)
    world.queue.rejected(attempt, FIT, 0.0)
    assert (world.place_of(waiting), world.place_of(flying)) == (Place.ACTIVE, Place.BACKOFF)


def test_a_verdict_on_what_is_gone_changes_nothing() -> None:
    world = World()
    world.add(pod("p"))
    attempt = world.pop()
    world.queue.remove("p")
    world.queue.rejected(attempt, FIT, 0.0)
    world.queue.failed(attempt, 0.0)
    assert world.queue.counts().pods == 0
    assert sum(world.queue.counts().entities.values()) == 0


def test_nominations_hold_through_updates_and_end_with_the_pod() -> None:
    world = World()
    found = world.add(pod("p"))
    nominations = world.queue.nominations
    nominations.nominate(found, "n1")
    world.queue.update(pod("p"), 1.0)
    assert [one.key.name for one in nominations.on("n1")] == ["p"]
    nominations.nominate(found, "n2")
    assert (nominations.on("n1"), nominations.node_of("p"), nominations.nodes()) == ((), "n2", ("n2",))
    world.queue.remove("p")
    assert nominations.nodes() == ()


def test_void_entries_do_not_pile_up() -> None:
    world = World()
    world.add(pod("p"))
    for number in range(5_000):
        world.queue.update(pod("p", priority=number % 7), 0.0)
    assert len(world.queue._active._entries) < 3000
    world.queue.rejected(world.pop(), FIT, 0.0)
    for _ in range(5_000):
        world.queue.activate(["p"], 0.0)
        world.queue.rejected(world.pop(), FIT, 0.0)
    assert len(world.queue._waiting_since) < 3000
