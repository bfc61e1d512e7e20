"""Pods that services select: what is remembered of their classes must hold whatever services come and go."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.placement.preempt_worlds import node, pod
from tests.unit.placement.test_scheduling import World, _totals, world_of

from muster.api.objects import Key
from muster.placement.judging import Judgement

_NODES = 5


def a_world() -> World:
    return world_of(*(node(f"n{number}", labels=_labels(number)) for number in range(_NODES)))


def _labels(number: int) -> dict[str, str]:
    return {"kubernetes.io/hostname": f"n{number}", "topology.kubernetes.io/zone": f"z{number % 2}"}


def a_member(job: int, index: int) -> Any:
    return pod(f"p{job}-{index}", labels={"job": str(job), "index": str(index)})


def test_members_of_a_job_whose_service_selects_them_all_are_one_class() -> None:
    world = a_world()
    world.cluster.pod_selectors.service_changed(Key("here", "j"), {"job": "1"})
    first, second, other = (world.info(a_member(*member)) for member in ((1, 0), (1, 1), (2, 0)))
    assert world.scheduler.judge(first) is world.scheduler.judge(second)
    assert world.scheduler.judge(first) is not world.scheduler.judge(other)


def test_a_service_that_selects_others_does_not_make_a_judgement_start_afresh() -> None:
    world = a_world()
    world.cluster.pod_selectors.service_changed(Key("here", "j"), {"job": "1"})
    member = world.info(a_member(1, 0))
    before = world.scheduler.judge(member).feasible
    world.cluster.pod_selectors.service_changed(Key("here", "k"), {"job": "2"})
    assert world.scheduler.judge(member).feasible is before


steps = st.lists(
    st.one_of(
        st.tuples(st.just("service"), st.integers(0, 3), st.sampled_from([{}, {"index": "0"}]), st.integers(0, 1)),
        st.tuples(st.just("gone"), st.integers(0, 3), st.none(), st.none()),
        st.tuples(st.just("put"), st.integers(0, 1), st.integers(0, 2), st.integers(0, _NODES - 1)),
        st.tuples(st.just("ask"), st.integers(0, 1), st.integers(0, 2), st.none()),
    ),
    max_size=25,
)


@settings(max_examples=50)
@given(steps=steps)
def test_a_judgement_that_followed_services_equals_one_made_afresh(steps: list[Any]) -> None:
    world = a_world()
    selectors = world.cluster.pod_selectors
    for what, first, second, third in steps:
        match what:
            case "service":
                selectors.service_changed(Key("here", f"s{first}"), {**second, "job": str(third)})
            case "gone":
                selectors.service_removed(Key("here", f"s{first}"))
            case "put":
                world.cluster.assign(world.info(a_member(first, second)), f"n{third}")
            case "ask":
                subject = world.info(a_member(first, second))
                followed = world.scheduler.judge(subject)
                afresh = Judgement(world.scheduler.profile_of(subject), subject, world.cluster)
                assert followed.feasible.tolist() == afresh.feasible.tolist()
                assert _totals(followed) == _totals(afresh)
