"""What hint functions are told: the object before and after a change, checked for the kind that they can read."""

from typing import TypeVar

from muster.api.meta import Resource

R = TypeVar("R", bound=Resource)


def both(kind: type[R], old: Resource | None, new: Resource | None) -> tuple[R | None, R | None]:
    """(before, after), None for an object that was added or is gone. Raises TypeError for one of another kind."""
    return _as(kind, old), _as(kind, new)


def after(kind: type[R], old: Resource | None, new: Resource | None) -> tuple[R | None, R]:
    """As `both`, for a change that is never a deletion."""
    before, found = both(kind, old, new)
    if found is None:
        raise TypeError(f"wanted a {kind.__name__} as it is now, found none")
    return before, found


def _as(kind: type[R], found: Resource | None) -> R | None:
    if found is not None and not isinstance(found, kind):
        raise TypeError(f"wanted a {kind.__name__}, found a {type(found).__name__}")
    return found
