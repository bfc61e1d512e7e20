"""The whole control plane under seeded faults. `make test-simulation` runs many more seeds than there are here."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulation.mutations import MUTATIONS, Mutation

from muster.assembly.controlling import controllers
from muster.sim import planning, plans, running, shrinking, world
from muster.sim.ledger import Violation

SEEDS = (1, 7, 9)  # of each size
MORE_SEEDS = 25


@pytest.mark.parametrize("seed", SEEDS)
def test_no_invariant_breaks_and_every_job_ends(seed: int) -> None:
    assert world.run(planning.plan(seed), controllers).violation is None


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.story)
def test_a_planted_bug_is_found(mutation: Mutation) -> None:
    """A change of the platform may move it to another seed: those from there on are tried as well."""
    assert any(mutation.found(seed) is not None for seed in range(mutation.seed, mutation.seed + MORE_SEEDS))


def test_a_seed_gives_the_same_run_whatever_order_sets_have(tmp_path: Path) -> None:
    code = (
        "from muster.assembly.controlling import controllers\n"
        "from muster.sim import planning, world\n"
        "print([world.run(planning.plan(seed), controllers).digest for seed in (1, 2)])\n"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": str(number)}, cwd=tmp_path, check=True,
            capture_output=True,
        ).stdout
        for number in (1, 2)
    }  # fmt: skip
    assert len(printed) == 1


def test_a_plan_survives_being_written_and_read() -> None:
    plan = planning.plan(3)
    assert plans.encode(plans.decode(plans.encode(plan))) == plans.encode(plan)
    assert world.run(plans.decode(plans.encode(plan)), controllers).digest == world.run(plan, controllers).digest


def test_a_failing_plan_is_made_short_and_told() -> None:
    evicting = next(one for one in MUTATIONS if "promised" in one.story)
    with evicting.planted():
        outcome = world.run(planning.plan(evicting.seed), controllers)
        shortest, report = running.explain(outcome, controllers, "muster sim run --seed 1")
    assert len(shortest.events) < len(outcome.plan.events)
    assert "events are enough" in report
    assert "story of pods default/" in report
    assert report.endswith("again: muster sim run --seed 1")


def test_shrinking_keeps_what_matters() -> None:
    plan = planning.plan(0)
    needed = {plan.events[3].at, plan.events[8].at}

    def attempt(candidate: plans.Plan) -> Violation | None:
        return Violation("it", "") if needed <= {event.at for event in candidate.events} else None

    shortest, _ = shrinking.shrink(plan, Violation("it", ""), attempt)
    assert {event.at for event in shortest.events} == needed
