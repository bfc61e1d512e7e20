"""The engine is not asked where nobody could start: the outcome must be the one that asking each time would have."""

import random

import pytest
from tests.unit.sim.replay_worlds import lived, trace

from muster.sim.replay.machines import Machines
from muster.sim.replay.policies import POLICIES
from muster.sim.replay.prospects import Prospects


def prospects(nodes: str, policy: str) -> Prospects:
    return Prospects(Machines.parse(nodes), POLICIES[policy])


def test_there_are_none_while_nobody_waits_or_nodes_are_full():
    found = prospects("1x8", "best-effort")
    assert not found.has_any()
    found.came(1, 8, "a")
    assert found.has_any()
    found.started(1, [("node-00000", 8)])
    found.came(2, 1, "a")
    assert not found.has_any()
    found.left([("node-00000", 8)])
    assert found.has_any()


def test_free_gpus_must_be_together_where_pods_need_them():
    found = prospects("2x8", "best-effort")
    for number, node in enumerate(("node-00000", "node-00001")):
        found.came(number, 4, "a")
        found.started(number, [(node, 4)])
    found.came(2, 8, "a")
    assert not found.has_any(), "four are free on each of two nodes"


@pytest.mark.parametrize(("policy", "expected"), [("fifo", False), ("best-effort", True)])
def test_whoever_is_behind_the_first_counts_unless_the_queue_is_strict(policy, expected):
    found = prospects("1x8", policy)
    found.came(1, 4, "a")
    found.started(1, [("node-00000", 4)])
    found.came(2, 8, "a")
    found.came(3, 1, "a")
    assert found.has_any() is expected


def test_reserved_nodes_are_for_those_who_may_use_them():
    found = prospects("1x8", "backfill")
    found.reserve(["node-00000"], is_open=False)
    found.came(1, 1, "a")
    assert not found.has_any()
    found.came(1, 1, "a", may_use_reserved=True)
    assert found.has_any()
    found.came(1, 1, "a")
    assert not found.has_any()
    found.reserve(["node-00000"], is_open=True)
    assert found.has_any()


def test_where_jobs_can_be_preempted_room_can_be_made():
    found = prospects("1x8", "fair")
    found.came(1, 8, "a")
    found.started(1, [("node-00000", 8)])
    assert not found.has_any()
    found.came(2, 1, "b")
    assert found.has_any()


@pytest.mark.parametrize("policy", ["fifo", "best-effort", "fair", "shortest"])
def test_the_outcome_is_the_same_as_when_the_engine_is_asked_each_time(policy, monkeypatch):
    chance = random.Random(7)
    came = sorted(
        (float(chance.randrange(600)), chance.uniform(1, 90), chance.choice((1, 1, 1, 2, 4, 8, 16))) for _ in range(150)
    )
    jobs = trace(*((*job, chance.choice("abc")) for job in came))
    sparing = lived(jobs, "3x8", policy, "demand")
    monkeypatch.setattr(Prospects, "has_any", lambda _: True)
    asking = lived(jobs, "3x8", policy, "demand")
    assert [(life.first_started, life.ended, life.nodes) for life in sparing.lives] == [
        (life.first_started, life.ended, life.nodes) for life in asking.lives
    ]
    assert max(sparing.course.waiting) > 20, "or nothing was spared"
