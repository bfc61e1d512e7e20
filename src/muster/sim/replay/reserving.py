"""Backfill in front of the engine: nodes are reserved for the oldest large job once it has waited for the bound, and
meanwhile only those may use them who are expected to be gone in time. Where somebody takes longer than that, the
reservation moves to nodes that have room sooner.

A reservation is a taint on its nodes. The job that it is for tolerates it, and so do, for one decision, those who are
let in; what a taint keeps out, the engine need not be told.
"""

from collections.abc import Sequence
from itertools import islice
from math import inf
from typing import Final

from muster.sim.replay.deciding import Decider
from muster.sim.replay.lives import Life, Promise
from muster.sim.replay.machines import Machines
from muster.sim.replay.policies import Options
from muster.sim.replay.reservations import Place, Reservation, Tenant, reserve
from muster.sim.traces import Job

_DEPTH: Final = 100
"""How many of those who wait are looked at for one that may be let in."""


class Reserving:
    def __init__(
        self,
        machines: Machines,
        options: Options,
        decider: Decider,
        lives: Sequence[Life],
        guesses: Sequence[float],
    ) -> None:
        self.held_idle = 0.0
        self.promises: list[Promise] = []
        self._options = options
        self._decider = decider
        self._lives = lives
        self._guesses = guesses
        self._pods = {gpus: machines.pods_for(gpus) for gpus in {life.job.gpus for life in lives}}
        self._free = machines.by_name()
        self._on: dict[str, dict[int, int]] = {name: {} for name in self._free}
        self._waiting: dict[int, None] = {}
        self._large: dict[int, None] = {}
        self._reservation: Reservation | None = None
        self._let_in: list[int] = []
        self._counted_to = 0.0

    # What happens

    def came(self, job: Job) -> None:
        self._waiting[job.number] = None
        if job.gpus >= self._options.large_gpus:
            self._large[job.number] = None

    def started(self, life: Life) -> None:
        number = life.job.number
        del self._waiting[number]
        self._large.pop(number, None)
        for node, gpus in life.nodes:
            self._free[node] -= gpus
            self._on[node][number] = gpus

    def left(self, life: Life) -> None:
        for node, gpus in life.nodes:
            self._free[node] += gpus
            del self._on[node][life.job.number]

    # What follows

    def next_due(self) -> float:
        """When nodes have to be reserved though nothing happens."""
        oldest = next(iter(self._large), None)
        if oldest is None or self._reservation is not None:
            return inf
        return self._lives[oldest].job.arrives + self._options.bound_seconds

    def step(self, now: float) -> bool:
        """Whether something has changed that the engine should decide about."""
        if self._let_in:
            return self._send_back(now)
        if self._reservation is not None and self._reservation.job not in self._large:
            self._decider.open(sorted(self._reservation.nodes))
            self._reservation = None
            return True
        if self._reservation is None:
            return self._reserve(now)
        if now > self._reservation.starts and self._move(self._reservation, now):
            return True
        return self._let_some_in(self._reservation, now)

    def pass_time(self, now: float) -> None:
        """Nothing has happened since it was last called: what is reserved and idle, has been so."""
        if self._reservation is not None:
            self.held_idle += (now - self._counted_to) * sum(self._free[name] for name in self._reservation.nodes)
        self._counted_to = now

    def _reserve(self, now: float) -> bool:
        if now < self.next_due():
            return False
        oldest = next(iter(self._large))
        self._reservation = self._soonest(oldest, now)
        self.promises.append(Promise(oldest, now, self._reservation.starts))
        self._decider.reserve(sorted(self._reservation.nodes))
        self._decider.waits(self._lives[oldest].job, now, may_use_reserved=True)
        return True

    def _move(self, overdue: Reservation, now: float) -> bool:
        """Somebody on its nodes takes longer than estimated: others may have room sooner. Whether they have."""
        self._reservation = self._soonest(overdue.job, now)
        if self._reservation.nodes == overdue.nodes:
            return False
        self._decider.open(sorted(overdue.nodes - self._reservation.nodes))
        self._decider.reserve(sorted(self._reservation.nodes - overdue.nodes))
        return True

    def _soonest(self, job: int, now: float) -> Reservation:
        places = {name: Place(free, self._tenants(name, now)) for name, free in self._free.items()}
        return reserve(job, *self._pods[self._lives[job].job.gpus], places, now)

    def _tenants(self, node: str, now: float) -> list[Tenant]:
        """Whoever takes longer than estimated is expected to take as long again as it has run."""
        found = []
        for number, gpus in self._on[node].items():
            started = self._lives[number].started
            assert started is not None
            ends = started + self._guesses[number]
            found.append(Tenant(ends if ends >= now else now + (now - started), gpus))
        return found

    def _let_some_in(self, reservation: Reservation, now: float) -> bool:
        """The first of those who wait that have room there. They are told that they may, for one decision."""
        free = [self._free[name] for name in reservation.nodes]
        for number in islice(self._waiting, _DEPTH):
            if not any(free):
                break
            job = self._lives[number].job
            if number == reservation.job or not reservation.lets_in(self._guesses[number], now):
                continue
            pods, size = self._pods[job.gpus]
            if sum(each // size for each in free) >= pods:
                _take(free, pods, size)
                self._let_in.append(number)
                self._decider.waits(job, now, may_use_reserved=True)
        return bool(self._let_in)

    def _send_back(self, now: float) -> bool:
        """Whoever was let in and has not started is kept out again."""
        refused = [number for number in self._let_in if number in self._waiting]
        has_room = len(refused) < len(self._let_in)
        self._let_in.clear()
        for number in refused:
            self._decider.waits(self._lives[number].job, now)
        return has_room


def _take(free: list[int], pods: int, size: int) -> None:
    for index, each in enumerate(free):
        taken = min(pods, each // size)
        free[index] -= taken * size
        pods -= taken
