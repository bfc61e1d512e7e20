"""How long to wait before a failed pod is replaced: ten seconds, and twice as long after each further failure.

The pods themselves are the record (failed ones stay until their job goes), so that a restart forgets nothing.
"""

from collections.abc import Sequence

from muster.api import timestamps
from muster.api.meta import Instant
from muster.jobs.batch.members import Member, finish_time

FIRST_SECONDS = 10.0
LONGEST_SECONDS = 600.0
_DOUBLINGS = 6  # after which the longest is reached


def remaining(succeeded: Sequence[Member], failed: Sequence[Member], now: Instant) -> float:
    """Seconds until a job may make pods again: it waits for failures since its last success."""
    if not failed:
        return 0.0
    last_success = max(map(finish_time, succeeded), default=Instant(float("-inf")))
    since = [time for time in map(finish_time, failed) if time > last_success]
    return _left(len(since), max(since), now) if since else 0.0


def remaining_of_index(replaced: Member, now: Instant) -> float:
    """Seconds until the pod may be replaced where each index has a limit of its own."""
    return _left(replaced.failures + replaced.ignored_failures + 1, finish_time(replaced), now)


def _left(failures: int, last: Instant, now: Instant) -> float:
    delay = min(FIRST_SECONDS * 2.0 ** min(failures - 1, _DOUBLINGS), LONGEST_SECONDS)
    return timestamps.left_of(delay, last, now)
