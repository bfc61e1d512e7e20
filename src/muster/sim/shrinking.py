"""Makes a plan that fails as short as it will go: events are left out while the same invariant still breaks."""

from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from muster.sim.ledger import Violation
from muster.sim.plans import Event, Plan

MOST_RUNS = 120

Try: TypeAlias = Callable[[Plan], Violation | None]


def shrink(plan: Plan, violation: Violation, attempt: Try, *, most_runs: int = MOST_RUNS) -> tuple[Plan, Violation]:
    """The shortest plan that was found within so many runs, and what breaks in it. Halves first, then smaller parts,
    then single events, as delta debugging does."""
    runs = 0
    size = max(1, len(plan.events) // 2)
    while runs < most_runs:
        shorter = None
        for start in range(0, len(plan.events), size):
            if runs == most_runs:
                break
            runs += 1
            candidate = _without(plan, plan.events[start : start + size])
            found = attempt(candidate)
            if found is not None and found.invariant == violation.invariant:
                shorter, violation = candidate, found
                break
        if shorter is not None:
            plan, size = shorter, max(1, min(size, len(shorter.events) // 2))
        elif size == 1:
            break
        else:
            size //= 2
    return plan, violation


def _without(plan: Plan, left_out: tuple[Event, ...]) -> Plan:
    gone = {id(event) for event in left_out}
    return replace(plan, events=tuple(event for event in plan.events if id(event) not in gone))
