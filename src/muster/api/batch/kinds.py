"""The kinds of batch as the platform stores and serves them."""

from muster.api.batch import defaults, updates, validation, views
from muster.api.kinds import Kind

JOB = Kind(
    group="batch",
    version="v1",
    name="Job",
    plural="jobs",
    view=views.Job,
    categories=("all",),
    built_in=True,
    default=defaults.default_job,
    validate=validation.validate_job,
    validate_update=updates.validate_job_update,
    selectable={"status.successful": lambda job: str(job.status.succeeded or 0)},
)

KINDS = (JOB,)
