"""Phase 2b: from the domains that were chosen down to the leaves.

Above the level of the slices, all slices are dealt out anew among the children of all chosen domains. At it and below,
each domain deals out its own pods among its own children, one by one or in the slices of an inner layer.
"""

import numpy as np

from muster.cluster.columns import Amounts
from muster.cluster.domains import Positions
from muster.quota.topology.choosing import Missing, Share, shared
from muster.quota.topology.counting import Counts, LevelCounts


def descend(counts: Counts, level: int, chosen: Share, *, ascending: bool, stays_put: bool = False) -> Share:
    """From domains of the level to leaves; in slices on the way in, in pods on the way out. `stays_put`: what a domain
    was given stays in it above the level of the slices too."""
    tree, shape = counts.tree, counts.shape
    while level < shape.slice_level:
        below = counts.at(level + 1)
        if stays_put:
            chosen = _each(counts, level, chosen, below, ascending=ascending)
        else:
            rows = tree.pooled_children(level, chosen.rows)
            wanted = int(chosen.slices.sum())
            chosen = _certain(shared(below.take(rows), wanted, is_led=chosen.is_led, ascending=ascending)).of(rows)
        level += 1
    pods = Share(chosen.rows, chosen.slices * shape.slice_size, chosen.is_led)
    while level < tree.lowest:
        size = shape.size_at(level + 1)
        units = Share(pods.rows, pods.slices // size, pods.is_led)
        dealt = _each(counts, level, units, counts.at(level + 1), ascending=ascending, unit=size)
        pods = Share(dealt.rows, dealt.slices * size, dealt.is_led)
        level += 1
    return pods


def _each(
    counts: Counts, level: int, given: Share, below: LevelCounts, *, ascending: bool, unit: int | None = None
) -> Share:
    """Each domain's part among its own children. `unit`: the pods that make one of what is dealt out, where those are
    not the slices of the request."""
    rows: list[Positions] = []
    parts: list[Amounts] = []
    for place, (domain, part) in enumerate(zip(given.rows.tolist(), given.slices.tolist(), strict=True)):
        children = counts.tree.children(level, domain)
        is_led = given.is_led and place == 0
        room = below.take(children)
        if unit is not None:
            # As Kueue orders them: by slices of the request, of which there are none here, and then the fullest first.
            room, ascending = room.in_units_of(unit), True
        dealt = _certain(shared(room, part, is_led=is_led, ascending=ascending))
        rows.append(dealt.rows + children.start)
        parts.append(dealt.slices)
    return Share(np.concatenate(rows), np.concatenate(parts), given.is_led)


def _certain(share: Share | Missing) -> Share:
    # A domain was counted as holding what its children hold, so they hold it.
    assert isinstance(share, Share)
    return share
