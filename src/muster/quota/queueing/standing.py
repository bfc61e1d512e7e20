"""Where everybody stands who waits in one ClusterQueue.

Thousands may wait, and whoever asks shares a loop with those who decide: the order is worked out in steps, between
which others can have their turn.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from muster.quota.workloads import WorkloadInfo

STEP: Final = 1000
"""So many workloads take a millisecond or two."""
SortKey: TypeAlias = Callable[[WorkloadInfo], tuple[object, ...]]


class Position(NamedTuple):
    """Where a workload stands, counted from 0: so many are ahead of it."""

    info: WorkloadInfo
    in_queue: int
    in_local_queue: int


class Standing(Mapping[str, Position]):
    """By key, in the order in which they would be looked at. Does not change any more."""

    def __init__(self, ordered: Sequence[WorkloadInfo], places: Mapping[str, int], beside: Sequence[int]) -> None:
        """`places`: of each key in `ordered`; `beside`: how many of its local queue are ahead of each."""
        self._ordered = ordered
        self._places = places
        self._beside = beside

    def __getitem__(self, key: str) -> Position:
        return self._at(self._places[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._ordered)

    def page(self, offset: int = 0, limit: int | None = None) -> list[Position]:
        end = len(self._ordered) if limit is None else min(offset + limit, len(self._ordered))
        return [self._at(place) for place in range(offset, end)]

    def local_page(self, local_queue: str, offset: int = 0, limit: int | None = None) -> list[Position]:
        """Of those who came through one local queue."""
        places = (place for place, info in enumerate(self._ordered) if info.local_queue == local_queue)
        return [self._at(place) for place in islice(places, offset, None if limit is None else offset + limit)]

    def _at(self, place: int) -> Position:
        return Position(self._ordered[place], place, self._beside[place])


def line_up(everyone: Sequence[WorkloadInfo], key: SortKey, step: int = STEP) -> Generator[None, None, Standing]:
    """In steps that do not take long; the last one returns the outcome."""
    keyed: list[tuple[tuple[object, ...], WorkloadInfo]] = []
    first = itemgetter(0)
    for some in _slices(everyone, step):
        keyed += sorted(((key(info), info) for info in some), key=first)
        yield
    keyed.sort(key=first)  # of runs that are in order already: one pass
    ordered = [info for _, info in keyed]
    yield
    places: dict[str, int] = {}
    ahead: dict[str, int] = {}
    beside: list[int] = []
    for some in _slices(ordered, step):
        for info in some:
            places[info.key] = len(beside)
            before = ahead.get(info.local_queue, 0)
            ahead[info.local_queue] = before + 1
            beside.append(before)
        yield
    return Standing(ordered, places, beside)


def at_once(steps: Generator[None, None, Standing]) -> Standing:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            outcome: Standing = done.value
            return outcome


def _slices(listed: Sequence[WorkloadInfo], step: int) -> Iterator[Sequence[WorkloadInfo]]:
    return (listed[start : start + step] for start in range(0, len(listed), step))
