"""Why a pod set did not fit, in Kueue's words: how much would, and what keeps how many nodes out."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from muster.cluster.columns import Amounts, NodeMask
from muster.quota.amounts import Requests, all_shown
from muster.quota.topology.choosing import Missing
from muster.quota.topology.counting import Counts, sliced
from muster.quota.topology.filtering import Verdicts
from muster.quota.topology.requests import Layer


@dataclass(frozen=True, slots=True)
class DomainRoom:
    free: Requests
    taken: Requests


def listed(rooms: Mapping[str, DomainRoom]) -> str:
    """All domains with what they have, as JSON."""
    shown = {
        name: {"freeCapacity": all_shown(room.free), "tasUsage": all_shown(room.taken)} for name, room in rooms.items()
    }
    return json.dumps(shown, sort_keys=True, separators=(",", ":"))


def refusal(topology: str, counts: Counts, wanted: int, missing: Missing) -> str:
    shape = counts.shape
    if shape.inner:
        return f'topology "{topology}" doesn\'t allow to fit; {_by_layer(counts, wanted, missing)}'
    unit = "slice(s)" if shape.slice_size > 1 else "pod(s)"
    if missing.fit == 0:
        return f'topology "{topology}" doesn\'t allow to fit any of {wanted} {unit}'
    return f'topology "{topology}" allows to fit only {missing.fit} out of {wanted} {unit}'


def _by_layer(counts: Counts, wanted: int, missing: Missing) -> str:
    """How many slices of each layer fit where the most do."""
    tree, shape = counts.tree, counts.shape
    leaves = slice(0, tree.leaf_count) if missing.domain is None else tree.leaves(shape.level, missing.domain)
    told: list[str] = []
    for layer in (Layer(shape.slice_level, shape.slice_size), *shape.inner):
        first = tree.first_leaf[layer.level]
        start, end = first.searchsorted((leaves.start, leaves.stop))
        fit = int(sliced(counts.at(layer.level).pods[start:end], layer.size).sum())
        asked = wanted * shape.slice_size // layer.size
        told.append(f"{fit}/{asked} slice(s) fit on level {tree.levels[layer.level]}")
    return "; ".join(told)


def exclusions(
    verdicts: Verdicts, inside: NodeMask | None, pods: Amounts, free: Sequence[tuple[str, Amounts, int]]
) -> str:
    """The nodes that took no pod at all, counted by what kept it out; empty where each took some. `inside`: those that
    the pods may go to; `free`: name of the resource, what is there of it, and what one pod needs."""
    found: Counter[str] = Counter()
    why = verdicts.why
    for reason, many in zip(*np.unique(why[why > 0], return_counts=True), strict=True):
        found[verdicts.reasons[reason]] += int(many)
    asked = why == 0
    if inside is not None:
        found["topologyDomain"] = int((asked & ~inside).sum())
        asked &= inside
    empty = np.flatnonzero(asked & (pods == 0))
    if len(empty):
        found.update(_scarcest(free, empty))
    told = sorted(f"{reason}: {many}" for reason, many in found.items() if many)
    return f". Total nodes: {len(pods)}; excluded: {', '.join(told)}" if told else ""


def _scarcest(free: Sequence[tuple[str, Amounts, int]], leaves: Amounts) -> Iterable[str]:
    """For each leaf the resource that allows the fewest pods, by name where several do."""
    named = sorted(free, key=lambda one: one[0])
    # Towards zero: half a pod too few is as short as none at all.
    fits = np.array([np.trunc(there[leaves] / needed) for _, there, needed in named])
    return (f'resource "{named[place][0]}"' for place in fits.argmin(axis=0).tolist())
