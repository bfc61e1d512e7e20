"""Phase 2: which domains of a level take the pods, and how many slices each.

Best fit takes the largest domains first and, for what is left at the end, the tightest. Least free capacity takes the
smallest first. A domain that has room for the leader goes before both.
"""

from dataclasses import dataclass

import numpy as np

from muster.cluster.columns import Amounts, NodeMask
from muster.cluster.domains import Positions
from muster.quota.topology.counting import Counts, LevelCounts


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """So many slices for each of these domains; the leader, where there is one, goes to the first."""

    rows: Positions
    slices: Amounts
    is_led: bool = False

    def of(self, rows: Positions) -> "Share":
        """The same, where `self.rows` count within `rows`."""
        return Share(rows[self.rows], self.slices, self.is_led)


@dataclass(frozen=True, slots=True)
class Missing:
    """Not all slices fit, or not with the leader. `fit`: how many do; `domain` is the one that holds them, None where
    they are all that the whole topology holds."""

    fit: int
    domain: int | None = None


def in_order(counts: LevelCounts, *, ascending: bool = False) -> Positions:
    """Domains in the order in which they are filled: those that the pods prefer, then by slices, then the ones that
    waste fewer pods, then by level values."""
    if counts.slices is counts.pods and counts.affinity is None:
        return np.argsort(counts.slices if ascending else -counts.slices, kind="stable")
    keys = [counts.pods, counts.slices if ascending else -counts.slices]
    if counts.affinity is not None:
        keys.append(-counts.affinity)
    return np.lexsort(keys)


def in_order_led(counts: LevelCounts, *, ascending: bool = False) -> Positions:
    """The same for slices with the leader: those that have room for it come first."""
    keys = [counts.pods_led, counts.slices_led if ascending else -counts.slices_led]
    if counts.affinity is not None:
        keys.append(-counts.affinity)
    if counts.leaders is not None:
        keys.append(-counts.leaders)
    return np.lexsort(keys)


def one_domain(counts: LevelCounts, wanted: int, *, is_first_choice: bool) -> int | None:
    """The tightest domain that takes all slices, and the leader. `is_first_choice`: where pods prefer some domains,
    one of those that they prefer most, or none."""
    enough = counts.slices_led >= wanted
    if counts.leaders is not None:
        enough &= counts.leaders > 0
    if not enough.any():
        return None
    if counts.affinity is None:
        return _tightest(counts, enough)
    order = in_order_led(counts)
    fitting = order[enough[order]]
    best = order if is_first_choice else fitting
    enough &= counts.affinity == counts.affinity[best[0]]
    return _tightest(counts, enough) if enough.any() else None


def _tightest(counts: LevelCounts, enough: NodeMask) -> int:
    """The one with the fewest slices, then pods, then the first."""
    rows = np.flatnonzero(enough)
    slices = counts.slices_led[rows]
    if counts.slices is counts.pods:
        return int(rows[slices.argmin()])
    rows = rows[slices == slices.min()]
    return int(rows[counts.pods_led[rows].argmin()])


def shared(
    counts: LevelCounts, wanted: int, *, is_led: bool, ascending: bool, by_leader: bool = False
) -> Share | Missing:
    """The slices over as many domains as it takes, the leader in the first. `by_leader`: domains are asked to take the
    leader in the order of what they hold beside it."""
    order = in_order(counts, ascending=ascending)
    if not is_led:
        return _filled(counts, order, wanted, ascending=ascending)
    leader = _leader_domain(counts, in_order_led(counts, ascending=ascending) if by_leader else order, wanted)
    if leader is None:
        return Missing(0)
    taken = min(int(counts.slices_led[leader]), wanted)
    if taken == wanted and not ascending:
        leader = _tightest_leader(counts, leader, wanted)
    rest = _filled(counts, order[order != leader], wanted - taken, ascending=ascending)
    if isinstance(rest, Missing):
        return Missing(taken + rest.fit)
    return Share(np.append(leader, rest.rows), np.append(taken, rest.slices), is_led=True)


def _tightest_leader(counts: LevelCounts, leader: int, wanted: int) -> int:
    assert counts.leaders is not None
    enough = (counts.leaders > 0) & (counts.slices_led >= wanted)
    if counts.affinity is not None:
        enough &= counts.affinity == counts.affinity[leader]
    return _tightest(counts, enough)


def _leader_domain(counts: LevelCounts, order: Positions, wanted: int) -> int | None:
    """The first that has room for the leader and leaves enough for all slices."""
    assert counts.leaders is not None
    capable = order[counts.leaders[order] > 0]
    if not len(capable):
        return None
    lost = counts.slices[capable] - counts.slices_led[capable]
    fine = np.flatnonzero(counts.slices[order].sum() - lost >= wanted)
    return int(capable[fine[0]] if len(fine) else capable[0])


def _filled(counts: LevelCounts, order: Positions, wanted: int, *, ascending: bool) -> Share | Missing:
    if wanted <= 0:
        return Share(order[:0], np.zeros(0, dtype=np.int64))
    room = counts.slices[order]
    filled = room.cumsum()
    last = int(filled.searchsorted(wanted))
    if last == len(order):
        return Missing(int(filled[-1]) if len(filled) else 0)
    left = wanted - (int(filled[last - 1]) if last else 0)
    final = last if ascending else last + _tightest_from(counts, order[last:], room[last:], left)
    rows, slices = order[: last + 1].copy(), room[: last + 1].copy()
    rows[last], slices[last] = order[final], left
    used = slices > 0
    return Share(rows, slices) if used.all() else Share(rows[used], slices[used])


def _tightest_from(counts: LevelCounts, order: Positions, room: Amounts, left: int) -> int:
    """Place in `order` of the one with the least room that is enough, the first of its like. Not one that the pods
    prefer less than the first."""
    enough = room >= left
    if counts.affinity is not None:
        preference = counts.affinity[order]
        enough &= preference == preference[0]
    places = np.flatnonzero(enough)
    return int(places[room[places].argmin()])


def choose(counts: Counts, wanted: int, *, is_led: bool, ascending: bool) -> tuple[int, Share] | Missing:
    """The level at which the slices fit, and the domains there: one, or several at the top where that is allowed."""
    shape, level = counts.shape, counts.shape.level
    while True:
        here = counts.at(level)
        found = one_domain(here, wanted, is_first_choice=not (shape.is_required or ascending))
        if found is not None:
            return level, Share(np.array([found]), np.array([wanted]), is_led)
        if shape.is_required:
            top = int(in_order_led(here)[0])
            return Missing(int(here.slices[top]), top)
        if level == 0 or shape.is_unconstrained:
            break
        level -= 1
    share = shared(here, wanted, is_led=is_led, ascending=ascending, by_leader=True)
    return share if isinstance(share, Missing) else (level, share)
