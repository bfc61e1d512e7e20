"""The whole platform as a user meets it: start, idle memory, one job's latency, many short pods."""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from bench.figures import Figure, Progress
from muster.sdk import Client, Selection, config, jobs, resources
from muster.testing.builders import a_pod

_PODS = 500
_RUNS = 15
_HELPS = 7


def run(progress: Progress) -> list[Figure]:
    progress("muster --help")
    figures = [_help()]
    with tempfile.TemporaryDirectory() as folder, _platform(Path(folder)) as (client, process, ready):
        note = "from `muster up` until its node answers to a client"
        figures.append(Figure("up_ready", ready, "s", 1.5, at_most=True, note=note))
        progress("idle memory")
        time.sleep(3)
        memory = process.memory_info().rss / 2**20
        figures.append(Figure("idle_memory", memory, "MiB", 150, at_most=True))
        progress(f"{_RUNS} x muster run -- true")
        figures.append(_run_latency(client))
        progress(f"{_PODS} short pods")
        figures.append(_short_pods(client))
    return figures


def _help() -> Figure:
    times = []
    for _ in range(_HELPS):
        started = time.perf_counter()
        subprocess.run([Path(sys.executable).with_name("muster"), "--help"], stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - started)
    return Figure("help", min(times) * 1000, "ms", 150, at_most=True, note="`muster --help`, best of several")


@contextlib.contextmanager
def _platform(data: Path) -> Iterator[tuple[Client, psutil.Process, float]]:
    started = time.perf_counter()
    command = [str(Path(sys.executable).with_name("muster")), "up", "--port", "0", "--data", str(data), "--quiet"]
    with subprocess.Popen(command) as process:
        try:
            client = _when_ready(data)
            yield client, psutil.Process(process.pid), time.perf_counter() - started
        finally:
            process.terminate()


def _when_ready(data: Path) -> Client:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(Exception):
            client = Client(config.connection(data=data, env={"HOME": os.environ.get("HOME", "/")}))
            if client.list(resources.NODES):
                return client
        time.sleep(0.01)
    raise TimeoutError("muster up did not answer within 30 s")


def _run_latency(client: Client) -> Figure:
    """From the submit until the exit code is known, as `muster run` does it."""
    times = []
    for _ in range(_RUNS):
        started = time.perf_counter()
        result = jobs.run(["true"], client=client)
        times.append(time.perf_counter() - started)
        assert result.exit_code == 0
    note = f"median of {_RUNS}; worst {max(times) * 1000:.0f} ms"
    return Figure("run_true", statistics.median(times) * 1000, "ms", 150, at_most=True, note=note)


def _short_pods(client: Client) -> Figure:
    """All are created first, then timed until the last has finished: started and reaped, statuses stored durably."""
    started = time.perf_counter()
    for number in range(_PODS):
        document = a_pod(f"short-{number}").command("true").document()
        document["spec"]["restartPolicy"] = "Never"
        client.create(document, resources.PODS)
    while True:
        pods = client.list(resources.PODS, Selection(namespace="default"))
        phases = [pod["status"].get("phase") for pod in pods if pod["metadata"]["name"].startswith("short-")]
        if phases.count("Succeeded") == _PODS:
            break
        assert "Failed" not in phases
        time.sleep(0.1)
    seconds = time.perf_counter() - started
    note = "one node, one client that creates them one by one, until all have succeeded"
    return Figure("short_pods", _PODS / seconds, "pods/s", 50, note=note)
