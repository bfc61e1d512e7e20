"""`make soak HOURS=1`: seeds for as long as wanted; `make soak DAYS=100`: so many virtual days in which little happens.
What came of it is appended to docs/reliability.md."""

import argparse
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from muster.assembly.controlling import controllers
from muster.sim import planning, running
from muster.sim.plans import Plan
from muster.sim.world import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
AT_ONCE = 20
DAYS_OF_A_SEED = 10


def soak(hours: float, first: int, workers: int) -> list[Outcome]:
    until = time.monotonic() + 3600 * hours
    found: list[Outcome] = []
    while time.monotonic() < until:
        seeds = range(first + len(found), first + len(found) + AT_ONCE)
        found += run(map(planning.plan, seeds), workers)
    return found


def soak_days(days: int, first: int, workers: int) -> list[Outcome]:
    seeds = range(first, first + -(-days // DAYS_OF_A_SEED))
    return run((planning.days(seed, min(days, DAYS_OF_A_SEED)) for seed in seeds), workers)


def run(plans: Iterable[Plan], workers: int) -> list[Outcome]:
    """Outcomes without their records, which would fill memory."""
    found = []
    for outcome in running.run_all(list(plans), controllers, workers):
        outcome.records.clear()
        found.append(outcome)
        if outcome.violation is not None:
            print(running.line(outcome), flush=True)
    return found


def row(outcomes: list[Outcome]) -> str:
    faults: Counter[str] = Counter()
    for outcome in outcomes:
        faults.update({kind: count for kind, count in outcome.happened.items() if kind != "Submit"})
    broken = [str(outcome.plan.seed) for outcome in outcomes if outcome.violation is not None]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    columns = (
        f"{datetime.now(UTC):%Y-%m-%d}",
        commit.stdout.strip(),
        f"{outcomes[0].plan.seed}–{outcomes[-1].plan.seed}",
        f"{sum(outcome.seconds for outcome in outcomes) / 3600:,.1f}",
        f"{sum(outcome.commits for outcome in outcomes)}",
        ", ".join(f"{kind} {count}" for kind, count in sorted(faults.items())),
        ", ".join(broken) or "none",
    )
    return f"| {' | '.join(columns)} |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--days", type=int, help="virtual days, instead")
    parser.add_argument("--first", type=int, default=1000, help="the first seed")
    parser.add_argument("--workers", type=int, default=2)
    wanted = parser.parse_args()
    if wanted.days:
        outcomes = soak_days(wanted.days, wanted.first, wanted.workers)
    else:
        outcomes = soak(wanted.hours, wanted.first, wanted.workers)
    with PAGE.open("a") as page:
        page.write(row(outcomes))
    sys.exit(any(outcome.violation is not None for outcome in outcomes))


if __name__ == "__main__":
    main()
