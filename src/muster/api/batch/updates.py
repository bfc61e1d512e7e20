"""What of a Job may still change once it exists."""

from collections.abc import Iterator

from msgspec.structs import replace

from muster.api import fields
from muster.api.batch.names import GENERATED_LABELS
from muster.api.batch.views import Job, JobSpec
from muster.api.core import PodTemplateSpec
from muster.api.errors import FieldError
from muster.api.kueue.labels import validate_label_update


def validate_job_update(old: Job, new: Job) -> list[FieldError]:
    return list(_job_update(old, new))


def _job_update(old: Job, new: Job) -> Iterator[FieldError]:
    was, now = bool(old.spec.suspend), bool(new.spec.suspend)
    yield from validate_label_update(old.metadata, new.metadata, was_suspended=was, is_suspended=now)
    yield from _completions(old.spec, new.spec)
    # A job gets its selector when the store takes it in; from then on it stays.
    if old.spec.selector is not None:
        yield from fields.immutable("spec.selector", old.spec.selector, new.spec.selector)
    before, after = _without_generated(old.spec.template), _without_generated(new.spec.template)
    if is_held_back(old):
        after = _with_directives(after, before)
    if after != before:
        yield fields.invalid(
            "spec.template",
            new.metadata.name,
            "field is immutable, except its labels, annotations, nodeSelector, affinity, tolerations and "
            "schedulingGates while the job is suspended",
        )
    for name, before_, after_ in (
        ("completionMode", old.spec.completion_mode, new.spec.completion_mode),
        ("podFailurePolicy", old.spec.pod_failure_policy, new.spec.pod_failure_policy),
        ("successPolicy", old.spec.success_policy, new.spec.success_policy),
        ("backoffLimitPerIndex", old.spec.backoff_limit_per_index, new.spec.backoff_limit_per_index),
        ("managedBy", old.spec.managed_by, new.spec.managed_by),
    ):
        yield from fields.immutable(f"spec.{name}", before_, after_)


def is_held_back(job: Job) -> bool:
    """Suspended with no pod made since: where its pods go may still be decided (a queue does so at admission)."""
    return bool(job.spec.suspend) and job.status.start_time is None and not job.status.active


def _completions(old: JobSpec, new: JobSpec) -> Iterator[FieldError]:
    if old.completions == new.completions:
        return
    if old.completion_mode != "Indexed":
        yield from fields.immutable("spec.completions", old.completions, new.completions)
    elif new.completions != new.parallelism or old.completions != old.parallelism:
        yield fields.invalid(
            "spec.completions",
            new.completions,
            "can only be modified in tandem with spec.parallelism, both being equal before and after",
        )


def _with_directives(template: PodTemplateSpec, source: PodTemplateSpec) -> PodTemplateSpec:
    """`template`, but saying of placement what `source` says."""
    return replace(
        template,
        metadata=replace(template.metadata, labels=source.metadata.labels, annotations=source.metadata.annotations),
        spec=replace(
            template.spec,
            node_selector=source.spec.node_selector,
            affinity=source.spec.affinity,
            tolerations=source.spec.tolerations,
            scheduling_gates=source.spec.scheduling_gates,
        ),
    )


def _without_generated(template: PodTemplateSpec) -> PodTemplateSpec:
    """Less the labels that follow from the job's name and uid: `validate_job` says what those must be."""
    labels = {key: value for key, value in (template.metadata.labels or {}).items() if key not in GENERATED_LABELS}
    return replace(template, metadata=replace(template.metadata, labels=labels))
