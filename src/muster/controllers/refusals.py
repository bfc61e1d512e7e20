"""What follows where the store refuses what was decided."""

from collections.abc import Sequence

from muster.api import errors
from muster.api.errors import ApiError
from muster.store.protocol import Refused, Result


def check(results: Sequence[Result], allowed: tuple[type[ApiError], ...] = ()) -> None:
    """Raises the first refusal that leaves something to be done, as one to try again: it is for controllers whose
    events tell of it. What is gone already needs nothing more."""
    for result in results:
        if not isinstance(result, Refused) or isinstance(result.error, (errors.NotFound, *allowed)):
            continue
        if result.error.retryable:
            raise result.error
        raise errors.Unavailable(f"refused: {result.error.message}") from result.error
