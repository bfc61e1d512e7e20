"""`python -m bench SUITE...`: prints a table for each suite and writes build/bench/SUITE.json.

A suite is a module here with `run(progress) -> list[Figure]`. `all` runs every one.
"""

import importlib
import json
import os
import pkgutil
import platform
import sys
from pathlib import Path

import bench
from bench.figures import Figure, Progress, show

_OUT = Path("build/bench")
_NOT_SUITES = {"__main__", "figures", "jobs_load", "quota_core", "tasks_load", "watching", "experiments_load"}


def suites() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(bench.__path__) if module.name not in _NOT_SUITES)


def main(names: list[str]) -> int:
    wanted = suites() if names in ([], ["all"]) else names
    unknown = set(wanted) - set(suites())
    if unknown:
        print(f"no suite named {', '.join(sorted(unknown))}; there are: {', '.join(suites())}", file=sys.stderr)
        return 2
    for name in wanted:
        figures: list[Figure] = importlib.import_module(f"bench.{name}").run(Progress(name))
        show(name, figures)
        _OUT.mkdir(parents=True, exist_ok=True)
        machine = {"cpus": len(os.sched_getaffinity(0)), "python": platform.python_version()}
        report: dict[str, object] = {"machine": machine}
        report |= _by_shape(figures) | {"figures": {figure.name: figure.as_json() for figure in figures}}
        (_OUT / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n")
    return 0


def _by_shape(figures: list[Figure]) -> dict[str, object]:
    """`shape.what` as one entry a shape, for those who compare; `shape.what.kind` goes one deeper."""
    shapes: dict[str, object] = {}
    for figure in figures:
        *path, last = figure.name.split(".")
        level: dict[str, object] = shapes
        for name in path:
            below = level.setdefault(name, {})
            assert isinstance(below, dict), f"{figure.name}: {name} is a figure already"
            level = below
        if path:
            level[last] = figure.value
    return shapes


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
