"""The phase of a flow, from what its jobs are doing.

Pending --> Running    a job runs or is done
any     --> Failed     a job failed or was terminated
any     --> Succeed    all jobs are done; for good, whatever becomes of the jobs then
Failed  --> Running    the failed jobs are gone, or run again
"""

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEED = "Succeed"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Counts:
    """How many jobs do what; `steps`: how many there are to be."""

    steps: int
    running: int = 0
    completed: int = 0
    failed: int = 0
    """Terminated ones as well."""


def step(phase: str | None, counts: Counts) -> Phase:
    if phase == Phase.SUCCEED:
        return Phase.SUCCEED
    if counts.failed:
        return Phase.FAILED
    if counts.completed >= counts.steps > 0:
        return Phase.SUCCEED
    if counts.running or counts.completed or phase == Phase.RUNNING:
        return Phase.RUNNING
    return Phase.PENDING
