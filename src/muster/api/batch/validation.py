"""Checks of a Job."""

from collections.abc import Iterator

from muster.api import fields
from muster.api.batch.names import (
    CONTROLLER_UID_LABEL,
    JOB_NAME_LABEL,
    LEGACY_CONTROLLER_UID_LABEL,
    LEGACY_JOB_NAME_LABEL,
)
from muster.api.batch.policies import validate_failure_policy, validate_success_policy
from muster.api.batch.views import Job, JobSpec
from muster.api.core.validation import validate_pod_template
from muster.api.errors import FieldError
from muster.api.kueue.labels import validate_labels
from muster.api.kueue.topology_annotations import validate_request
from muster.api.metadata import validate_label_selector
from muster.api.selectors import from_view

_RESTART_POLICIES = frozenset({"OnFailure", "Never"})
_COMPLETION_MODES = frozenset({"NonIndexed", "Indexed"})
_REPLACEMENT_POLICIES = frozenset({"TerminatingOrFailed", "Failed"})
_MOST_PARALLEL_INDEXED = 100_000
_MOST_FAILED_INDEXED = 10_000


def validate_job(job: Job) -> list[FieldError]:
    return [*_job(job.spec), *_host_names(job), *_generated_labels(job), *validate_labels(job.metadata), *_places(job)]


def _job(spec: JobSpec) -> Iterator[FieldError]:
    for name, value in (
        ("parallelism", spec.parallelism),
        ("completions", spec.completions),
        ("activeDeadlineSeconds", spec.active_deadline_seconds),
        ("backoffLimit", spec.backoff_limit),
        ("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished),
        ("backoffLimitPerIndex", spec.backoff_limit_per_index),
        ("maxFailedIndexes", spec.max_failed_indexes),
    ):
        yield from fields.non_negative(f"spec.{name}", value)
    yield from fields.one_of("spec.completionMode", spec.completion_mode, _COMPLETION_MODES)
    yield from _indexes(spec)
    yield from _managed_by(spec.managed_by)
    yield from _selector(spec)
    yield from validate_pod_template("spec.template", spec.template)
    if spec.template.spec.restart_policy not in _RESTART_POLICIES:
        path, found = "spec.template.spec.restartPolicy", spec.template.spec.restart_policy
        yield fields.unsupported(path, found, _RESTART_POLICIES) if found else fields.required(path)
    yield from validate_failure_policy(spec)
    yield from validate_success_policy(spec)
    yield from fields.one_of("spec.podReplacementPolicy", spec.pod_replacement_policy, _REPLACEMENT_POLICIES)
    if spec.pod_failure_policy is not None and spec.pod_replacement_policy == "TerminatingOrFailed":
        yield fields.unsupported("spec.podReplacementPolicy", spec.pod_replacement_policy, {"Failed"})


def _indexes(spec: JobSpec) -> Iterator[FieldError]:
    if spec.completion_mode != "Indexed":
        if spec.backoff_limit_per_index is not None:
            path = "spec.backoffLimitPerIndex"
            yield fields.invalid(path, spec.backoff_limit_per_index, "requires indexed completion mode")
        if spec.max_failed_indexes is not None:
            yield fields.invalid("spec.maxFailedIndexes", spec.max_failed_indexes, "requires indexed completion mode")
        return
    if spec.completions is None:
        yield fields.required("spec.completions", "Required value: when completion mode is Indexed")
        return
    if (spec.parallelism or 0) > _MOST_PARALLEL_INDEXED:
        message = f"must be less than or equal to {_MOST_PARALLEL_INDEXED} when completion mode is Indexed"
        yield fields.invalid("spec.parallelism", spec.parallelism, message)
    if spec.max_failed_indexes is not None:
        if spec.max_failed_indexes > spec.completions:
            message = "must be less than or equal to completions"
            yield fields.invalid("spec.maxFailedIndexes", spec.max_failed_indexes, message)
        if spec.backoff_limit_per_index is None:
            message = "Required value: when maxFailedIndexes is specified"
            yield fields.required("spec.backoffLimitPerIndex", message)
    if spec.backoff_limit_per_index is not None and spec.completions > _MOST_PARALLEL_INDEXED:
        if spec.max_failed_indexes is None:
            message = "Required value: must be specified when completions is above 100000"
            yield fields.required("spec.maxFailedIndexes", message)
        elif spec.max_failed_indexes > _MOST_FAILED_INDEXED:
            message = "must be less than or equal to 10000 when completions is above 100000"
            yield fields.invalid("spec.maxFailedIndexes", spec.max_failed_indexes, message)


def _host_names(job: Job) -> Iterator[FieldError]:
    """Each pod of an indexed job has the job's name and its index for a host name."""
    if job.spec.completion_mode != "Indexed" or not job.spec.completions or not job.metadata.name:
        return
    longest = f"{job.metadata.name}-{job.spec.completions - 1}"
    if not fields.is_dns_label(longest):
        message = f"will not be able to create pods with the host name {longest}: {fields.DNS_LABEL_RULE}"
        yield fields.invalid("metadata.name", job.metadata.name, message)


def _places(job: Job) -> Iterator[FieldError]:
    """What its pods ask of a topology."""
    spec = job.spec
    count = spec.parallelism if spec.completions is None else min(spec.parallelism or 0, spec.completions)
    path = "spec.template.metadata.annotations"
    yield from validate_request(path, spec.template.metadata.annotations, count)


def _generated_labels(job: Job) -> Iterator[FieldError]:
    if job.spec.manual_selector:
        return
    labels = job.spec.template.metadata.labels or {}
    for label, wanted in (
        (JOB_NAME_LABEL, job.metadata.name),
        (LEGACY_JOB_NAME_LABEL, job.metadata.name),
        (CONTROLLER_UID_LABEL, job.metadata.uid),
        (LEGACY_CONTROLLER_UID_LABEL, job.metadata.uid),
    ):
        if wanted and labels.get(label, wanted) != wanted:
            path = f"spec.template.metadata.labels[{label}]"
            yield fields.invalid(
                path, labels[label], f"must be {wanted!r}, or be left out; `manualSelector` lifts this"
            )


def _managed_by(name: str | None) -> Iterator[FieldError]:
    if name is None:
        return
    domain, slash, rest = name.partition("/")
    if not (slash and rest and len(name) <= 63 and fields.is_dns_subdomain(domain)):
        yield fields.invalid(
            "spec.managedBy", name, 'must be a domain-prefixed path of at most 63 characters (such as "acme.io/foo")'
        )


def _selector(spec: JobSpec) -> Iterator[FieldError]:
    path, selector = "spec.selector", spec.selector
    if selector is None:
        if spec.manual_selector:
            yield fields.required(path)
        return
    problems = list(validate_label_selector(path, selector))
    yield from problems
    generated = {CONTROLLER_UID_LABEL, LEGACY_CONTROLLER_UID_LABEL}
    if not spec.manual_selector and (selector.match_expressions or not {*(selector.match_labels or {})} <= generated):
        yield fields.invalid(path, "", "`selector` not auto-generated; set `manualSelector` to choose one")
    elif not problems and not from_view(selector).matches(spec.template.metadata.labels or {}):
        yield fields.invalid("spec.template.metadata.labels", "", "`selector` does not match template `labels`")
