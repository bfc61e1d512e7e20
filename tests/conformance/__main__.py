"""`make conformance`: runs every adapter over every case, prints a table, writes build/conformance.json."""

import json
import sys
from collections import Counter
from pathlib import Path

from tests.conformance import cases
from tests.conformance.adapters import ADAPTERS


def main(wanted: list[str]) -> int:
    if not cases.folder().is_dir():
        print(f"no cases at {cases.folder()}; set MUSTER_CONFORMANCE to the folder that has them", file=sys.stderr)
        return 2
    report: dict[str, dict[str, dict[str, int]]] = {}
    failures = 0
    for system, adapters in ADAPTERS.items():
        for suite in cases.suites(system):
            if suite not in adapters or (wanted and suite not in wanted and system not in wanted):
                continue
            counts: Counter[str] = Counter()
            for case in cases.read(system, suite):
                outcome = cases.run(adapters[suite], case)
                counts[type(outcome).__name__] += 1
                if isinstance(outcome, cases.Failed) and (wanted or counts["Failed"] <= 3):
                    print(f"  {system}/{suite}: {cases.title(case)}\n    {outcome.why[:600]}")
            failures += counts["Failed"]
            report.setdefault(system, {})[suite] = {
                "passed": counts["Passed"],
                "failed": counts["Failed"],
                "not_applicable": counts["NotApplicable"],
            }
    _show(report)
    if not wanted:
        path = Path("build/conformance.json")
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(report, indent=2) + "\n")
    return 1 if failures else 0


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
