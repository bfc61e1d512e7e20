"""Names of what runs for a trial: `<experiment>.<request id>` is its task, `<task>.<run>` one run of it. Pure.

A trial that was continued after its end has a further task for that, `<experiment>.<request id>-1` and so on.
"""

import re
from typing import Final

from muster.engines.protocol import AllocationId
from muster.experiments.states import ExperimentId
from muster.search.protocol import RequestId

_TASK: Final = re.compile(r"(\d+)\.([0-9a-f-]{36})(?:-\d+)?")
"""Request ids are UUIDs."""


def task(experiment: ExperimentId, request_id: str, number: int = 0) -> str:
    """`number`: how often the trial was continued."""
    return f"{experiment}.{request_id}" + (f"-{number}" if number else "")


def allocation(task: str, run: int) -> AllocationId:
    return AllocationId(f"{task}.{run}")


def run(allocation: str) -> int:
    return int(allocation.rpartition(".")[2])


def owner(task: str) -> tuple[ExperimentId, RequestId]:
    """Whose task it is. Raises ValueError for what is no trial's."""
    found = _TASK.fullmatch(task)
    if found is None:
        raise ValueError(f"{task[:80]!r} is no trial's task")
    return ExperimentId(int(found[1])), RequestId(found[2])


def context(experiment: ExperimentId) -> str:
    """Under which its model definition is kept."""
    return f"experiment-{experiment}"
