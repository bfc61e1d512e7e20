"""What of a job's labels and annotations for queueing may change, and when."""

from collections.abc import Iterator, Mapping

from muster.api import fields
from muster.api.errors import FieldError
from muster.api.kueue.names import ELASTIC_ANNOTATION, MAX_TIME_LABEL, PRIORITY_CLASS_LABEL, QUEUE_LABEL
from muster.api.meta import ObjectMeta


def validate_labels(meta: ObjectMeta) -> Iterator[FieldError]:
    labels = meta.labels or {}
    queue = labels.get(QUEUE_LABEL)
    if queue:
        yield from fields.dns_subdomain(f"metadata.labels[{QUEUE_LABEL}]", queue)
    seconds = labels.get(MAX_TIME_LABEL)
    if seconds is not None and not (seconds.isascii() and seconds.isdigit() and 0 < int(seconds) < 2**31):
        yield fields.invalid(f"metadata.labels[{MAX_TIME_LABEL}]", seconds, "should be a positive number of seconds")


def validate_label_update(
    old: ObjectMeta, new: ObjectMeta, *, was_suspended: bool, is_suspended: bool
) -> Iterator[FieldError]:
    """Where a job queues is settled while it runs: its quota was given there."""
    before, after = old.labels or {}, new.labels or {}
    if not is_suspended:
        yield from _fixed(QUEUE_LABEL, before, after)
    if not is_suspended or not was_suspended:
        yield from _fixed(MAX_TIME_LABEL, before, after)
    path = f"metadata.labels[{PRIORITY_CLASS_LABEL}]"
    had, has = before.get(PRIORITY_CLASS_LABEL), after.get(PRIORITY_CLASS_LABEL)
    if had and not has:
        yield fields.forbidden(path, "cannot be removed; name another class instead")
    elif has and not had and not is_suspended:
        yield fields.forbidden(path, "cannot be added to a job that runs")
    was, now = ((meta.annotations or {}).get(ELASTIC_ANNOTATION) for meta in (old, new))
    if was != now:
        yield fields.forbidden(f"metadata.annotations[{ELASTIC_ANNOTATION}]", "field is immutable")


def _fixed(label: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[FieldError]:
    if before.get(label) != after.get(label):
        message = "field is immutable while the job is not suspended"
        yield fields.invalid(f"metadata.labels[{label}]", after.get(label, ""), message)
