"""Searches: how long ten thousand trials of one second take on sixteen slots, and what the server adds to each.

`make bench SUITE=experiments COUNT=10000` runs all of them. Otherwise fewer are run, and what all would take follows
from the pace of the later half of these, without the last of them, when slots stay empty.
"""

import json
import os
import subprocess
import sys

from bench.experiments_load import SLOTS, TRIAL_SECONDS
from bench.figures import Figure, Progress

_ALL = 10_000
_USUAL = 640
_CONCURRENT = 2 * SLOTS
"""Of a search that keeps its slots busy: the next trials wait for them, as jobs of others do."""
_TIMEOUT = 3600.0
_BOUND = _ALL * TRIAL_SECONDS / SLOTS


def run(progress: Progress) -> list[Figure]:
    count = int(os.environ.get("COUNT") or _USUAL)
    found = {most: _search(progress, count, most) for most in (_CONCURRENT, SLOTS)}
    waiting, bare = found[_CONCURRENT], found[SLOTS]
    return [
        Figure(
            "ten_thousand_trials", waiting["whole"], "s", 690, at_most=True,
            note=f"{_how(count)}; a search with max_concurrent_trials {_CONCURRENT}, whose trials each report a "
            f"validation; nobody can do it in less than {_BOUND:.0f} s",
        ),
        Figure(
            "turnaround", waiting["turnaround"] * 1000, "ms",
            note="from the end of a trial until the next runs on its slot",
        ),
        Figure(
            "ten_thousand_trials_without_any_waiting", bare["whole"], "s",
            note=f"max_concurrent_trials {SLOTS}: the next trial is made when one has ended; turnaround "
            f"{bare['turnaround'] * 1000:.0f} ms",
        ),
        Figure("work", waiting["cpu"] * 1000, "ms", note="processor time of the whole server for a trial"),
    ]  # fmt: skip


def _how(count: int) -> str:
    return "measured" if count >= _ALL else f"from {count:,}, at the pace of their later half"


def _search(progress: Progress, count: int, concurrent: int) -> dict[str, float]:
    progress(f"{count:,} trials of a second, {concurrent} of a search at once")
    command = [sys.executable, "-m", "bench.experiments_load", str(count), str(concurrent)]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=_TIMEOUT, env=environment)
    told = json.loads(done.stdout)
    ended: list[float] = sorted(told["ended"])
    half = len(ended) // 2
    pace = (ended[-SLOTS] - ended[half]) / (len(ended) - SLOTS - half)
    whole = told["seconds"] if count >= _ALL else told["seconds"] + (_ALL - count) * pace
    return {"whole": whole, "turnaround": pace * SLOTS - TRIAL_SECONDS, "cpu": told["cpu"] / count}
