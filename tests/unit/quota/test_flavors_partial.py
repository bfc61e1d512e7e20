"""Partial admission finds the largest counts that are not refused."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota.flavor_worlds import World, pods

from muster.quota.partial import CountRange, count_ranges, search_partial

RANGES = st.lists(
    st.integers(0, 9).flatmap(lambda count: st.builds(CountRange, st.just(count), st.integers(0, count))), max_size=4
)


@given(RANGES, st.integers(0, 40))
def test_finds_what_trying_all_reductions_finds(ranges: list[CountRange], limit: int) -> None:
    def attempt(counts: Sequence[int]) -> list[int] | None:
        return list(counts) if sum(counts) <= limit else None

    leeway = [one.count - one.least for one in ranges]
    most = sum(leeway)
    every = [
        [one.count - part * step // most for one, part in zip(ranges, leeway, strict=True)]
        for step in range(most + 1 if most else 0)
    ]
    assert search_partial(ranges, attempt) == next((counts for counts in every if sum(counts) <= limit), None)


def test_pods_that_are_done_are_not_asked_for_again() -> None:
    world = World()
    info = world.workload(
        pods("a", 5, least=2), pods("b", 3), pods("c", 4, least=3), reclaimablePods=[{"name": "c", "count": 2}]
    )
    assert count_ranges(info) == [CountRange(5, 2), CountRange(3, 3), CountRange(2, 2)]
