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
from muster.sim.replay.policies import POLICIES, Options, Policy
from muster.sim.replay.report import report
from muster.sim.replay.running import Setup, replay
from muster.sim.replay.shares import Shares
from muster.sim.traces import Job, Trace

_SECONDS = 60.0  # asked of the whole Philly trace, 82,000 jobs
_LOADS = {"roomy": 0.15, "busy": 0.8, "overloaded": 1.0}
"""What part of the GPUs the trace would keep busy if its jobs came evenly; the real Philly cluster was a roomy one."""
_MADE_UP = 3_000
_SIZES = (1,) * 93 + (2, 2, 4, 4, 8, 8, 16)


def run(progress: Progress) -> list[Figure]:
    trace, name = _trace()
    return [
        _measure(trace, name, cluster, policy, progress)
        for cluster in _LOADS
        for policy in POLICIES.values()
        if cluster != "roomy" or policy.name == "best-effort"  # where nobody waits, they do the same
    ]


def _measure(trace: Trace, name: str, cluster: str, policy: Policy, progress: Progress) -> Figure:
    machines = Machines.sized_for(trace, _LOADS[cluster])
    progress(f"{len(trace.jobs):,} jobs on {machines.nodes} nodes, {policy.name}")
    shares = Shares.parse("demand", trace, machines.gpus)
    started = time.process_time()
    found = report(replay(Setup(trace, machines, shares, policy, Options())))
    seconds = time.process_time() - started
    note = f"{name}, {len(trace.jobs):,} jobs on {machines.nodes}x8; mean wait {found.wait.mean:,.0f} s"
    allowed = _SECONDS * len(trace.jobs) / 82_000
    return Figure(f"{cluster}.{policy.name}.seconds", seconds, "s", allowed, at_most=True, note=note)


def _trace() -> tuple[Trace, str]:
    named = os.environ.get("MUSTER_TRACE")
    return (traces.read(Path(named)), Path(named).name) if named else (_made_up(), "made up")


def _made_up() -> Trace:
    """One GPU mostly, minutes mostly, and a few that take half a day: no longer, lest most of the work comes after the
    last arrival, and nobody waits on a cluster that is called busy."""
    chance = random.Random(0)
    jobs, now = [], 0.0
    for number in range(_MADE_UP):
        now += chance.expovariate(1 / 300)
        seconds = min(12 * 3600.0, chance.lognormvariate(6.5, 2.5))
        jobs.append(Job(number, now, seconds, chance.choice(_SIZES), f"q{chance.randrange(15)}"))
    return Trace(jobs)
