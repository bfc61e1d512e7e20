"""When a cron job ran last and will run next, in a few words."""

import importlib

from muster.api import timestamps
from muster.api.meta import Instant
from muster.cli import durations
from muster.sdk.summaries import State, Summary


def words(job: Summary, now: float) -> str:
    """`next in 56s, last 4m ago`."""
    last = f"last {durations.age(job.last_run, now)} ago" if job.last_run else "never ran yet"
    if job.state is State.SUSPENDED:
        return last
    at = next_run(job, now)
    return f"next in {durations.show_whole(at - now)}, {last}" if at is not None else f"never again, {last}"


def next_run(job: Summary, now: float) -> float | None:
    """None where its schedule has no further time, or cannot be read."""
    # Loaded only where there is a cron job: it brings all kinds of the API with it.
    timing = importlib.import_module("muster.jobs.cron.timing")
    try:
        found = timing.read(job.schedule, job.time_zone or None)
    except (timing.BadSchedule, timing.BadTimeZone):
        return None
    try:
        since = timestamps.parse(job.last_run or job.created)
    except timestamps.BadTimestamp:
        since = Instant(now)
    # A fixed pace counts from the last run, times of the clock from now.
    start = since if found.schedule.every_seconds is not None and since > now - found.schedule.every_seconds else now
    at = found.next_after(Instant(start))
    return None if at is None else float(at)
