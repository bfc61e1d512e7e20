"""Checks of an Allocation."""

from collections.abc import Iterator

from muster.api import fields
from muster.api.core.validation import validate_pod_template
from muster.api.errors import FieldError
from muster.api.kueue.labels import validate_label_update, validate_labels
from muster.api.muster.names import BEGUN
from muster.api.muster.views import Allocation, AllocationSpec

_LONGEST_NAME = 63
_MOST_PODS = 10_000
_TASK_TYPES = frozenset({"TRIAL", "NOTEBOOK", "SHELL", "COMMAND", "TENSORBOARD", "CHECKPOINT_GC", "GENERIC"})


def validate_allocation(allocation: Allocation) -> list[FieldError]:
    return list(_allocation(allocation))


def _allocation(allocation: Allocation) -> Iterator[FieldError]:
    name, spec = allocation.metadata.name, allocation.spec
    if len(name) > _LONGEST_NAME:
        yield fields.invalid(
            "metadata.name", name, f"its pods are labelled with it, so it has at most {_LONGEST_NAME} characters"
        )
    yield from validate_labels(allocation.metadata)
    for path, text in (("spec.taskId", spec.task_id), ("spec.jobId", spec.job_id)):
        if path == "spec.taskId" and not text:
            yield fields.required(path)
        else:
            yield from fields.label_value(path, text or "")
    if not spec.task_type:
        yield fields.required("spec.taskType")
    else:
        yield from fields.one_of("spec.taskType", spec.task_type, _TASK_TYPES)
    for path, text in (("spec.pool", spec.pool), ("spec.queueName", spec.queue_name)):
        if text:
            yield from fields.dns_subdomain(path, text)
    yield from _numbers(spec)
    yield from validate_pod_template("spec.template", spec.template)
    if spec.template.spec.restart_policy != "Never":
        path, found = "spec.template.spec.restartPolicy", spec.template.spec.restart_policy
        yield fields.unsupported(path, found, {"Never"})


def _numbers(spec: AllocationSpec) -> Iterator[FieldError]:
    yield from fields.positive("spec.pods", spec.pods)
    if (spec.pods or 1) > _MOST_PODS:
        yield fields.invalid("spec.pods", spec.pods, f"must be less than or equal to {_MOST_PODS}")
    yield from fields.non_negative("spec.slots", spec.slots)
    pods, slots = spec.pods or 1, spec.slots or 0
    if pods > 1 and slots % pods:
        yield fields.invalid("spec.slots", slots, f"must be a multiple of the number of pods, which is {pods}")
    yield from fields.non_negative("spec.preemptionTimeoutSeconds", spec.preemption_timeout_seconds)


def validate_allocation_update(old: Allocation, new: Allocation) -> list[FieldError]:
    was, now = old.spec, new.spec
    return [
        *validate_label_update(
            old.metadata, new.metadata, was_suspended=bool(was.suspend), is_suspended=bool(now.suspend)
        ),
        *fields.immutable("spec.taskId", was.task_id, now.task_id),
        *fields.immutable("spec.jobId", was.job_id, now.job_id),
        *fields.immutable("spec.taskType", was.task_type, now.task_type),
        *fields.immutable("spec.slots", was.slots, now.slots),
        *fields.immutable("spec.pods", was.pods, now.pods),
        *fields.immutable("spec.isPreemptible", was.is_preemptible, now.is_preemptible),
        *_run(old, new),
    ]


def _run(old: Allocation, new: Allocation) -> Iterator[FieldError]:
    """It runs once, and as it was when it began."""
    if not old.spec.suspend and old.spec.template != new.spec.template:
        yield fields.forbidden("spec.template", "may only be changed while the allocation is suspended")
    elif old.status.phase in BEGUN and old.spec.template != new.spec.template:
        yield fields.forbidden("spec.template", "the allocation has begun to run, and runs once")
