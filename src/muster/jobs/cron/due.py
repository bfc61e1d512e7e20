"""Whether a run is due, how many were missed, and when to look again.

Missed runs are estimated from the distance of the first two, as Kubernetes does: exact for regular schedules, cheap for
a job that slept for a year, and at most one run is ever made up for.
"""

from dataclasses import dataclass
from enum import IntEnum

from muster.api import timestamps, volcano
from muster.api.meta import Instant
from muster.jobs.cron.timing import Timing

MANY = 100
LOOK_AGAIN_SECONDS = 0.1
"""After a run is due: a clock that is a little behind must not find that it is not yet time."""


class Missed(IntEnum):
    NONE = 0
    FEW = 1
    MANY = 2


class NeverDue(ValueError):
    """The schedule names times that do not come."""


@dataclass(frozen=True, slots=True)
class Due:
    """`earliest`: since when runs count. `recent`: the last of them that is due."""

    earliest: Instant
    recent: Instant | None
    missed: Missed


def due(job: volcano.CronJob, timing: Timing, now: Instant, *, is_bounded: bool) -> Due:
    """`is_bounded`: runs before the starting deadline do not count. Raises NeverDue."""
    earliest = _earliest(job, now, is_bounded=is_bounded)
    first = timing.next_after(earliest)
    second = timing.next_after(first) if first is not None else None
    if first is None or second is None:
        raise NeverDue("time difference between two schedules is less than 1 second")
    if now < first:
        return Due(earliest, None, Missed.NONE)
    if now < second:
        return Due(earliest, first, Missed.NONE)
    between = max(1, round(second - first))
    count = int(now - first) // between + 1
    # One step further back, because the first two may be closer than others, as with `30 6-16/4 * * 1-5`.
    at: Instant | None = Instant(first + (count - 2) * between)
    recent = None
    while at is not None and (at := timing.next_after(at)) is not None and at <= now:
        recent = at
    return Due(earliest, recent, Missed.MANY if count > MANY else Missed.FEW)


def _earliest(job: volcano.CronJob, now: Instant, *, is_bounded: bool) -> Instant:
    since = job.status.last_schedule_time or job.metadata.creation_timestamp
    earliest = timestamps.parse(since) if since else Instant(0.0)
    deadline = job.spec.starting_deadline_seconds
    return Instant(max(earliest, now - deadline)) if is_bounded and deadline is not None else earliest


def delay(job: volcano.CronJob, timing: Timing, now: Instant) -> float:
    """Seconds until the next run is due."""
    try:
        found = due(job, timing, now, is_bounded=False)
    except NeverDue:
        since = now
    else:
        fallback = found.earliest if found.missed is Missed.NONE else now
        since = found.recent if found.recent is not None else fallback
    following = timing.next_after(since)
    return (following if following is not None else now) + LOOK_AGAIN_SECONDS - now
