"""The replay itself: virtual time goes from one arrival or end to the next, and at each the engine decides."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Final, TypeAlias

from muster.sim.replay.deciding import Decider, Outcome, Started
from muster.sim.replay.estimates import estimates
from muster.sim.replay.lives import Course, Dues, Life, Promise
from muster.sim.replay.machines import Machines
from muster.sim.replay.policies import Options, Policy
from muster.sim.replay.reserving import Reserving
from muster.sim.replay.shares import Shares
from muster.sim.traces import Trace

Told: TypeAlias = Callable[[int], None]
_TELL_EVERY: Final = 100


@dataclass(frozen=True, slots=True)
class Setup:
    trace: Trace
    machines: Machines
    shares: Shares
    policy: Policy
    options: Options


@dataclass(frozen=True, slots=True)
class History:
    setup: Setup
    lives: list[Life]
    course: Course
    preemptions: int
    owed: Mapping[str, float]
    """By queue, GPU seconds of its quota that it had jobs for and did not have."""
    held_idle: float
    """GPU seconds that nodes stood idle while they were reserved."""
    promises: Sequence[Promise] = ()


def replay(setup: Setup, told: Told | None = None) -> History:
    """All jobs of the trace, from the first that comes to the last that ends. `told`: now and then, how many have
    ended. Raises BadRequest for jobs that can never start."""
    for gpus in sorted({job.gpus for job in setup.trace.jobs}):
        setup.machines.pods_for(gpus)
    return _Replay(setup, told).run()


class _Replay:
    def __init__(self, setup: Setup, told: Told | None) -> None:
        self._setup = setup
        self._told = told
        policy, options, jobs = setup.policy, setup.options, setup.trace.jobs
        self._decider = Decider(setup.machines, setup.shares, policy, setup.trace.starts)
        self._lives = [Life(job, job.seconds) for job in jobs]
        self._guesses = estimates(jobs, options.noise, options.seed)
        self._ends: list[tuple[float, int, int]] = []  # when, job, attempt: stale where that was preempted
        self._course = Course()
        self._dues = Dues(setup.shares.quotas)
        self._arrived = self._ended = self._busy = self._waiting = self._preemptions = 0
        self._reserving: Reserving | None = None
        if policy.reserves:
            self._reserving = Reserving(setup.machines, options, self._decider, self._lives, self._guesses)

    def run(self) -> History:
        while (now := self._next()) < inf:
            if self._reserving is not None:
                self._reserving.pass_time(now)
            self._end(now)
            self._admit_arrivals(now)
            self._apply(self._decider.decide(now), now)
            if self._reserving is not None:
                while self._reserving.step(now):
                    self._apply(self._decider.decide(now), now)
            self._course.note(now, self._busy, self._waiting)
        held = self._reserving.held_idle if self._reserving is not None else 0.0
        promises = self._reserving.promises if self._reserving is not None else ()
        return History(self._setup, self._lives, self._course, self._preemptions, self._dues.owed(), held, promises)

    def _queue(self, life: Life) -> str:
        return self._setup.shares.queue_of(life.job.queue)

    def _next(self) -> float:
        while self._ends and self._is_stale(*self._ends[0]):
            heappop(self._ends)
        jobs = self._setup.trace.jobs
        arrival = jobs[self._arrived].arrives if self._arrived < len(jobs) else inf
        due = self._reserving.next_due() if self._reserving is not None else inf
        return min(arrival, due, self._ends[0][0] if self._ends else inf)

    def _is_stale(self, _when: float, job: int, attempt: int) -> bool:
        life = self._lives[job]
        return life.started is None or life.attempt != attempt

    def _end(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            ending = heappop(self._ends)
            if self._is_stale(*ending):
                continue
            life = self._lives[ending[1]]
            self._busy -= life.job.gpus
            self._dues.change(self._queue(life), now, asked=-life.job.gpus, used=-life.job.gpus)
            if self._reserving is not None:
                self._reserving.left(life)
            life.end(now)
            self._ended += 1
            if self._told is not None and self._ended % _TELL_EVERY == 0:
                self._told(self._ended)
            self._decider.ended(life.job.number)

    def _admit_arrivals(self, now: float) -> None:
        jobs, by_length = self._setup.trace.jobs, self._setup.policy.shortest_first
        while self._arrived < len(jobs) and jobs[self._arrived].arrives <= now:
            job = jobs[self._arrived]
            self._arrived += 1
            self._waiting += 1
            self._dues.change(self._setup.shares.queue_of(job.queue), now, asked=job.gpus)
            # As if the shortest had come first: an order of its own, with the engine's own means.
            self._decider.waits(job, now, since=self._guesses[job.number] if by_length else None)
            if self._reserving is not None:
                self._reserving.came(job)

    def _apply(self, outcomes: list[Outcome], now: float) -> None:
        for outcome in outcomes:
            life = self._lives[outcome.job]
            if isinstance(outcome, Started):
                heappush(self._ends, (life.start(now, outcome.nodes), outcome.job, life.attempt))
                self._busy += life.job.gpus
                self._waiting -= 1
                self._dues.change(self._queue(life), now, used=life.job.gpus)
                if self._reserving is not None:
                    self._reserving.started(life)
            else:
                life.preempt(now, self._setup.options.checkpoint_seconds)
                self._busy -= life.job.gpus
                self._waiting += 1
                self._preemptions += 1
                self._dues.change(self._queue(life), now, used=-life.job.gpus)
