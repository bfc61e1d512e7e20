"""Sets of completion indexes, and the text that a status keeps them as: `0,2-5`."""

from collections.abc import Collection, Iterator


def parse(text: str | None, limit: int) -> set[int]:
    """The indexes below `limit`. What cannot be understood is passed over: a status is not its user's to correct."""
    found: set[int] = set()
    for part in (text or "").split(","):
        first, dash, last = part.partition("-")
        if first.isdecimal() and (last.isdecimal() or not dash):
            found.update(range(int(first), min(int(last or first) + 1, limit)))
    return found


def to_text(indexes: Collection[int]) -> str:
    return ",".join(_show(first, last) for first, last in _runs(indexes))


def _runs(indexes: Collection[int]) -> Iterator[tuple[int, int]]:
    ordered = sorted(indexes)
    start = 0
    for position, index in enumerate(ordered):
        if position + 1 == len(ordered) or ordered[position + 1] != index + 1:
            yield ordered[start], index
            start = position + 1


def _show(first: int, last: int) -> str:
    if first == last:
        return str(first)
    # Two neighbours are written as two, as Kubernetes does.
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"
