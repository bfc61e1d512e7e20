"""Flows of jobs: which may start, what the flow as a whole is doing, and what is left when it is done."""

from muster.jobs.flow.making import belongs, connection, flow_of, job_name, make_job, template_of
from muster.jobs.flow.planning import Due, Problem, due
from muster.jobs.flow.probing import Question
from muster.jobs.flow.status import status_of

__all__ = [
    "Due",
    "Problem",
    "Question",
    "belongs",
    "connection",
    "due",
    "flow_of",
    "job_name",
    "make_job",
    "status_of",
    "template_of",
]
