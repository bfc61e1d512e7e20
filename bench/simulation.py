"""The whole control plane in virtual time: how much faster than a clock it is, and what a job costs on the way.

The world is that of `muster sim run`: real store, controllers, quota and placement, simulated agents, and every
commit checked against every invariant. Here nothing fails: what is measured is the steady state.
"""

import random
import time
from itertools import takewhile

from bench.figures import Figure, Progress
from muster.assembly.controlling import controllers
from muster.sim import loads, planning, world
from muster.sim.loads import Load
from muster.sim.plans import NodeShape, Plan, QueueShape, submit
from muster.sim.tape import commits_of
from muster.sim.world import Outcome

_NODES = 200
_JOBS_PER_MINUTE = 50
_HOUR = 3600.0
_QUEUES = ("red", "green", "blue", "grey")
_SEEDS = 20


def run(progress: Progress) -> list[Figure]:
    progress(f"an hour of {_JOBS_PER_MINUTE} jobs a minute on {_NODES} nodes")
    chance = random.Random(0)
    seconds, outcome = _timed(_an_hour(loads.kueue_shapes(_QUEUES, chance), chance))
    jobs = outcome.happened["Submit"]
    writes = next(iter(commits_of(outcome.records[-1:]))).revision
    note = f"{_NODES} nodes, {jobs:,} jobs, {outcome.seconds:,.0f} virtual s in {seconds:,.1f} s of processor time"
    progress("the same of lone pods, as in scheduler_perf")
    of_pods, pods = _timed(_an_hour(loads.scheduler_perf_shapes(chance), chance))
    progress(f"{_SEEDS} seeds with faults")
    of_seeds = sum(_timed(planning.plan(seed))[0] for seed in range(_SEEDS))
    return [
        Figure("steady.speed", outcome.seconds / seconds, "x", 5000, note=note),
        Figure("steady.ms_a_job", 1000 * seconds / jobs, "ms", note="processor time, with the leases of all nodes"),
        Figure("steady.writes_a_job", writes / jobs, "writes", note="that changed something"),
        Figure("pods.speed", pods.seconds / of_pods, "x", note=f"{pods.happened['Submit']:,} lone pods"),
        Figure("faults.seeds_a_second", _SEEDS / of_seeds, "/s", note=f"{_SEEDS} seeds of `muster sim run`, one core"),
    ]


def _timed(plan: Plan) -> tuple[float, Outcome]:
    started = time.process_time()
    outcome = world.run(plan, controllers)
    seconds = time.process_time() - started
    assert outcome.violation is None, outcome.violation
    return seconds, outcome


def _an_hour(load: Load, chance: random.Random) -> Plan:
    """Of a load that comes bit by bit; queues of one cohort have room for all of it."""
    nodes = tuple(NodeShape(rack=f"r{number % 10}") for number in range(_NODES))
    cpus = sum(node.cpus for node in nodes) // len(_QUEUES)
    queues = tuple(QueueShape(name, cpus=cpus, gpus=0, cohort="all") for name in _QUEUES)
    arriving = loads.arrivals(load, _JOBS_PER_MINUTE, chance)
    events = tuple(submit(at, document) for at, document in takewhile(lambda pair: pair[0] < _HOUR, arriving))
    return Plan(0, nodes, queues, events)
