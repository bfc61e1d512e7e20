"""The Python client. Talks HTTP only; light to import."""

from muster.sdk.client import Client, LogOptions
from muster.sdk.details import Details, describe
from muster.sdk.dialects import Job
from muster.sdk.finding import find, summarise
from muster.sdk.gangs import Gang, Status
from muster.sdk.job_following import JobFollower, wait
from muster.sdk.jobs import Result, run, submit_gang
from muster.sdk.operating import restart, resume, stop, submit, suspend
from muster.sdk.resources import Selection
from muster.sdk.scaling import scale
from muster.sdk.summaries import State, Summary

__all__ = [
    "Client",
    "Details",
    "Gang",
    "Job",
    "JobFollower",
    "LogOptions",
    "Result",
    "Selection",
    "State",
    "Status",
    "Summary",
    "describe",
    "find",
    "restart",
    "resume",
    "run",
    "scale",
    "stop",
    "submit",
    "submit_gang",
    "summarise",
    "suspend",
    "wait",
]
