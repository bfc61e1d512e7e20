"""The line of those who wait, worked out in steps."""

from hypothesis import given
from hypothesis import strategies as st

from muster.api import kueue
from muster.api.meta import ObjectMeta
from muster.quota.queueing import standing
from muster.quota.settings import Settings
from muster.quota.workloads import WorkloadInfo


def infos(doors):
    made = []
    for number, door in enumerate(doors):
        view = kueue.Workload(
            metadata=ObjectMeta(namespace="ns", name=f"w{number}"), spec=kueue.WorkloadSpec(queue_name=door)
        )
        made.append(WorkloadInfo(view, "cq", Settings()))
    return made


@given(doors=st.lists(st.sampled_from("abc"), max_size=30), step=st.integers(1, 7), data=st.data())
def test_in_steps_or_at_once_everybody_stands_where_plain_sorting_puts_them(doors, step, data):
    everyone = infos(doors)
    ranks = {info.key: data.draw(st.integers(0, 3)) for info in everyone}

    def key(info):
        return ranks[info.key], info.key

    found = standing.at_once(standing.line_up(everyone, key, step))
    expected = sorted(everyone, key=key)
    assert [position.info for position in found.page()] == expected
    assert list(found) == [info.key for info in expected]
    assert len(found) == len(everyone)
    for place, info in enumerate(expected):
        beside = [other for other in expected[:place] if other.local_queue == info.local_queue]
        assert found[info.key] == (info, place, len(beside))
    for door in "abc":
        there = found.local_page(f"ns/{door}")
        assert [position.info for position in there] == [info for info in expected if info.local_queue == f"ns/{door}"]
        assert [position.in_local_queue for position in there] == list(range(len(there)))
        assert found.local_page(f"ns/{door}", 1, 2) == there[1:3]
    assert found.page(2, 3) == found.page()[2:5]


def test_a_long_line_takes_many_steps():
    steps = standing.line_up(infos("a" * 2500), lambda info: (info.key,))
    assert sum(1 for _ in steps) == 7  # three to order, one to join, three to count
