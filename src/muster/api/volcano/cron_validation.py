"""What a cron job and a flow of jobs must look like: when jobs are made, and in which order."""

from collections.abc import Iterator

from muster.api import fields
from muster.api.errors import FieldError
from muster.api.volcano import cron, graphs
from muster.api.volcano.job_validation import validate_job_spec
from muster.api.volcano.views import CronJob, CronJobSpec, JobFlow

MAX_NAME = 52  # the jobs' names add a dash and the minute since the epoch, and must still make pod names
CONCURRENCY_POLICIES = ("Allow", "Forbid", "Replace")
RETAIN_POLICIES = ("retain", "delete")


def validate_cron_job(job: CronJob) -> list[FieldError]:
    return [*_name(job.metadata.name), *_cron_job(job.spec)]


def _name(name: str) -> Iterator[FieldError]:
    yield from fields.at_most_characters("metadata.name", name, MAX_NAME)
    if name and not fields.is_qualified_name(name):
        yield fields.invalid("metadata.name", name, f"invalid cronJob name: {fields.QUALIFIED_NAME_RULE}")


def _cron_job(spec: CronJobSpec) -> Iterator[FieldError]:
    yield from _schedule("spec.schedule", spec.schedule)
    yield from _time_zone("spec.timeZone", spec.time_zone)
    yield from fields.one_of("spec.concurrencyPolicy", spec.concurrency_policy, CONCURRENCY_POLICIES)
    yield from fields.non_negative("spec.startingDeadlineSeconds", spec.starting_deadline_seconds)
    yield from fields.non_negative("spec.successfulJobsHistoryLimit", spec.successful_jobs_history_limit)
    yield from fields.non_negative("spec.failedJobsHistoryLimit", spec.failed_jobs_history_limit)
    metadata = spec.job_template.metadata
    yield from fields.labels("spec.jobTemplate.metadata.labels", metadata.labels)
    yield from fields.annotations("spec.jobTemplate.metadata.annotations", metadata.annotations)
    yield from validate_job_spec("spec.jobTemplate.spec", spec.job_template.spec, "")


def _schedule(path: str, text: str) -> Iterator[FieldError]:
    if not text:
        yield fields.required(path, "Required value: schedule must be set")
        return
    try:
        cron.parse(text)
    except cron.BadSchedule as error:
        yield fields.invalid(path, text, f"schedule is not a valid cron expression: {error}")


def _time_zone(path: str, name: str | None) -> Iterator[FieldError]:
    if name is None:
        return
    if not name:
        yield fields.invalid(path, name, "timeZone must be nil or non-empty string, got empty string")
        return
    try:
        cron.check_time_zone(name)
    except cron.BadTimeZone as error:
        yield fields.invalid(path, name, str(error))


def validate_job_flow(flow: JobFlow) -> list[FieldError]:
    return list(_job_flow(flow))


def _job_flow(flow: JobFlow) -> Iterator[FieldError]:
    yield from fields.one_of("spec.jobRetainPolicy", flow.spec.job_retain_policy, RETAIN_POLICIES)
    for index, step in enumerate(flow.spec.flows):
        yield from fields.dns_subdomain(f"spec.flows[{index}].name", step.name)
    # A flow that is listed twice depends on what its last entry says, as Volcano has it.
    graph = {step.name: step.depends_on.targets if step.depends_on else () for step in flow.spec.flows}
    undefined, cycle = graphs.find_undefined(graph), graphs.find_cycle(graph)
    if undefined:
        yield fields.invalid(
            "spec.flows", undefined[0], f"jobflow Flow is not DAG: vertex is not defined: {undefined[0]}"
        )
    if cycle:
        yield fields.invalid("spec.flows", " -> ".join(cycle), "jobflow Flow is not DAG")
