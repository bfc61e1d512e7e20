"""Seeds run one after the other, or side by side: what the command line, the tests and long soaks share."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from muster.sim import reports, shrinking, world
from muster.sim.plans import Plan
from muster.sim.processes import Assemble
from muster.sim.world import Outcome


def run_all(plans: Sequence[Plan], assemble: Assemble, workers: int = 1) -> Iterator[Outcome]:
    """In the order of the plans, whoever runs them."""
    run = partial(world.run, assemble=assemble)
    if workers == 1:
        yield from map(run, plans)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(run, plans, chunksize=2)


def line(outcome: Outcome) -> str:
    said = "ok" if outcome.violation is None else str(outcome.violation)
    figures = f"{outcome.seconds:6.0f} virtual s  {outcome.commits:5} commits"
    return f"seed {outcome.plan.seed:<6} {outcome.digest}  {figures}  {said}"


def explain(outcome: Outcome, assemble: Assemble, command: str) -> tuple[Plan, str]:
    """The shortest plan that fails alike, and the report of it."""
    assert outcome.violation is not None
    shortest, _ = shrinking.shrink(
        outcome.plan, outcome.violation, lambda candidate: world.run(candidate, assemble).violation
    )
    report = reports.failure(world.run(shortest, assemble), original=len(outcome.plan.events), command=command)
    return shortest, report
