"""Tasks: how long the shortest takes with the real client, and what two thousand that run cost. Their logs: `logs`.

`det cmd run true` is run by Determined's own client, which `make test-det` installs; without it only what the client
asks of the server is measured.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.det.det_client import DET, Forks
from tests.det.det_platform import DetPlatform, det_platform

from bench.figures import Figure, Progress

_RUNS = 11
_COUNT = 2_000
_FEW = 500
_TIMEOUT = 900.0


def run(progress: Progress) -> list[Figure]:
    figures = []
    if DET.exists():
        progress(f"{_RUNS} x det cmd run true")
        figures += _shortest()
    else:
        progress("without `det cmd run true`: `make test-det` installs the client")
    figures += _many(progress)
    return figures


def _shortest() -> list[Figure]:
    with (
        tempfile.TemporaryDirectory() as folder,
        _forks(Path(folder)) as forks,
        det_platform(forks, "--set", "log.level=warning") as platform,
    ):
        det = platform.admin
        det("user", "whoami")
        starts = [_seconds(platform, "user", "whoami") for _ in range(_RUNS)]
        runs = [_seconds(platform, "cmd", "run", "true") for _ in range(_RUNS)]
        whole = _whole(platform)
    beyond = statistics.median(runs) - statistics.median(starts)
    note = (
        f"median of {_RUNS}, worst {max(runs):.2f} s, less what a client takes that only logs in; as a user starts it, "
        f"importing the client, {whole:.1f} s"
    )
    return [Figure("cmd_run_true", beyond * 1000, "ms", 1000, at_most=True, note=note)]


@contextlib.contextmanager
def _forks(folder: Path) -> Iterator[Forks]:
    forks = Forks(folder)
    try:
        yield forks
    finally:
        forks.stop()


def _seconds(platform: DetPlatform, *words: str) -> float:
    started = time.perf_counter()
    platform.admin(*words)
    return time.perf_counter() - started


def _whole(platform: DetPlatform) -> float:
    started = time.perf_counter()
    done = platform.admin.process("cmd", "run", "true")
    assert done.returncode == 0, done.stderr
    return time.perf_counter() - started


def _many(progress: Progress) -> list[Figure]:
    few, many = (_load(progress, count) for count in (_FEW, _COUNT))
    each = (many["full"] - few["full"]) / (_COUNT - _FEW) * 1024
    growth = (many["cpu"] / _COUNT) / (few["cpu"] / _FEW)
    return [
        Figure(
            "memory_of_2000", many["full"], "MiB", 1024, at_most=True,
            note=f"the whole server, {_COUNT:,} running commands, simulated nodes; {many['empty']:.0f} MiB before, "
            f"{many['threads']:.0f} threads",
        ),
        Figure("memory_of_each", each, "KiB", note=f"from {_FEW:,} to {_COUNT:,}"),
        Figure("submits", _COUNT / many["submitted"], "commands/s", note="over HTTP, each durable when acknowledged"),
        Figure("all_running", many["running"], "s", note=f"{_COUNT:,} commands, from the first submit"),
        Figure("growth", growth, "", 1.5, at_most=True, note=f"processor time a command, of {_COUNT:,} against {_FEW}"),
        Figure("list_2000", many["listed"] * 1000, "ms", note="`GET /api/v1/commands` of all of them"),
    ]  # fmt: skip


def _load(progress: Progress, count: int) -> dict[str, float]:
    progress(f"{count:,} running commands")
    command = [sys.executable, "-m", "bench.tasks_load", str(count)]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=_TIMEOUT, env=environment)
    found: dict[str, float] = json.loads(done.stdout)
    return found
