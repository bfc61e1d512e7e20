"""What follows from the log of a run that has failed: that there is no other, or not on the same node.

It is decided when the run has ended, from all of its log that was kept: so neither a crash nor a burst of lines can
hide the line that counts.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from muster.api import raw
from muster.engines.protocol import AllocationId
from muster.experiments import trial
from muster.experiments.config.log_policies import LogAction
from muster.experiments.course_records import Course
from muster.tasks.log_filters import Filter
from muster.tasks.log_lines import Stored
from muster.tasks.log_records import Encode
from muster.tasks.logs import Query


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    pattern: str
    action: str


class ReadLogs(Protocol):
    def read(self, query: Query, encode: Encode) -> AsyncIterator[bytes]: ...


def of(course: Course) -> Sequence[Policy]:
    """Those that have a pattern: one without is a default that was put out of force."""
    found = raw.dig(course.config, "log_policies")
    policies = [
        Policy(*(str(raw.dig(each, key) or "") for key in ("name", "pattern", "action")))
        for each in (found if isinstance(found, list) else ())
    ]
    return [policy for policy in policies if policy.pattern]


async def after_failure(logs: ReadLogs, course: Course, allocation: AllocationId) -> Sequence[trial.Event]:
    """What follows for the trial from the log of a run that has failed."""
    found: list[trial.Event] = []
    for policy in of(course):
        if not policy.action:
            continue
        node = await _first_node(logs, allocation, policy.pattern)
        if node is None:
            continue
        if policy.action == LogAction.CANCEL_RETRIES:
            found.append(trial.RetriesCancelled(f"its log matches {policy.name or policy.pattern!r}"))
        elif node:
            found.append(trial.NodeExcluded(node))
    return found


async def _first_node(logs: ReadLogs, allocation: AllocationId, pattern: str) -> str | None:
    """Where the first line was written that matches; None where none does."""
    task = allocation.rpartition(".")[0]
    query = Query(task, Filter(allocations=frozenset({allocation}), text=pattern, is_regex=True), limit=1)
    # A byte before it: a line without a node is a line all the same.
    async for sent in logs.read(query, lambda stored: b"@" + _node(stored)):
        return sent[1:].decode()
    return None


def _node(stored: Stored) -> bytes:
    return stored.origin.agent.encode()
