"""The two ways to write down which domains a pod set was given.

v1beta1 lists domains one by one. v1beta2 writes runs of domains ("slices") in which what is common to all values
stands once, because a list of ten thousand hosts does not fit into an object. Both are plain documents here.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from muster.api.raw import JSON, Document

HOSTNAME = "kubernetes.io/hostname"
MAX_SLICES = 1000
MAX_IN_SLICE = 100_000
MAX_LISTED = 100_000
"""More domains than any cluster has hosts are not written out one by one: the text would not fit into an object."""


class Domain(NamedTuple):
    """One value for each level, and the number of pods."""

    values: tuple[str, ...]
    pods: int


class Unreadable(ValueError):
    """The document does not have the shape it should have."""


def compact(levels: Sequence[str], domains: Sequence[Domain]) -> Document:
    """As v1beta2 writes it, in one slice, or in as few as may be."""
    return _written(levels, [domains])


def shortest(levels: Sequence[str], domains: Sequence[Domain]) -> Document:
    """As v1beta2 writes it: hosts that follow one another and whose names start alike are one slice each, where that
    is shorter than one slice for all. The order is kept."""
    one = compact(levels, domains)
    runs = _runs_by_prefix(domains) if levels and levels[-1] == HOSTNAME else [domains]
    if len(runs) == 1:
        return one
    by_prefix = _written(levels, runs)
    return by_prefix if len(domains) > MAX_IN_SLICE or _length(by_prefix) < _length(one) else one


def _written(levels: Sequence[str], runs: Sequence[Sequence[Domain]]) -> Document:
    pieces = [run[start : start + MAX_IN_SLICE] for run in runs for start in range(0, len(run), MAX_IN_SLICE)]
    return {"levels": list(levels), "slices": [_piece(len(levels), piece) for piece in pieces]}


def _piece(width: int, domains: Sequence[Domain]) -> Document:
    counts = [domain.pods for domain in domains]
    return {
        "domainCount": len(domains),
        "valuesPerLevel": [_level([domain.values[i] for domain in domains]) for i in range(width)],
        "podCounts": {"universal": counts[0]} if len(set(counts)) == 1 else {"individual": counts},
    }


def _length(assignment: Document) -> int:
    return len(json.dumps(assignment, separators=(",", ":")))


def _runs_by_prefix(domains: Sequence[Domain]) -> list[Sequence[Domain]]:
    """Neighbours that share the longest prefix, cut behind a dash, that any two hosts share. Prefixes of fewer parts
    are taken where the runs would be too many."""
    names = [domain.values[-1] for domain in domains]
    parts = [[i + 1 for i, letter in enumerate(name) if letter == "-"] for name in names]
    shared = Counter(name[:end] for name, ends in zip(names, parts, strict=True) for end in ends)
    for most in range(max(map(len, parts), default=0), 0, -1):
        prefixes = [
            next((name[:end] for end in reversed(ends[:most]) if shared[name[:end]] > 1), "")
            for name, ends in zip(names, parts, strict=True)
        ]
        runs = [[domains[i] for i in run] for _, run in groupby(range(len(domains)), key=prefixes.__getitem__)]
        if sum(-(-len(run) // MAX_IN_SLICE) for run in runs) <= MAX_SLICES:
            return list(runs)
    return [domains]


def _level(values: Sequence[str]) -> Document:
    if len(set(values)) == 1:
        return {"universal": values[0]}
    prefix = _common_prefix(values)
    # Cut the prefix off first: prefix and suffix must not share characters of the shortest value.
    rests = [value[len(prefix) :] for value in values]
    suffix = _common_prefix([rest[::-1] for rest in rests])[::-1]
    individual: Document = {"roots": [rest[: len(rest) - len(suffix)] for rest in rests]}
    if prefix:
        individual["prefix"] = prefix
    if suffix:
        individual["suffix"] = suffix
    return {"individual": individual}


def _common_prefix(values: Sequence[str]) -> str:
    # All values share what the least and the greatest share.
    first, last = min(values), max(values)
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:length]


def list_out(assignment: JSON) -> list[Domain]:
    """The domains of a v1beta2 assignment, in order. Raises Unreadable."""
    try:
        width, pieces = len(assignment["levels"]), assignment.get("slices") or ()
        if sum(piece["domainCount"] for piece in pieces) > MAX_LISTED:
            raise ValueError(f"more than {MAX_LISTED} domains")
        return [domain for piece in pieces for domain in _slice(piece, width)]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"not a topology assignment with slices: {error!r}") from error


def _slice(piece: JSON, width: int) -> Iterator[Domain]:
    size = piece["domainCount"]
    levels = [_values(level, size) for level in piece["valuesPerLevel"]]
    if len(levels) != width:
        raise ValueError(f"{len(levels)} levels in a slice, {width} in the assignment")
    pods = piece["podCounts"]
    counts = [pods["universal"]] * size if pods.get("universal") is not None else pods["individual"]
    for index, count in zip(range(size), counts, strict=True):
        yield Domain(tuple(level[index] for level in levels), count)


def _values(level: JSON, size: int) -> list[str]:
    if level.get("universal") is not None:
        return [level["universal"]] * size
    individual = level["individual"]
    prefix, suffix = individual.get("prefix") or "", individual.get("suffix") or ""
    values = [prefix + root + suffix for root in individual["roots"]]
    if len(values) != size:
        raise ValueError(f"{len(values)} values for {size} domains")
    return values


def read_list(assignment: JSON) -> list[Domain]:
    """The domains of a v1beta1 assignment. Raises Unreadable."""
    try:
        width = len(assignment["levels"])
        domains = [Domain(tuple(domain["values"]), domain["count"]) for domain in assignment.get("domains") or ()]
    except (AttributeError, KeyError, TypeError) as error:
        raise Unreadable(f"not a topology assignment with domains: {error!r}") from error
    if any(len(domain.values) != width or not all(isinstance(v, str) for v in domain.values) for domain in domains):
        raise Unreadable(f"each domain must have {width} values, one for each level")
    return domains


def as_list(levels: Sequence[str], domains: Sequence[Domain]) -> Document:
    """As v1beta1 writes it."""
    return {
        "levels": list(levels),
        "domains": [{"values": list(domain.values), "count": domain.pods} for domain in domains],
    }
