"""Budgets: after so many GPU-hours a search makes no more trials, and those that run are asked to stop.

When that will be follows from what was used and from what runs now: so there is one timer for an experiment, and
nothing to look at in between.
"""

from collections.abc import Iterable

from muster.api import raw
from muster.api.meta import Instant
from muster.experiments import task_names
from muster.experiments.course_records import Course
from muster.experiments.experiment import BudgetSpent
from muster.experiments.registry import Conductors
from muster.experiments.states import GOING, ExperimentId
from muster.runtime.clock import Clock
from muster.runtime.reconciling import Reconciler
from muster.tasks.allocation_states import State
from muster.tasks.contract import Allocations

_HOUR = 3600.0


def due(budget: float, spent: float, running: Iterable[tuple[Instant, int]], now: Instant) -> Instant | None:
    """When it is all spent; None where nothing runs and some is left. All in slot-seconds; `running`: since when each
    runs, and on how many slots."""
    rate, used = 0, spent
    for since, slots in running:
        rate += slots
        used += slots * max(0.0, now - since)
    if used >= budget:
        return now
    return Instant(now + (budget - used) / rate) if rate else None


def budget(course: Course) -> float | None:
    """In slot-seconds."""
    hours = raw.dig(course.config, "resources", "budget_gpu_hours")
    return hours * _HOUR if isinstance(hours, int | float) else None


class Budgets:
    """`run` must be kept running."""

    def __init__(self, conductors: Conductors, allocations: Allocations, clock: Clock) -> None:
        self._conductors = conductors
        self._allocations = allocations
        self._clock = clock
        self._limited: set[ExperimentId] = set()
        """Those that run and have a budget which is not spent."""
        self._timers: Reconciler[ExperimentId] = Reconciler("budgets", self._look, clock=clock)
        conductors.on_change(self._changed)
        allocations.on_change(self._run_changed)

    async def run(self) -> None:
        await self._timers.run()

    def _changed(self, course: Course) -> None:
        is_limited = budget(course) is not None and course.state in GOING and not course.kept.is_spent
        if is_limited:
            self._limited.add(course.experiment)
            self._timers.queue.add(course.experiment)
        else:
            self._limited.discard(course.experiment)

    def _run_changed(self, task: str, state: State) -> None:
        if self._limited and state.started_at is not None:
            try:
                experiment, _ = task_names.owner(task)
            except ValueError:
                return  # of no trial
            if experiment in self._limited:
                self._timers.queue.add(experiment)

    async def _look(self, experiment: ExperimentId) -> float | None:
        course = self._conductors.course(experiment)
        limit = None if course is None else budget(course)
        if course is None or limit is None or experiment not in self._limited:
            return None
        now = self._clock.now()
        when = due(limit, course.slot_seconds, self._running(course), now)
        if when is None:
            return None
        if when > now:
            return when - now
        hours = limit / _HOUR
        await self._conductors.tell(experiment, BudgetSpent(f"Ended by its budget of {hours:g} GPU-hours."))
        return None

    def _running(self, course: Course) -> Iterable[tuple[Instant, int]]:
        for found in course.trials.values():
            if not found.state.is_live:
                continue
            state = self._allocations.state(task_names.allocation(found.task, found.state.run))
            if state is not None and state.started_at is not None:
                yield state.started_at, course.slots_per_trial
