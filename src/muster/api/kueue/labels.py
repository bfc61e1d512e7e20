"""What of a job's labels and annotations for queueing may change, and when."""

from collections.abc import Iterator, Mapping

from muster.api import fields
from muster.api.errors import FieldError
from muster.api.kueue.names import (
    ADMISSION_GATES_ANNOTATION,
    ELASTIC_ANNOTATION,
    MANAGED,
    MAX_TIME_LABEL,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
)
from muster.api.meta import ObjectMeta

_LONGEST_GATE = 63
_GATES = f"metadata.annotations[{ADMISSION_GATES_ANNOTATION}]"


def validate_labels(meta: ObjectMeta) -> Iterator[FieldError]:
    labels = meta.labels or {}
    queue = labels.get(QUEUE_LABEL)
    if queue:
        yield from fields.dns_subdomain(f"metadata.labels[{QUEUE_LABEL}]", queue)
    seconds = labels.get(MAX_TIME_LABEL)
    if seconds is not None and not (seconds.isascii() and seconds.isdigit() and 0 < int(seconds) < 2**31):
        yield fields.invalid(f"metadata.labels[{MAX_TIME_LABEL}]", seconds, "should be a positive number of seconds")
    yield from _gates(gates_of(meta))


def gates_of(meta: ObjectMeta) -> list[str]:
    """Who keeps the job out of its queue."""
    written = (meta.annotations or {}).get(ADMISSION_GATES_ANNOTATION)
    return [gate.strip() for gate in written.split(",")] if written else []


def _gates(gates: list[str]) -> Iterator[FieldError]:
    yield from fields.unique(_GATES, gates)
    for gate in gates:
        if len(gate) > _LONGEST_GATE:
            yield fields.invalid(_GATES, gate, f"a gate's name has at most {_LONGEST_GATE} characters")
        elif "/" not in gate or not fields.is_qualified_name(gate):
            yield fields.invalid(_GATES, gate, "a gate's name is like example.com/budget: a domain, and a name")


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
    added = [gate for gate in gates_of(new) if gate not in gates_of(old)]
    if added:
        yield fields.forbidden(_GATES, f"gates can only be removed, and {', '.join(added)} was added")


def validate_pod_label_update(old: ObjectMeta, new: ObjectMeta, *, is_gated: bool) -> Iterator[FieldError]:
    """Of a pod that queues by itself or in a group."""
    before, after = old.labels or {}, new.labels or {}
    if before.get(MANAGED) != after.get(MANAGED):
        yield fields.forbidden(
            f"metadata.labels[{MANAGED}]", "field is immutable: it follows from how the pod was made"
        )
    if not is_gated and before.get(MANAGED) == "true":
        yield from _fixed(QUEUE_LABEL, before, after)


def validate_queue_kept(old: ObjectMeta, new: ObjectMeta) -> Iterator[FieldError]:
    """In a namespace that has a default queue, which would be meant at once."""
    if (old.labels or {}).get(QUEUE_LABEL) and not (new.labels or {}).get(QUEUE_LABEL):
        message = "cannot be removed in a namespace with a LocalQueue named default; name another queue instead"
        yield fields.forbidden(f"metadata.labels[{QUEUE_LABEL}]", message)


def _fixed(label: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[FieldError]:
    if before.get(label) != after.get(label):
        message = "field is immutable while the job is not suspended"
        yield fields.invalid(f"metadata.labels[{label}]", after.get(label, ""), message)
