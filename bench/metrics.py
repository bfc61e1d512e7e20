"""Metrics of trials: reports taken in durably, in process and over HTTP, and a million points drawn.

Senders over HTTP are a process of their own (`python -m bench.metrics …`), so that theirs is not counted as ours.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import aiohttp
import uvloop
from sqlalchemy import Connection, insert

from bench.figures import Figure, Progress
from muster.accounts.callers import Caller, UserId
from muster.api.meta import Instant
from muster.experiments import metric_blocks
from muster.experiments.metric_reports import Report
from muster.experiments.places import Places
from muster.experiments.states import TrialId
from muster.records.tables_experiments import METRICS
from muster.runtime.clock import SystemClock
from muster.server.determined import metric_series, metrics
from muster.server.determined.router import Router
from muster.server.listening import listening
from muster.store.embedded import EmbeddedStore
from muster.testing import trials
from muster.testing.accounts import ADMIN
from muster.testing.servers import app_for
from muster.testing.trials import START, Reporting, a_report

_ASKED_ROWS = 10_000
_TRIALS = 200
_REPORTS = 200
"""Of each trial."""
_BATCH = 50
_POINTS = 1_000_000
_ASKED_MS = 300.0
_VALUES = {"loss": 0.693, "accuracy": 0.5, "learning_rate": 0.001, "grad_norm": 1.25}


def run(progress: Progress) -> list[Figure]:
    figures = []
    for what, measure in (
        (f"{_TRIALS} trials, {_TRIALS * _REPORTS} reports in process", _in_process),
        (f"{_TRIALS} trials over HTTP", _over_http),
        (f"a metric of {_POINTS:,} points", _drawn),
    ):
        progress(what)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as `muster up` does
            figures += runner.run(measure())
    return figures


@asynccontextmanager
async def _reporting() -> AsyncIterator[tuple[Reporting, list[TrialId]]]:
    with tempfile.TemporaryDirectory() as folder:
        async with trials.reporting(Path(folder)) as at:
            experiment = await at.experiment()
            yield at, [await at.trial(experiment) for _ in range(_TRIALS)]


async def _in_process() -> list[Figure]:
    async with _reporting() as (at, found):

        async def report(trial: TrialId) -> None:
            for start in range(0, _REPORTS, _BATCH):
                await at.intake.report_all([_told(trial, steps) for steps in range(start, start + _BATCH)])

        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for trial in found:
                group.create_task(report(trial))
        rows = _TRIALS * _REPORTS / (time.perf_counter() - started)
    note = f"{_TRIALS} trials, {len(_VALUES)} values a row, every tenth a validation; each on disk when acknowledged"
    return [Figure("rows_taken_in", rows, "rows/s", _ASKED_ROWS, note=note)]


def _told(trial: TrialId, steps: int) -> Report:
    return a_report(trial, "validation" if steps % 10 == 0 else "training", steps, _VALUES)


async def _over_http() -> list[Figure]:
    async with _reporting() as (at, found), _serving(at) as url:
        single = await _send(at, url, found, 0, 1)
        batched = await _send(at, url, found, _REPORTS, _BATCH)
    rows = _TRIALS * _REPORTS
    return [
        Figure(
            "rows_over_http", rows / batched, "rows/s", _ASKED_ROWS,
            note=f"{_BATCH} reports a request; senders on the same two cores",
        ),
        Figure("requests_over_http", rows / single, "requests/s", note="a report each, as Determined's library does"),
    ]  # fmt: skip


async def _drawn() -> list[Figure]:
    """Filled as the table would be, and its blocks made as they are made; only not a million reports one by one."""
    async with _reporting() as (at, found), _serving(at) as url:
        trial = found[0]
        await _fill(at, trial)
        times = []
        async with aiohttp.ClientSession() as client:
            query = f"trialIds={trial}&metricIds=training.loss&maxDatapoints=1000"
            for _ in range(7):
                started = time.perf_counter()
                async with client.get(f"{url}/api/v1/trials/time-series?{query}") as reply:
                    assert reply.status == 200, await reply.text()
                    points = (await reply.json())["trials"][0]["metrics"][0]["data"]
                times.append(time.perf_counter() - started)
        assert 500 < len(points) <= 1000, len(points)
    return [
        Figure(
            "million_points_drawn", median(times) * 1000, "ms", _ASKED_MS, at_most=True,
            note=f"one metric, drawn with {len(points)}, over HTTP; the first time took {times[0] * 1000:.0f} ms",
        )
    ]  # fmt: skip


async def _fill(at: Reporting, trial: TrialId) -> None:
    def add(connection: Connection, start: int) -> None:
        rows = [
            {
                "trial_id": trial, "run": 1, "group": "training", "steps": steps, "at": Instant(START + steps),
                "metrics": json.dumps({"avg_metrics": {**_VALUES, "loss": 1 / (1 + steps)}}), "is_archived": False,
            }
            for steps in range(start, start + 50_000)
        ]  # fmt: skip
        connection.execute(insert(METRICS), rows)

    for start in range(0, _POINTS, 50_000):
        await at.database.write(lambda connection, start=start: add(connection, start))  # type: ignore[misc]
    while True:
        block = await at.database.read(lambda connection: metric_blocks.next_block(connection, trial, "training"))
        if block is None:
            return
        await at.database.write(lambda connection, block=block: metric_blocks.add(connection, block))  # type: ignore[misc]


@asynccontextmanager
async def _serving(at: Reporting) -> AsyncIterator[str]:
    """Each trial speaks for itself: its token is the name of its run."""

    async def authenticate(headers: Mapping[str, str]) -> Caller | None:
        token = headers.get("authorization", "").removeprefix("Bearer ")
        task = token.rpartition(".")[0]
        return Caller(UserId(1), "admin", allocation=token, task=task) if token else ADMIN.caller

    clock = SystemClock()
    async with EmbeddedStore.in_memory(clock=clock) as store:
        authorizer = at.ground.services.authorizer
        places = Places(at.database, authorizer)
        made = [*metrics.routes(at.intake, at.database, places, clock), *metric_series.routes(at.database, places)]
        app = app_for(store)
        app.mount(Router(made, authenticate, authorizer))
        async with listening(app, on_close=app.close) as url:
            yield url


async def _send(at: Reporting, url: str, found: Sequence[TrialId], first: int, batch: int) -> float:
    """Seconds that it took all of them."""
    tasks = [f"{trial}={(await at.told(trial)).task}" for trial in found]
    command = (sys.executable, "-m", "bench.metrics", url, str(first), str(batch), *tasks)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    seconds = float(await process.stdout.readline())
    await process.wait()
    return seconds


# What the others do


def _requests(trial: int, first: int, batch: int) -> list[bytes]:
    told = [
        {
            "group": "validation" if steps % 10 == 0 else "training",
            "metrics": {
                "trialId": trial, "trialRunId": 1, "stepsCompleted": steps, "reportTime": None,
                "metrics": {"avgMetrics": _VALUES, "batchMetrics": None},
            },
        }
        for steps in range(first, first + _REPORTS)
    ]  # fmt: skip
    if batch == 1:
        return [json.dumps(each).encode() for each in told]
    return [json.dumps({"reports": told[start : start + batch]}).encode() for start in range(0, len(told), batch)]


async def _send_all(url: str, first: int, batch: int, tasks: Sequence[str]) -> None:
    async def send(client: aiohttp.ClientSession, trial: int, token: str, bodies: Sequence[bytes]) -> None:
        path = f"{url}/api/v1/trials/{trial}/metrics{'' if batch == 1 else '/batch'}"
        for body in bodies:
            async with client.post(path, data=body, headers={"Authorization": f"Bearer {token}"}) as reply:
                assert reply.status == 200, await reply.text()

    sent = [(int(trial), f"{task}.1") for trial, task in (each.split("=") for each in tasks)]
    bodies = [_requests(trial, first, batch) for trial, _ in sent]
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for (trial, token), mine in zip(sent, bodies, strict=True):
                group.create_task(send(client, trial, token, mine))
        print(time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    uvloop.run(_send_all(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
