"""Balanced placement: as few domains as a greedy choice needs, each with about as many slices as the others.

On two levels: the one that is preferred, where the fewest domains are chosen, and the one below, where slices are
dealt out evenly. The threshold is how many slices the least of the domains gets.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from muster.cluster.columns import Amounts
from muster.cluster.domains import Positions
from muster.quota.topology.choosing import Share, in_order, in_order_led
from muster.quota.topology.counting import Counts, LevelCounts, rolled_up
from muster.quota.topology.requests import Shape
from muster.quota.topology.tree import Span


@dataclass(frozen=True, slots=True, eq=False)
class Siblings:
    """Domains of the preferred level that have one parent (a range), and what they hold of domains that hold no less
    than the threshold."""

    first: int
    counts: LevelCounts
    below: LevelCounts
    """The domains among which slices are dealt out: their children, or they themselves."""
    starts: Positions
    """[sibling] → where its children begin in `below`; one place more, for the end."""
    threshold: int
    domains_needed: int


@dataclass(frozen=True, slots=True)
class Greedy:
    """How many domains a greedy choice takes, and what the least of them hold."""

    domains: int
    least: int


def balance(counts: Counts, wanted: int, *, is_led: bool) -> tuple[int, Share] | None:
    """The level on which the slices were dealt out evenly, and the domains there. None where they cannot be."""
    best = best_siblings(counts, wanted, is_led=is_led)
    if best is None:
        return None
    shape, tree = counts.shape, counts.tree
    if shape.level == shape.slice_level:
        share = dealt_evenly(best.counts, wanted, best.threshold, is_led=is_led)
        return None if share is None else (shape.level, share.of(np.arange(len(best.counts)) + best.first))
    chosen = fewest_domains(best.counts, wanted, entropies(best.below, best.starts), is_led=is_led)
    if chosen is None:
        return None
    rows = np.concatenate([np.arange(best.starts[one], best.starts[one + 1]) for one in np.sort(chosen)])
    share = dealt_evenly(best.below.take(rows), wanted, best.threshold, is_led=is_led)
    return None if share is None else (shape.level + 1, share.of(rows + tree.first_child[shape.level][best.first]))


def best_siblings(counts: Counts, wanted: int, *, is_led: bool) -> Siblings | None:
    """Those with the highest threshold, then those that need the fewest domains, then the first."""
    best: Siblings | None = None
    for family in _families(counts):
        found = _judged(counts, family, wanted, is_led=is_led)
        if found is None:
            continue
        if best is None or (found.threshold, -found.domains_needed) > (best.threshold, -best.domains_needed):
            best = found
    return best


def _families(counts: Counts) -> Iterator[Span]:
    level, tree = counts.shape.level, counts.tree
    if level == 0:
        yield slice(0, tree.size(0))
        return
    for parent in np.flatnonzero(counts.at(level - 1).slices).tolist():
        yield tree.children(level - 1, parent)


def _judged(counts: Counts, family: Span, wanted: int, *, is_led: bool) -> Siblings | None:
    shape, tree = counts.shape, counts.tree
    is_same_level = shape.level == shape.slice_level
    if is_same_level:
        starts, below = np.arange(family.stop - family.start + 1), counts.at(shape.level).take(family)
    else:
        bounds = tree.first_child[shape.level][family.start : family.stop + 1]
        starts = bounds - bounds[0]
        below = counts.at(shape.level + 1).take(slice(int(bounds[0]), int(bounds[-1])))
    first = greedy(below, wanted, is_led=is_led)
    if first is None:
        return None
    # Without what holds less than the threshold it may no longer fit: then a lower one may do.
    for threshold in range(min(wanted // first.domains, first.least), 0, -1):
        left = pruned(below, threshold)
        here = left if is_same_level else rolled_up(left, starts[:-1], shape.level, shape)
        needed = greedy(here, wanted, is_led=is_led)
        if needed is not None:
            return Siblings(family.start, here, left, starts, threshold, needed.domains)
    return None


def greedy(counts: LevelCounts, wanted: int, *, is_led: bool) -> Greedy | None:
    """None where it does not fit."""
    domains, least, left = 0, wanted, wanted
    order = in_order(counts)
    if is_led:
        leader = int(in_order_led(counts)[0])
        if counts.leaders is None or not counts.leaders[leader]:
            return None
        room = int(counts.slices_led[leader])
        domains, least, left = 1, room, wanted - room
        order = order[order != leader]
    if left > 0:
        filled = counts.slices[order].cumsum()
        last = int(filled.searchsorted(left))
        if last == len(order):
            return None
        domains += last + 1
        least = min(least, int(counts.slices[order[last]]))
    return Greedy(max(domains, 1), least)


def pruned(counts: LevelCounts, threshold: int) -> LevelCounts:
    """Without domains that hold fewer slices than the threshold, and without room for the leader where it would leave
    fewer."""
    holds = counts.slices >= threshold
    pods, slices = np.where(holds, counts.pods, 0), np.where(holds, counts.slices, 0)
    if counts.leaders is None:
        return LevelCounts(pods, slices, pods, slices, None, counts.affinity)
    leads = holds & (counts.leaders > 0) & (counts.slices_led >= threshold)
    pods_led, slices_led, leaders = (
        np.where(leads, column, 0) for column in (counts.pods_led, counts.slices_led, counts.leaders)
    )
    return LevelCounts(pods, slices, pods_led, slices_led, leaders, counts.affinity)


def entropies(below: LevelCounts, starts: Positions) -> npt.NDArray[np.float64]:
    """[domain] → how evenly its children hold pods, as Shannon has it."""
    bounds = zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
    return np.array([entropy(below.pods[start:end]) for start, end in bounds])


def entropy(pods: Amounts) -> float:
    shares = pods[pods > 0] / max(int(pods.sum()), 1)
    return float(-(shares * np.log2(shares)).sum())


def by_capacity_and_entropy(counts: LevelCounts, entropies: npt.NDArray[np.float64]) -> Positions:
    """Domains in order: room for the leader, then slices beside it, then evenness, then level values."""
    # Rounded: sums in different orders must not tell equal domains apart.
    keys: list[npt.NDArray[np.float64 | np.int64]] = [-entropies.round(9), -counts.slices_led]
    if counts.leaders is not None:
        keys.append(-counts.leaders)
    return np.lexsort(keys)


def dealt_evenly(counts: LevelCounts, wanted: int, threshold: int, *, is_led: bool) -> Share | None:
    """The threshold for each of the fewest domains, and the rest to the first that have room."""
    chosen = fewest_domains(counts, wanted, is_led=is_led)
    if chosen is None or wanted < len(chosen) * threshold:
        return None
    room = counts.take(chosen)
    order = in_order_led(room) if is_led else in_order(room)
    slices, left = np.full(len(chosen), threshold, dtype=np.int64), wanted - threshold * len(chosen)
    for place, domain in enumerate(order.tolist()):
        holds = int((room.slices_led if is_led and place == 0 else room.slices)[domain])
        if holds < threshold:
            return None
        more = min(holds - threshold, left)
        slices[place] += more
        left -= more
    if left or (is_led and not (room.leaders is not None and room.leaders[order[0]])):
        return None
    return Share(chosen[order], slices, is_led)


def fewest_domains(
    counts: LevelCounts, wanted: int, evenness: npt.NDArray[np.float64] | None = None, *, is_led: bool
) -> Positions | None:
    """The smallest set that holds all slices and the leader, of those the one that holds the least more. Ties fall to
    domains that come first in order: by `evenness` too where that is given."""
    size = greedy(counts, wanted, is_led=is_led)
    if size is None:
        return None
    if evenness is not None:
        order = by_capacity_and_entropy(counts, evenness)
    else:
        order = in_order_led(counts) if is_led else in_order(counts)
    return _Sets(size.domains, wanted, is_led).least(counts, _enough_of_each(counts, order, size.domains))


def _enough_of_each(counts: LevelCounts, order: Positions, most: int) -> Positions:
    """Of domains that hold the same, no more than can be in a set."""
    seen: dict[tuple[int, int, bool], int] = {}
    kept: list[int] = []
    for domain in order.tolist():
        leads = counts.leaders is not None and bool(counts.leaders[domain])
        like = (int(counts.slices[domain]), int(counts.slices_led[domain]), leads)
        seen[like] = seen.get(like, 0) + 1
        if seen[like] <= most:
            kept.append(domain)
    return np.array(kept, dtype=np.intp)


class _Sets:
    """Sets of domains by what is left to place after them: for each size, and with or without the leader placed, the
    first set found for each number. Numbers below zero are surplus."""

    def __init__(self, size: int, wanted: int, is_led: bool) -> None:
        self._size = size
        self._is_led = is_led
        self._sets: list[dict[tuple[int, bool], tuple[int, ...]]] = [{} for _ in range(size + 1)]
        self._sets[0][wanted, not is_led] = ()

    def least(self, counts: LevelCounts, order: Positions) -> Positions | None:
        room = counts.slices[order]
        most_later = np.append(np.maximum.accumulate(room[::-1])[::-1][1:], 0).tolist()
        for domain, later in zip(order.tolist(), most_later, strict=True):
            leads = counts.leaders is not None and bool(counts.leaders[domain])
            self._add(domain, int(counts.slices[domain]), int(counts.slices_led[domain]) if leads else None, later)
        fitting = [(left, found) for (left, is_placed), found in self._sets[-1].items() if left <= 0 and is_placed]
        if not fitting:
            return None
        return np.array(max(fitting, key=lambda fit: fit[0])[1], dtype=np.intp)

    def _add(self, domain: int, room: int, room_led: int | None, later: int) -> None:
        """`later`: the most that any domain after this one holds. Sets that those could not complete are dropped."""
        for size in range(self._size, 0, -1):
            larger, most = self._sets[size], (self._size - size) * later
            for (left, is_placed), members in self._sets[size - 1].items():
                if left <= 0 and is_placed:
                    continue  # full: one more would only make the set larger than it need be
                if room_led is not None and not is_placed and left - room_led <= most:
                    larger.setdefault((left - room_led, True), (*members, domain))
                if 0 < left <= most + room:
                    larger.setdefault((left - room, is_placed), (*members, domain))


def can_be_balanced(shape: Shape) -> bool:
    """Whether the request can be balanced: it prefers a level, and has no slices within slices."""
    return not shape.is_required and not shape.is_unconstrained and not shape.inner
