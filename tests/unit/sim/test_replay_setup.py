import pytest
from tests.unit.sim.replay_worlds import trace

from muster.api import errors
from muster.sim.replay.estimates import estimates
from muster.sim.replay.machines import Machines
from muster.sim.replay.shares import Shares

JOBS = trace((0, 30, 1, "a"), (0, 10, 1, "b"), (0, 10, 2, "c"))


def test_nodes_of_several_kinds():
    machines = Machines.parse("2x8, 3x4")
    assert (machines.nodes, machines.gpus) == (5, 28)
    assert list(machines.by_name().values()) == [8, 8, 4, 4, 4]


@pytest.mark.parametrize("text", ["", "8", "0x8", "4x0", "4x8,", "4x8x2", "-1x8"])
def test_nodes_that_cannot_be_read(text):
    with pytest.raises(errors.BadRequest, match="nodes"):
        Machines.parse(text)


@pytest.mark.parametrize(
    ("nodes", "gpus", "pods"),
    [
        ("4x8", 1, (1, 1)),
        ("4x8", 8, (1, 8)),
        ("4x8", 16, (2, 8)),
        ("4x8", 12, (2, 6)),
        ("1x8,8x4", 16, (4, 4)),
        ("2x4", 7, (7, 1)),
    ],
)
def test_a_job_has_as_few_pods_as_fit(nodes, gpus, pods):
    assert Machines.parse(nodes).pods_for(gpus) == pods


def test_a_job_that_is_larger_than_the_cluster_is_refused():
    with pytest.raises(errors.BadRequest, match="asks for 33 GPUs"):
        Machines.parse("4x8").pods_for(33)


def test_quotas_by_demand_are_whole_and_all_is_given():
    assert Shares.parse("demand", JOBS, 16).quotas == {"a": 8, "b": 3, "c": 5}
    assert Shares.parse("equal", JOBS, 16).quotas == {"a": 6, "b": 5, "c": 5}


def test_one_queue_takes_all():
    shares = Shares.parse("one", JOBS, 16)
    assert (shares.quotas, shares.queue_of("b")) == ({"one": 16}, "one")


def test_quotas_as_named():
    assert Shares.parse("a=10,b=0, c=6", JOBS, 16).quotas == {"a": 10, "b": 0, "c": 6}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("most", "neither NAME=GPUS nor one of"),
        ("a=10,b=6", "jobs in c"),
        ("a=10,a=6", "twice"),
        ("a=1,b=1,c=1", "own 3 GPUs together"),
        ("a=x,b=1,c=1", "neither"),
    ],
)
def test_quotas_that_cannot_be(text, said):
    with pytest.raises(errors.BadRequest, match=said):
        Shares.parse(text, JOBS, 16)


def test_estimates_are_the_same_for_the_same_seed_and_right_without_noise():
    assert estimates(JOBS.jobs, 0.5, 7) == estimates(JOBS.jobs, 0.5, 7) != estimates(JOBS.jobs, 0.5, 8)
    assert estimates(JOBS.jobs, 0.0, 7) == [30, 10, 10]
