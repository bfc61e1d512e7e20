"""The quick search answers as trying node by node does, also after pods have come and gone."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.placement.preempt_worlds import World, names, node, pod

from muster.api.selectors import parse_labels
from muster.cluster.groups import Group, GroupKey
from muster.placement.preempting import Budget, Budgets, NoPreemption, Options, Preemption, Protected, QuickSearch, find
from muster.placement.preempting.candidates import Candidate, best, cost
from muster.placement.preempting.finding import resolvable_nodes
from muster.placement.preempting.ranking import Costs, Wanted, rate
from muster.placement.preempting.selecting import dry_run

NODES = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 64), st.integers(1, 6), st.booleans(), st.booleans()),
    min_size=1,
    max_size=5,
)
PODS = st.tuples(
    st.integers(0, 3),  # cpu
    st.integers(0, 32),  # memory
    st.integers(-1, 2),  # priority
    st.none() | st.integers(0, 3),  # started
    st.sampled_from(("", "a", "b")),  # label
    st.sampled_from(("", "", "known", "unknown")),  # group
)
SHIELDS = st.sets(st.integers(0, 13), max_size=4)


def everywhere(offset: int, world: World) -> Options:
    return Options(offset, min_percentage=100, min_absolute=1000, groups=world.groups, protected=Protected())


@settings(deadline=None, max_examples=50)
@given(
    nodes=NODES,
    pods=st.lists(st.tuples(st.integers(0, 4), PODS), max_size=14),
    wanted=st.tuples(st.integers(0, 4), st.integers(0, 40), st.integers(0, 3)),
    allowed=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2)), max_size=2),
    group_priority=st.none() | st.integers(-1, 3),
    changes=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4), PODS), max_size=4),
    shielded=SHIELDS,
    offset=st.integers(0, 7),
)
def test_quick_search_agrees_with_trying_node_by_node(
    nodes, pods, wanted, allowed, group_priority, changes, shielded, offset
) -> None:
    world = World(
        *(
            node(f"n{number}", cpu=cpu, memory=memory, pods=most, cordoned=cordoned and also)
            for number, (cpu, memory, most, cordoned, also) in enumerate(nodes)
        )
    )
    world.groups.put(Group(GroupKey("here", "known"), priority=group_priority))

    def put(number: int, where: int, described: tuple) -> None:
        cpu, memory, priority, started, label, group = described
        labels = {"app": label} if label else {}
        view = pod(f"p{number}", cpu=cpu, memory=memory, priority=priority, started=started, labels=labels, group=group)
        world.put(f"n{where % len(nodes)}", view)

    for number, (where, described) in enumerate(pods):
        put(number, where, described)
    budgets = Budgets(Budget("here", parse_labels(f"app={label}"), most) for label, most in allowed)
    cpu, memory, priority = wanted
    preemptor = world.info(pod("preemptor", cpu=cpu, memory=memory, priority=priority))
    judgement = world.judge(preemptor)
    quick = QuickSearch(judgement, world.cluster)
    options = everywhere(offset, world)
    for number in shielded:
        options.protected.tell_pod(f"uid of p{number}", is_protected=True, is_placed=True)
    for step in range(len(changes) + 1):
        judgement.refresh()
        assert quick.applies(preemptor, options)
        found = find(preemptor, judgement, world.cluster, budgets, options, quick=quick)
        slowly = find(preemptor, judgement, world.cluster, budgets, options)
        if isinstance(slowly, NoPreemption):
            assert found == slowly
        else:
            assert isinstance(found, Preemption)
            assert not {f"p{number}" for number in shielded} & set(names(found.victims))
            slots = np.flatnonzero(resolvable_nodes(judgement, world.cluster)).tolist()
            tried = dry_run(preemptor, slots, judgement, world.cluster, budgets, options).candidates
            same_node = next(candidate for candidate in tried if candidate.node == found.node)
            assert names(found.victims) == names(same_node.victims)
            assert found.violations == same_node.violations
            chosen = best(tried)
            assert chosen is not None
            assert cost(same_node) == cost(chosen)
        if shielded:
            options.protected.tell_pod(f"uid of p{shielded.pop()}", is_protected=False, is_placed=True)
        if step < len(changes):
            choice, where, described = changes[step]
            present = sorted(world.cluster.pods)
            if choice % 2 and present:
                world.remove(world.cluster.pods[present[choice % len(present)]][0])
            else:
                put(100 + step, where, described)


@settings(deadline=None, max_examples=50)
@given(
    pods=st.lists(st.tuples(st.integers(0, 3), PODS), min_size=1, max_size=60),
    wanted=st.tuples(st.integers(0, 4), st.integers(0, 40), st.integers(0, 3)),
)
def test_costs_of_all_nodes_at_once_are_those_of_each(pods, wanted) -> None:
    world = World(*(node(f"n{number}", cpu=5, pods=20) for number in range(4)))
    for number, (where, (cpu, memory, priority, started, _label, _group)) in enumerate(pods):
        # Half of the pods on one node: it has many more places than the others.
        home = "n0" if number % 2 else f"n{where}"
        world.put(home, pod(f"p{number}", cpu=cpu, memory=memory, priority=priority, started=started))
    cpu, memory, priority = wanted
    request = [("pods", 1), *([("cpu", cpu * 1000)] if cpu else []), *([("memory", memory)] if memory else [])]
    asked = Wanted.of(request, priority, world.cluster)
    assert asked is not None
    costs = Costs.nothing(world.cluster.width)
    rate(asked, world.cluster, np.arange(world.cluster.width), costs)
    for slot in range(world.cluster.width):
        slowly = one_node(world, slot, request, priority)
        assert bool(costs.is_candidate[slot]) == (slowly is not None)
        if slowly is not None:
            found = (costs.violations, costs.highest, costs.total, costs.count, -costs.earliest)
            assert tuple(column[slot] for column in found) == cost(slowly)


COSTS = st.none() | st.tuples(*[st.integers(0, 1)] * 4, st.integers(0, 1))


@given(changes=st.lists(st.tuples(st.integers(0, 5), COSTS, st.integers(0, 6)), min_size=1, max_size=40))
def test_the_cheapest_that_is_kept_up_to_date_is_the_one_found_by_looking_at_all(changes) -> None:
    kept = Costs.nothing(6)
    for slot, costs, start in changes:
        kept.is_candidate[slot] = costs is not None
        if costs is not None:
            columns = (kept.violations, kept.highest, kept.total, kept.count, kept.earliest)
            for column, value in zip(columns, costs, strict=True):
                column[slot] = value
        kept.changed(slot)
        afresh = Costs(kept.is_candidate, kept.violations, kept.highest, kept.total, kept.count, kept.earliest)
        assert kept.cheapest(start) == afresh.cheapest(start)


def one_node(world: World, slot: int, request: list[tuple[str, int]], priority: int) -> Candidate | None:
    """The rules in the fewest words."""
    cluster = world.cluster
    left = {name: int(cluster.allocatable[cluster.resources[name], slot]) - amount for name, amount in request}
    lower, victims = [], []
    for info in cluster.pods_on[slot].values():
        if info.priority < priority:
            lower.append(info)
        else:
            left = {name: amount - info.needs.get(name, 0) for name, amount in left.items()}
    if not lower or min(left.values()) < 0:
        return None
    for info in sorted(
        lower, key=lambda info: (-info.priority, float("inf") if info.started is None else info.started, info.uid)
    ):
        after = {name: amount - info.needs.get(name, 0) for name, amount in left.items()}
        if min(after.values()) < 0:
            victims.append(info)
        else:
            left = after
    return Candidate(cluster.names[slot], tuple(victims)) if victims else None


def test_quick_search_leaves_pods_that_need_more_than_resources_to_the_slow_way() -> None:
    world = World(node("n"))
    anti = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
            ]
        }
    }
    world.put("n", pod("other", labels={"app": "a"}))
    picky = world.info(pod("picky", priority=5, affinity=anti))
    assert not QuickSearch(world.judge(picky), world.cluster).applies(picky, Options())
    plain = world.info(pod("plain", priority=5))
    quick = QuickSearch(world.judge(plain), world.cluster)
    assert quick.applies(plain, Options())
    assert not quick.applies(plain, Options(may_evict=lambda _victim, _node, _preemptor: True))
    world.groups.put(Group(GroupKey("here", "whole"), is_evicted_whole=True))
    assert not quick.applies(plain, Options(groups=world.groups))


def test_of_equal_nodes_the_first_from_the_offset_on_suffers() -> None:
    world = World(*(node(f"n{number}", cpu=1) for number in range(4)))
    for number in range(4):
        world.put(f"n{number}", pod(f"p{number}"))
    preemptor = world.info(pod("preemptor", priority=1))
    judgement = world.judge(preemptor)
    quick = QuickSearch(judgement, world.cluster)
    for offset, chosen in ((0, "n0"), (2, "n2"), (3, "n3"), (5, "n1")):
        for search in (quick, None):
            found = find(preemptor, judgement, world.cluster, Budgets(), Options(offset), quick=search)
            assert isinstance(found, Preemption)
            assert found.node == chosen
