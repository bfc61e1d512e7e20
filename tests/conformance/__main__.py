"""`make conformance`: runs every adapter over every case, prints a table, writes build/conformance.json."""

import json
import sys
from collections import Counter
from pathlib import Path

from tests.conformance import cases, running
from tests.conformance.adapters import ADAPTERS

_SHOWN = 3
"""How many failures of a suite are printed where all suites run."""


def main(wanted: list[str]) -> int:
    if not cases.folder().is_dir():
        print(f"no cases at {cases.folder()}; set MUSTER_CONFORMANCE to the folder that has them", file=sys.stderr)
        return 2
    report: dict[str, dict[str, dict[str, int]]] = {}
    for system in ADAPTERS:
        for suite in cases.suites(system):
            if not wanted or suite in wanted or system in wanted:
                report.setdefault(system, {})[suite] = _run(system, suite, sys.maxsize if wanted else _SHOWN)
    if not report:
        print(f"no suite of {', '.join(wanted or ADAPTERS)} at {cases.folder()}", file=sys.stderr)
        return 2
    _show(report)
    if not wanted:
        path = Path("build/conformance.json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(report, indent=2) + "\n")
    return 1 if any(counts["failed"] for suites in report.values() for counts in suites.values()) else 0


def _run(system: str, suite: str, shown: int) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for title, outcome in running.outcomes(system, suite):
        counts[type(outcome).__name__] += 1
        if isinstance(outcome, cases.Failed) and counts["Failed"] <= shown:
            print(f"  {system}/{suite}: {title}\n    {outcome.why[:600]}")
    return {"passed": counts["Passed"], "failed": counts["Failed"], "not_applicable": counts["NotApplicable"]}


def _show(report: dict[str, dict[str, dict[str, int]]]) -> None:
    print(f"{'suite':58} {'passed':>7} {'failed':>7} {'n/a':>7}")
    for system, rows in report.items():
        for suite, counts in rows.items():
            numbers = (counts["passed"], counts["failed"], counts["not_applicable"])
            print(f"{f'{system}/{suite}':58}" + "".join(f" {number:7}" for number in numbers))
        totals = [sum(row[key] for row in rows.values()) for key in ("passed", "failed", "not_applicable")]
        print(f"{system + ' in all':58} {totals[0]:7} {totals[1]:7} {totals[2]:7}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
