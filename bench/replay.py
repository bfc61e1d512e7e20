"""Replay of a trace: the Philly cluster's jobs, where that trace is there, else jobs made up in its likeness.

`MUSTER_TRACE` names the file; its columns are in docs/guide/simulation.md.
"""

import os
import random
import time
from pathlib import Path

from bench.figures import Figure, Progress
from muster.sim import traces
from muster.sim.replay.machines import Machines
from muster.sim.replay.policies import POLICIES, Options
from muster.sim.replay.report import report
from muster.sim.replay.running import Setup, replay
from muster.sim.replay.shares import Shares
from muster.sim.traces import Job, Trace

_NODES = "128x8"
_SECONDS = 60.0  # asked of the whole Philly trace, 82,000 jobs
_MADE_UP = 10_000
_SIZES = (1,) * 93 + (2, 2, 4, 4, 8, 8, 16)


def run(progress: Progress) -> list[Figure]:
    trace, name = _trace()
    machines = Machines.parse(_NODES)
    figures: list[Figure] = []
    for policy in POLICIES.values():
        progress(f"{len(trace.jobs):,} jobs, {policy.name}")
        shares = Shares.parse("demand", trace, machines.gpus)
        started = time.process_time()
        found = report(replay(Setup(trace, machines, shares, policy, Options())))
        seconds = time.process_time() - started
        note = f"{name}, {len(trace.jobs):,} jobs on {_NODES}; mean wait {found.wait.mean:,.0f} s"
        allowed = _SECONDS * len(trace.jobs) / 82_000
        figures.append(Figure(f"{policy.name}.seconds", seconds, "s", allowed, at_most=True, note=note))
    return figures


def _trace() -> tuple[Trace, str]:
    named = os.environ.get("MUSTER_TRACE")
    return (traces.read(Path(named)), Path(named).name) if named else (_made_up(), "made up")


def _made_up() -> Trace:
    """One GPU mostly, minutes mostly, and a few that take days."""
    chance = random.Random(0)
    jobs, now = [], 0.0
    for number in range(_MADE_UP):
        now += chance.expovariate(1 / 60)
        seconds = min(30 * 86400.0, chance.lognormvariate(6.5, 2.5))
        jobs.append(Job(number, now, seconds, chance.choice(_SIZES), f"q{chance.randrange(15)}"))
    return Trace(jobs)
