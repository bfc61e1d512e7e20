"""Jobs of three dialects through a whole platform with 1,000 simulated nodes, durably: see `bench.jobs_load`.

Seconds by the clock are what a user waits on a machine that does nothing else; `cpu_seconds` is what the platform
itself took of it, nodes and all, and says more where others use the same cores. Ratios compare two runs of one kind:
1 is linear growth.
"""

import json
import subprocess
import sys

from bench.figures import Figure, Progress
from muster.api.raw import Document

_DIALECTS = ("volcano", "batch", "pytorch")
_JOBS, _PODS = 1_000, 10
_FEW = 250
_BIG = 10_000
_MEMORY = (1_000, 2_000, 4_000)
_MEMORY_PODS = 2
_TIMEOUT = 900.0


def run(progress: Progress) -> list[Figure]:
    figures: list[Figure] = []
    for dialect in _DIALECTS:
        figures += _thousand_jobs(dialect, progress)
    for dialect in _DIALECTS:
        figures += _pods_per_second(dialect, progress)
    figures += _big_job(progress)
    figures += _memory(progress)
    return figures


def _measure(progress: Progress, what: str, dialect: str, jobs: int, pods: int) -> Document:
    progress(f"{dialect}: {what}, {jobs:,} x {pods:,} pods")
    command = [sys.executable, "-m", "bench.jobs_load", what, dialect, str(jobs), str(pods)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=_TIMEOUT)
    found: Document = json.loads(done.stdout)
    return found


def _thousand_jobs(dialect: str, progress: Progress) -> list[Figure]:
    stages = _measure(progress, "running", dialect, _JOBS, _PODS)
    few = _measure(progress, "running", dialect, _FEW, _PODS)
    name, running = f"thousand_jobs.{dialect}", stages["running"]
    note = f"all of {_JOBS * _PODS:,} pods Running, from the first job's creation; jobs say so after"
    growth = (running["cpu"] / _JOBS) / (few["running"]["cpu"] / _FEW)
    return [
        Figure(
            f"{name}.seconds",
            running["seconds"],
            "s",
            20,
            at_most=True,
            note=f"{note} {stages['jobs_running']['seconds']:.1f} s",
        ),
        Figure(f"{name}.cpu_seconds", running["cpu"], "s"),
        Figure(
            f"{name}.growth", growth, "", 1.5, at_most=True, note=f"processor time a job, of {_JOBS:,} against {_FEW}"
        ),
    ]


def _pods_per_second(dialect: str, progress: Progress) -> list[Figure]:
    several = _measure(progress, "controller", dialect, _JOBS, _PODS)["created"]
    one = _measure(progress, "controller", dialect, 1, _BIG)["created"]
    pods = _JOBS * _PODS
    note = f"the job controller alone, {_JOBS:,} jobs of {_PODS}; {pods / several['cpu']:,.0f} a second of processor"
    whole = f"the same, one job; {_BIG / one['cpu']:,.0f} a second of processor time"
    return [
        Figure(f"pods_per_second.{dialect}", pods / several["seconds"], "pods/s", 2_000, note=note),
        Figure(f"pods_per_second.{dialect}_one_job", _BIG / one["seconds"], "pods/s", 2_000, note=whole),
    ]


def _big_job(progress: Progress) -> list[Figure]:
    stages = _measure(progress, "whole", "volcano", 1, _BIG)
    names = {
        "accepted": "the job is stored",
        "created": "all pods are",
        "placed": "all have a node: one gang, all or nothing",
        "running": "all run",
        "jobs_running": "the job says so",
        "succeeded": f"the job is Completed; the nodes told so from {stages['jobs_running']['seconds']:.1f} s on",
    }
    figures = []
    for stage, note in names.items():
        found = stages[stage]
        figures.append(
            Figure(f"big_job.{stage}", found["seconds"], "s", note=f"{note}; {found['cpu']:.1f} s of processor")
        )
    small = _measure(progress, "whole", "volcano", 1, _BIG // 4)
    growth = stages["succeeded"]["cpu"] / small["succeeded"]["cpu"] / 4
    note = f"processor time a pod, of {_BIG:,} against {_BIG // 4:,}"
    figures.append(Figure("big_job.growth", growth, "", 1.5, at_most=True, note=note))
    return figures


def _memory(progress: Progress) -> list[Figure]:
    """Growth from the first to the second size against that from the second to the third: the same a job where it is
    linear. What the store remembers of the past is full by then."""
    figures = []
    found = {}
    for jobs in _MEMORY:
        measured = _measure(progress, "memory", "volcano", jobs, _MEMORY_PODS)
        found[jobs] = measured["full"]
        note = f"the whole process, {_MEMORY_PODS} pods a job; {measured['empty']:.0f} MiB before"
        figures.append(Figure(f"memory.{jobs}_jobs", measured["full"], "MiB", note=note))
    first, second, third = _MEMORY
    early = (found[second] - found[first]) / (second - first)
    late = (found[third] - found[second]) / (third - second)
    figures.append(Figure("memory.kib_per_job", late * 1024, "KiB", note=f"from {second:,} to {third:,} jobs"))
    note = f"a job, from {second:,} to {third:,} against {first:,} to {second:,}"
    figures.append(Figure("memory.growth", late / early, "", 1.25, at_most=True, note=note))
    return figures
