"""Shapes that others measure with: a cluster takes them all in, and they come as often as was said."""

import random
from itertools import islice

import pytest

from muster.assembly.controlling import controllers
from muster.sim import loads, world
from muster.sim.loads import Load
from muster.sim.plans import NodeShape, Plan, QueueShape, submit

CHANCE = random.Random(7)
NODES = tuple(NodeShape(rack=f"r{number % 2}") for number in range(4))
QUEUES = tuple(QueueShape(name, cpus=sum(node.cpus for node in NODES), gpus=0, cohort="") for name in ("red", "blue"))


@pytest.mark.parametrize(
    "load",
    [loads.kueue_shapes([queue.name for queue in QUEUES], CHANCE), loads.scheduler_perf_shapes(CHANCE)],
    ids=["kueue", "scheduler_perf"],
)
def test_a_cluster_runs_what_others_measure_with(load: Load) -> None:
    arriving = loads.arrivals(islice(load, 40), 60.0, CHANCE)
    outcome = world.run(Plan(0, NODES, QUEUES, tuple(submit(at, document) for at, document in arriving)), controllers)
    assert outcome.violation is None
    assert outcome.happened["Submit"] == 40


def test_arrivals_come_as_often_as_they_should() -> None:
    times = [at for at, _ in islice(loads.arrivals(loads.scheduler_perf_shapes(CHANCE), 50.0, CHANCE), 5000)]
    assert times == sorted(times)
    assert 5000 / (times[-1] / 60) == pytest.approx(50.0, rel=0.1)
