"""When a finished job may be deleted."""

from muster.api import volcano
from muster.api.meta import Instant
from muster.jobs.volcano import states
from muster.jobs.volcano.members import instant


def is_cleaned_up(job: volcano.Job) -> bool:
    """Whether it is over and says how long it should be kept."""
    return states.is_over(job) and job.spec.ttl_seconds_after_finished is not None


def finish_time(job: volcano.Job) -> Instant | None:
    return instant(job.status.state.last_transition_time)


def time_left(job: volcano.Job, now: Instant) -> float | None:
    """Seconds until it may go; None where it stays."""
    finished, seconds = finish_time(job), job.spec.ttl_seconds_after_finished
    if not is_cleaned_up(job) or finished is None or seconds is None:
        return None
    return finished + seconds - now
