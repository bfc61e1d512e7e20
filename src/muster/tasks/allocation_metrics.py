"""How allocations stand, and the requests to their engine, for whoever measures."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from muster.runtime.metrics import Family
from muster.tasks.allocating import AllocationService
from muster.tasks.allocation_states import Phase

_NOW: Final = ("waiting", "parked", "under_way")
_TOTAL: Final = ("created", "deleted", "called_off", "refused", "failed", "retried")


def families(allocations: AllocationService) -> Iterator[Family]:
    counts, phases = allocations.requests.counts(), Counter(allocations.phases())
    yield Family(
        "muster_allocations",
        "gauge",
        "Runs of tasks that are not over, by phase",
        ("phase",),
        [((phase.value,), float(phases[phase])) for phase in Phase],
    )
    yield Family(
        "muster_engine_requests",
        "gauge",
        "Requests to the engine that are not done: they wait, are parked behind another of the same run, or under way",
        ("state",),
        [((name,), float(getattr(counts, name))) for name in _NOW],
    )
    yield Family(
        "muster_engine_requests_total",
        "counter",
        "Requests to the engine by what has become of them",
        ("outcome",),
        [((name,), float(getattr(counts, name))) for name in _TOTAL],
    )
    yield Family(
        "muster_engine_longest_wait_seconds",
        "gauge",
        "For how long the first of the requests to the engine has waited",
        (),
        [((), counts.longest_wait_seconds)],
    )
