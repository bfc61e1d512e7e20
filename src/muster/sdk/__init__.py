"""The Python client. Talks HTTP only; light to import."""

from muster.sdk.client import Client, LogOptions
from muster.sdk.gangs import Gang, Status
from muster.sdk.jobs import Result, run, submit_gang
from muster.sdk.resources import Selection

__all__ = ["Client", "Gang", "LogOptions", "Result", "Selection", "Status", "run", "submit_gang"]
