"""Cron jobs: when a job is due, what becomes of the one before, and which finished ones are kept."""

from muster.jobs.cron.making import job_name, make_job
from muster.jobs.cron.planning import Plan, Start, is_child_of, plan
from muster.jobs.cron.settling import NotReplaced, Outcome, Refused, Settled, Started, Taken, settle

__all__ = [
    "NotReplaced",
    "Outcome",
    "Plan",
    "Refused",
    "Settled",
    "Start",
    "Started",
    "Taken",
    "is_child_of",
    "job_name",
    "make_job",
    "plan",
    "settle",
]
