"""A job's conditions, and the difference between two of its statuses as a patch."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from muster.api import batch, conditions
from muster.api.meta import Condition
from muster.api.raw import Document

_FIELDS = tuple((field.name, field.encode_name) for field in msgspec.structs.fields(batch.JobStatus))


def is_true(job: batch.Job, type: str) -> bool:
    return conditions.is_true(job.status.conditions, type)


def finish_condition(job: batch.Job) -> Condition | None:
    """The condition that says that the job is over."""
    for type in ("Complete", "Failed"):
        found = conditions.find(job.status.conditions, type)
        if found is not None and found.status == conditions.TRUE:
            return found
    return None


def with_condition(listed: Sequence[Condition], wanted: Condition) -> tuple[Condition, ...]:
    """The list with this condition in it. That something does not hold is worth saying only where it did once."""
    present = conditions.find(listed, wanted.type)
    if present is None:
        return tuple(listed) if wanted.status == conditions.FALSE else (*listed, wanted)
    if (present.status, present.reason, present.message) == (wanted.status, wanted.reason, wanted.message):
        return tuple(listed)
    if present.status == wanted.status:
        wanted = replace(wanted, last_transition_time=present.last_transition_time)
    return tuple(wanted if condition.type == wanted.type else condition for condition in listed)


def difference(old: batch.JobStatus, new: batch.JobStatus) -> Document | None:
    """What to merge into the stored status. None where that says it all already."""
    changed: Document = {}
    for name, wire in _FIELDS:
        before, after = getattr(old, name), getattr(new, name)
        if before == after:
            continue
        changed[wire] = msgspec.to_builtins(after) if after not in (None, ()) else None
        if isinstance(after, batch.UncountedTerminatedPods):
            # A merge keeps what is not mentioned, and a list that has become empty is not.
            changed[wire] = {"succeeded": list(after.succeeded) or None, "failed": list(after.failed) or None}
    return changed or None
