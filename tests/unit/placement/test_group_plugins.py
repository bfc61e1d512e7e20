"""Plugins for groups: where a gang is tried, when it is enough, which placement is best; and what comes of bad ones."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.placement.preempt_worlds import node, pod
from tests.unit.placement.test_logbook import History
from tests.unit.placement.test_scheduling import (
    GANGS,
    NODES,
    TASK,
    World,
    decide_gang,
    of_drawn,
    placed,
    rack,
    settle,
    world_of,
)

from muster.api.everything import REGISTRY
from muster.cluster.groups import Group, GroupKey, Parts, PodGroups, Topology
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.configured import configured_engine
from muster.placement.engine import Engine, Faulted
from muster.placement.framework import (
    SUCCESS,
    Code,
    Generated,
    Placement,
    Plugin,
    Progress,
    Status,
)
from muster.placement.group_plugins import GroupPlugins
from muster.placement.in_tree import Shared, default_profile
from muster.placement.logbook import Logbook, replay
from muster.placement.profiles import DEFAULT_SCHEDULER, Profile
from muster.placement.scheduling import Decision

KEY = GroupKey("here", "g")


class ByLabel:
    """Splits nodes by a label, in the order of its values."""

    name: ClassVar[str] = "ByLabel"

    def __init__(self, key: str = "spine", only: Sequence[str] = ()) -> None:
        self.key, self.only = key, only

    def generate_placements(self, group: Group, cluster: ClusterState, parent: Placement) -> Generated:
        values = {(found.metadata.labels or {}).get(self.key, "") for found in cluster.nodes if found is not None}
        wanted = [value for value in sorted(values) if value and (not self.only or value in self.only)]
        return Generated(placements=[Placement(value, self._mask(cluster, value)) for value in wanted])

    def _mask(self, cluster: ClusterState, value: str) -> Any:
        return np.array([found is not None and self._label(found) == value for found in cluster.nodes], dtype=np.bool_)

    def _label(self, found: Any) -> str | None:
        return (found.metadata.labels or {}).get(self.key)


class ByRack(ByLabel):
    name: ClassVar[str] = "ByRack"

    def __init__(self) -> None:
        super().__init__("rack")


class Always:
    """Generates as it is told."""

    name: ClassVar[str] = "Always"

    def __init__(self, found: Callable[[Placement, ClusterState], Generated]) -> None:
        self.found = found

    def generate_placements(self, group: Group, cluster: ClusterState, parent: Placement) -> Generated:
        return self.found(parent, cluster)


class Prefers:
    """Scores placements by their names, and notes what it was shown."""

    name: ClassVar[str] = "Prefers"

    def __init__(self, **scores: int) -> None:
        self.scores = scores
        self.seen: list[tuple[str, list[str], int]] = []

    def score_placement(
        self, group: Group, cluster: ClusterState, placement: Placement, proposed: Sequence[tuple[PodInfo, str]]
    ) -> int:
        there = sum(cluster.node_of(member.uid) == where for member, where in proposed)
        names = [cluster.names[slot] for slot in np.flatnonzero(placement.nodes)]
        self.seen.append((placement.name, names, there))
        return self.scores.get(placement.name, 0)


class Shares(Prefers):
    """The same, as shares of the largest."""

    name: ClassVar[str] = "Shares"

    def normalize_placements(self, scores: Sequence[int]) -> tuple[Status, Sequence[int]]:
        return SUCCESS, [score * 100 // max(scores) for score in scores]


class Judges:
    """Asked whether it is enough; notes what it is asked."""

    name: ClassVar[str] = "Judges"

    def __init__(self, say: Callable[[Progress], Status]) -> None:
        self.say = say
        self.asked: list[Progress] = []

    def placement_feasible(self, group: Group, progress: Progress) -> Status:
        self.asked.append(progress)
        return self.say(progress)


def profile_with(groups: PodGroups, *plugins: Plugin, **weights: int) -> Profile:
    return Profile.of([*default_profile(Shared(groups)).plugins, *plugins], placement_weights=weights)


def with_plugins(world: World, *plugins: Plugin, **weights: int) -> World:
    """The same cluster with a scheduler that has these too."""
    profile = profile_with(world.groups, *plugins, **weights)
    return World(world.cluster, world.groups, world.seed, profile)


def spines(**sizes: int) -> World:
    """Nodes of one CPU by spine, each in a rack of two."""
    return world_of(
        *(
            node(f"{name}{number}", cpu=1, labels={"spine": name, **rack(f"{name}-{number // 2}")})
            for name, size in sizes.items()
            for number in range(size)
        )
    )


def gang(world: World, count: int, **fields: Any) -> list[Any]:
    world.groups.put(Group(KEY, **{"min_count": count, **fields}))
    return [pod(f"p{number}", group="g") for number in range(count)]


def spines_used(decision: Decision) -> set[str]:
    return {one.node[0] for one in decision.assigned}


# Where


def test_a_gang_is_tried_in_each_generated_placement_and_goes_nowhere_else() -> None:
    world = with_plugins(spines(a=2, b=4, c=4), ByLabel(only=["a", "b"]))
    assert spines_used(world.decide(*gang(world, 3))) == {"b"}
    world = with_plugins(spines(a=2, b=3, c=5), ByLabel(only=["a", "b"]))
    refused = world.decide(*gang(world, 4)).refusal
    assert refused is not None
    assert refused.message.startswith("3 of the 4 pods that must start together can be placed: 0/10 nodes")
    assert "ByLabel" in refused.plugins


def test_a_gang_with_a_topology_is_tried_in_its_domains_inside_each_placement() -> None:
    world = with_plugins(spines(a=4, b=4), ByLabel(only=["b"]))
    decision = world.decide(*gang(world, 2, topology=Topology(keys=("rack",))))
    assert set(placed(decision).values()) in ({"b0", "b1"}, {"b2", "b3"})
    world = with_plugins(spines(a=4, b=4), ByLabel(only=["b"]))
    refused = world.decide(*gang(world, 3, topology=Topology(keys=("rack",)))).refusal
    assert refused is not None
    assert refused.message.startswith("no topology domain holds 3 pods")


def test_generators_split_what_those_before_them_have_left() -> None:
    prefers = Prefers()
    world = with_plugins(spines(a=4, b=4), ByLabel(only=["b"]), ByRack(), prefers)
    world.decide(*gang(world, 2))
    assert [seen[:2] for seen in prefers.seen] == [("b-0", ["b0", "b1"]), ("b-1", ["b2", "b3"])]


def test_a_placement_has_no_nodes_but_those_that_are_open_to_the_gang() -> None:
    everything = Always(lambda parent, cluster: Generated(placements=[Placement("all", cluster.mask(True))]))
    world = with_plugins(spines(a=3), everything)
    assert set(placed(world.decide(*gang(world, 2), within=["a0", "a2"])).values()) == {"a0", "a2"}


def test_members_that_come_later_are_tried_first_where_the_others_are() -> None:
    world = with_plugins(spines(a=3, b=3), ByLabel())
    first = world.running(pod("first", group="g"), "b1")
    assert first.group is not None
    assert spines_used(world.decide(*gang(world, 2))) == {"b"}


def test_placements_that_hold_the_gang_by_their_numbers_are_tried_first() -> None:
    """There are more placements than are ever filled, and all but the last are too small."""
    sizes = {f"s{number:03}": 1 for number in range(150)} | {"t": 2}
    nodes = [
        node(f"{name}-{number}", cpu=1, labels={"spine": name})
        for name, size in sizes.items()
        for number in range(size)
    ]
    world = with_plugins(world_of(*nodes), ByLabel())
    assert {one.node for one in world.decide(*gang(world, 2)).assigned} == {"t-0", "t-1"}


def test_a_generator_that_rejects_makes_the_gang_wait_with_its_reason() -> None:
    no_spine = Always(lambda *_: Generated(Status(Code.UNSCHEDULABLE, ("no spine is free",))))
    world = with_plugins(spines(a=4), no_spine)
    decision = world.decide(*gang(world, 2))
    assert not decision.assigned
    assert decision.refusal is not None
    assert decision.refusal.message == ("2 pods that must start together cannot be placed: Always: no spine is free")
    assert decision.refusal.plugins == {"Always", "GangScheduling"}
    assert not world.cluster.pods


def test_a_generator_may_have_nothing_or_nothing_to_say() -> None:
    nothing = with_plugins(spines(a=4), Always(lambda *_: Generated()))
    refused = nothing.decide(*gang(nothing, 2)).refusal
    assert refused is not None
    assert "Always: it has no placement for them" in refused.message
    skips = with_plugins(spines(a=4), Always(lambda *_: Generated(Status(Code.SKIP))))
    assert len(skips.decide(*gang(skips, 2)).assigned) == 2


def test_pods_are_evicted_where_the_generator_lets_the_gang_go() -> None:
    world = with_plugins(spines(a=2, b=2), ByLabel(only=["b"]))
    for name in ("a0", "a1", "b0", "b1"):
        world.running(pod(f"low-{name}"), name)
    views = [pod(f"p{number}", group="g", priority=9) for number in range(2)]
    gang(world, 2, priority=9)
    decision = world.decide(*views)
    assert sorted(victim.key.name for victim in decision.victims) == ["low-b0", "low-b1"]
    assert spines_used(decision) == {"b"}


@pytest.mark.parametrize(("code", "helps"), [(Code.UNSCHEDULABLE, True), (Code.UNRESOLVABLE, False)])
def test_eviction_is_tried_unless_the_generator_says_that_it_cannot_help(code: Code, helps: bool) -> None:
    def where_nobody_is(parent: Placement, cluster: ClusterState) -> Generated:
        free = parent.nodes & (cluster.used[cluster.resources["cpu"], : cluster.width] == 0)
        return Generated(placements=[Placement("free", free)]) if free.any() else Generated(Status(code, ("full",)))

    world = with_plugins(spines(a=1), Always(where_nobody_is))
    world.running(pod("low"), "a0")
    gang(world, 1, priority=9)
    decision = world.decide(pod("p0", group="g", priority=9))
    assert [victim.key.name for victim in decision.victims] == (["low"] if helps else [])
    assert bool(decision.assigned) is helps


# Which


def test_the_best_of_those_that_hold_the_gang_wins() -> None:
    prefers = Prefers(a=100, b=20, c=60)
    world = with_plugins(spines(a=1, b=2, c=2), ByLabel(), prefers)
    assert spines_used(world.decide(*gang(world, 2))) == {"c"}
    assert [(name, there) for name, _, there in prefers.seen] == [("b", 2), ("c", 2)], "it sees the members there"


def test_equals_are_taken_in_the_usual_order() -> None:
    """The tightest domain first, though another comes first in the cluster."""
    world = with_plugins(spines(a=4, b=2), Prefers())
    assert spines_used(world.decide(*gang(world, 2, topology=Topology(keys=("spine",))))) == {"b"}


def test_domains_that_the_gang_asks_for_are_scored_too() -> None:
    prefers = Prefers(a=1)
    world = with_plugins(spines(a=4, b=2), prefers)
    assert spines_used(world.decide(*gang(world, 2, topology=Topology(keys=("spine",))))) == {"a"}
    assert [seen[0] for seen in prefers.seen] == ["b", "a"]


def test_scores_are_normalised_and_weighed() -> None:
    """Two hundredths of a large number lose to nothing; with five times the weight they win."""
    for weight, winner in ((1, "a"), (5, "b")):
        world = with_plugins(
            spines(a=2, b=2), ByLabel(), Prefers(a=30), Shares(a=90_000, b=100_000), Prefers=1, Shares=weight
        )
        assert spines_used(world.decide(*gang(world, 2))) == {winner}


def test_only_so_many_placements_are_compared() -> None:
    prefers = Prefers(z=100)
    sizes = {letter: 2 for letter in "abcdefghijkz"}
    world = with_plugins(spines(**sizes), ByLabel(), prefers)
    assert spines_used(world.decide(*gang(world, 2))) == {"a"}
    assert len(prefers.seen) == 8


def test_what_is_left_of_trying_is_only_the_best() -> None:
    world = with_plugins(spines(a=2, b=2), ByLabel(), Prefers(b=9))
    decision = world.decide(*gang(world, 2))
    assert {uid: where for uid, (_, where) in world.cluster.pods.items()} == {
        one.pod.uid: one.node for one in decision.assigned
    }
    assert int(world.cluster.used[world.cluster.resources["cpu"]].sum()) == 2000


# Whether


def test_it_is_asked_before_the_first_and_after_each_member_and_in_the_end() -> None:
    judges = Judges(lambda _: SUCCESS)
    world = with_plugins(spines(a=2), judges)
    assert len(world.decide(*gang(world, 3, min_count=1)).assigned) == 2
    assert [(one.scheduled, one.remaining) for one in judges.asked] == [(0, 3), (1, 2), (2, 1), (2, 0), (2, 0)]
    assert judges.asked[0].tasks is None


def test_members_that_have_nodes_and_tasks_are_counted() -> None:
    judges = Judges(lambda _: SUCCESS)
    world = with_plugins(spines(a=4), judges)
    world.running(pod("first", group="g", labels={TASK: "ps"}), "a0")
    gang(world, 2, min_per_task={"ps": 1, "worker": 1})
    world.decide(pod("p0", group="g", labels={TASK: "worker"}), pod("p1", group="g", labels={TASK: "worker"}))
    assert [one.tasks for one in judges.asked[:3]] == [
        {"ps": (1, 0), "worker": (0, 2)},
        {"ps": (1, 0), "worker": (1, 1)},
        {"ps": (1, 0), "worker": (2, 0)},
    ]
    assert [one.scheduled for one in judges.asked] == [1, 2, 3, 3]


def test_one_that_is_not_satisfied_in_the_end_keeps_the_gang_waiting() -> None:
    def even(progress: Progress) -> Status:
        return SUCCESS if progress.scheduled % 2 == 0 else Status(Code.WAIT, ("an even number must run",))

    world = with_plugins(spines(a=4), Judges(even))
    assert len(world.decide(*gang(world, 2)).assigned) == 2
    world = with_plugins(spines(a=4), Judges(even))
    decision = world.decide(*gang(world, 3))
    assert not decision.assigned
    assert decision.refusal is not None
    assert decision.refusal.message.endswith("cannot be placed: Judges: an even number must run")
    assert {"Judges", "NodeResourcesFit"} <= decision.refusal.plugins
    assert not world.cluster.pods


def test_a_rejection_ends_the_placement_and_the_next_is_tried() -> None:
    def at_most_once(progress: Progress) -> Status:
        """In the first placement nothing is right."""
        is_first = len(judges.asked) <= 2
        return Status(Code.UNSCHEDULABLE, ("not here",)) if is_first and progress.scheduled else SUCCESS

    judges = Judges(at_most_once)
    world = with_plugins(spines(a=3, b=3), ByLabel(), judges)
    assert spines_used(world.decide(*gang(world, 3))) == {"b"}
    assert [(one.scheduled, one.remaining) for one in judges.asked[:3]] == [(0, 3), (1, 2), (0, 3)]


def test_parts_of_a_gang_are_asked_about_one_after_the_other() -> None:
    judges = Judges(lambda _: SUCCESS)
    world = with_plugins(spines(a=4), judges)
    gang(world, 4, parts=(Parts(("part",), size=2, min_parts=2),))
    views = [pod(f"{part}{i}", group="g", labels={"part": part}) for part in "xy" for i in range(2)]
    assert len(world.decide(*views).assigned) == 4
    assert [(one.scheduled, one.remaining) for one in judges.asked] == [(0, 4), (2, 2), (4, 0), (4, 0)]


# Nobody asked


def test_the_usual_profile_asks_nobody() -> None:
    assert GroupPlugins.of(default_profile()) is None


@settings(max_examples=80, deadline=None)
@given(nodes=NODES, gangs=GANGS, seed=st.integers(0, 3))
def test_plugins_that_change_nothing_change_nothing(nodes: list[Any], gangs: list[Any], seed: int) -> None:
    def run(*plugins: Plugin) -> list[Any]:
        world, told = with_plugins(of_drawn(nodes, seed), *plugins), []
        for number, drawn in enumerate(gangs):
            _, decision = decide_gang(world, number, drawn)
            said = "" if decision.refusal is None else decision.refusal.message
            told.append((placed(decision), [str(victim.key) for victim in decision.victims], said))
            settle(world, decision)
        return told

    usual = run()
    assert run(Always(lambda parent, _: Generated(placements=[parent]))) == usual
    assert run(Judges(lambda _: SUCCESS)) == usual
    assert run(Prefers()) == usual


# Bad ones


def raising(*_: object) -> Any:
    raise ZeroDivisionError("of spines")


class Wrong(Prefers):
    name: ClassVar[str] = "Wrong"

    def __init__(self, answer: tuple[Status, Sequence[int]]) -> None:
        super().__init__()
        self.answer = answer

    def normalize_placements(self, scores: Sequence[int]) -> tuple[Status, Sequence[int]]:
        return self.answer


class ScoresWords(Prefers):
    name: ClassVar[str] = "ScoresWords"

    def score_placement(self, *_: object) -> Any:
        return "good"


BAD: list[tuple[Plugin, str]] = [
    (Always(raising), "ZeroDivisionError: of spines"),
    (Always(lambda *_: Generated(Status(Code.ERROR, ("no idea",)))), "RuntimeError: no idea"),
    (
        Always(lambda *_: Generated(placements=[Placement("x", np.ones(1, dtype=np.bool_))])),
        "ValueError: placement 'x' must have a mask over all 4 nodes, found bool of shape (1,)",
    ),
    (
        Always(lambda *_: Generated(placements=[Placement("x", np.arange(4))])),  # type: ignore[arg-type]
        "ValueError: placement 'x' must have a mask over all 4 nodes, found int64 of shape (4,)",
    ),
    (Always(lambda *_: None), "AttributeError: 'NoneType' object has no attribute 'status'"),  # type: ignore[arg-type]
    (
        Always(lambda parent, _: Generated(placements=[parent] * 5000)),
        "ValueError: it has 5000 placements, and at most 4096 can be tried",
    ),
    (Judges(raising), "ZeroDivisionError: of spines"),
    (Judges(lambda _: Status(Code.ERROR)), "RuntimeError: it failed and did not say why"),
    (Prefers(a=101), "ValueError: its score of a placement is 101, which is not in 0..100"),
    (ScoresWords(), "TypeError: 'str' object cannot be interpreted as an integer"),
    (Wrong((SUCCESS, [1])), "ValueError: it was given 2 scores to normalise and returned 1"),
    (Wrong((Status(Code.ERROR, ("no pods",)), ())), "RuntimeError: no pods"),
]


@pytest.mark.parametrize(("plugin", "error"), BAD, ids=[error for _, error in BAD])
def test_one_that_fails_is_named_and_leaves_nothing_behind(plugin: Plugin, error: str) -> None:
    groups = PodGroups()
    profile = profile_with(groups, *([] if isinstance(plugin, Always) else [ByLabel()]), plugin)
    world = spines(a=2, b=2)
    engine = Engine({DEFAULT_SCHEDULER: profile}, world.cluster, groups)
    groups.put(Group(KEY, min_count=2))
    for number in range(2):
        info = world.info(pod(f"p{number}", group="g"))
        groups.pending(info)
        engine.queue.add(info, 0.0, 0.0)
    alone = world.info(pod("alone"))
    engine.queue.add(alone, 1.0, 1.0)
    outcomes = [engine.step(1.0), engine.step(1.0)]
    faulted = next(outcome for outcome in outcomes if isinstance(outcome, Faulted))
    assert (faulted.plugin, faulted.error) == (plugin.name, error)
    decided = next(outcome for outcome in outcomes if isinstance(outcome, Decision))
    assert placed(decided).keys() == {"alone"}
    assert world.cluster.pods.keys() == {alone.uid}
    assert len(groups.members(KEY).pending) == 2


# Configuration


def engine_of(plugins: dict[str, Any], **loaded: Any) -> Any:
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "plugins": plugins}],
    }
    return configured_engine(document, loaded.get, seed=3)


def asked_by(engine: Engine) -> GroupPlugins | None:
    return GroupPlugins.of(engine.scheduler.profiles[DEFAULT_SCHEDULER])


def test_ours_score_only_where_the_configuration_names_them_for_that() -> None:
    usual, _ = engine_of({"multiPoint": {"enabled": [{"name": "NodeResourcesFit", "weight": 4}]}})
    assert asked_by(usual) is None
    named, _ = engine_of({"placementScore": {"enabled": [{"name": "PodGroupPodsCount", "weight": 7}]}})
    found = asked_by(named)
    assert found is not None
    assert [(one.plugin.name, one.weight) for one in found.scorers] == [("PodGroupPodsCount", 7)]  # type: ignore[attr-defined]
    assert not found.generators


def test_a_named_scorer_of_ours_decides() -> None:
    """The tightest rack holds what the gang needs; a larger one all that it has."""
    for scores, winner in ((frozenset[str](), "b"), (frozenset({"PodGroupPodsCount"}), "a")):
        world = spines(a=4, b=2)
        profile = replace(default_profile(Shared(world.groups)), scores_groups=scores)
        world = World(world.cluster, world.groups, 0, profile)
        decision = world.decide(*gang(world, 3, min_count=2, topology=Topology(keys=("spine",))))
        assert spines_used(decision) == {winner}


def test_a_plugin_named_where_it_has_nothing_to_say_is_told_with_its_path() -> None:
    errors = engine_of({"placementScore": {"enabled": [{"name": "ByLabel"}]}}, ByLabel=lambda _: ByLabel())
    assert [str(error) for error in errors] == [
        'profiles[0].plugins.placementScore.enabled[0].name: Invalid value: "ByLabel": '
        "the plugin does not extend placementScore"
    ]


@pytest.mark.parametrize("point", ["placementGenerate", "multiPoint"])
def test_one_from_elsewhere_is_asked_wherever_it_is_named(point: str) -> None:
    engine, _ = engine_of({point: {"enabled": [{"name": "ByLabel"}]}}, ByLabel=lambda _: ByLabel())
    found = asked_by(engine)
    assert found is not None
    assert found.names == {"ByLabel"}


# The log


class EveryOther:
    """Splits nodes into two halves by their slots."""

    name: ClassVar[str] = "EveryOther"

    def generate_placements(self, group: Group, cluster: ClusterState, parent: Placement) -> Generated:
        odd = np.arange(cluster.width) % 2 == 1
        return Generated(placements=[Placement("odd", odd), Placement("even", ~odd)])

    def score_placement(
        self, group: Group, cluster: ClusterState, placement: Placement, proposed: Sequence[tuple[PodInfo, str]]
    ) -> int:
        return len({where for _, where in proposed}) * 10


def test_decisions_with_plugins_for_groups_replay() -> None:
    def engine() -> Engine:
        made, _ = engine_of({"multiPoint": {"enabled": [{"name": "EveryOther"}]}}, EveryOther=lambda _: EveryOther())
        assert isinstance(made, Engine)
        return made

    for seed in range(4):
        history = History(seed)
        history.engine = engine()
        history.logbook = Logbook(history.engine)
        history.live(80)
        lines = list(history.logbook.lines())
        decisions, differences = replay(lines, engine(), REGISTRY)
        assert decisions > 40
        assert not differences
        usual, _ = engine_of({})
        assert replay(lines, usual, REGISTRY)[1], "without the plugin something else comes out"
