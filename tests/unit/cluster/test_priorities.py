"""Columns of pods by importance stay those of the pods that are there."""

from dataclasses import replace
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.placement.preempt_worlds import World, node, pod

from muster.cluster.priorities import HIGHEST, NOBODY, Priorities, importance_of


def check(world: World, index: Priorities | None = None) -> None:
    index = index or world.cluster.priorities
    index.refresh()
    for slot in range(world.cluster.width):
        ordered = sorted(world.cluster.pods_on[slot].values(), key=importance_of)
        kinds = index.kinds[:, slot]
        count = int(index.counts[slot])
        assert count == len(ordered)
        assert (kinds[count:] == NOBODY).all()
        assert index.priorities()[kinds[:count]].tolist() == [info.priority for info in ordered]
        assert index.needs("cpu")[kinds[:count]].tolist() == [info.needs["cpu"] for info in ordered]
        started = [inf if info.started is None else info.started for info in ordered]
        assert index.started[:count, slot].tolist() == started
    assert index.priorities()[NOBODY] == HIGHEST


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 12),
            st.integers(1, 3),
            st.integers(-1, 2),
            st.none() | st.integers(0, 9),
            st.booleans(),
        ),
        max_size=40,
    )
)
def test_columns_follow_pods_and_nodes(steps) -> None:
    world = World(*(node(f"n{number}") for number in range(3)))
    for number, (where, which, cpu, priority, started, checks) in enumerate(steps):
        if where == 3:
            world.cluster.node_removed(f"n{which % 3}")
            world.cluster.node_changed(node(f"m{number}"))
        elif which > 9 and world.cluster.pods:
            world.cluster.release(sorted(world.cluster.pods)[0])
        else:
            world.cluster.assign(world.info(pod(f"p{which}", cpu=cpu, priority=priority, started=started)), f"n{where}")
        if checks:
            check(world)
    check(world)


def test_a_long_log_starts_afresh() -> None:
    world = World(node("n"))
    index = Priorities(world.cluster.pods_on, longest_log=5)
    world.cluster.observers.append(index)
    for number in range(12):
        world.put("n", pod(f"p{number}", priority=number))
        check(world, index)
    assert index.epoch > 0
    assert len(index.changed) <= 5


def test_kinds_that_are_gone_are_forgotten() -> None:
    world = World(node("n"))
    index = Priorities(world.cluster.pods_on, most_kinds=4)
    world.cluster.observers.append(index)
    for number in range(12):
        info = world.info(pod("p"))
        world.cluster.assign(replace(info, needs=dict(info.needs), priority=number), "n")
        check(world, index)
    assert len(index.priorities()) < 12


def test_an_index_over_nothing_is_empty() -> None:
    index = Priorities([])
    index.refresh()
    assert index.priorities().tolist() == [HIGHEST]
