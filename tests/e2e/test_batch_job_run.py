"""A Kubernetes Job as a user applies it, on a real platform with real processes."""

import time
from collections.abc import Callable, Iterator

import pytest
from tests.e2e.cli_platform import ROOT, Platform, platform, processes_of

from muster.api.raw import Document

INDEXED = """
apiVersion: batch/v1
kind: Job
metadata: {name: greet}
spec:
  completionMode: Indexed
  completions: 3
  parallelism: 3
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: host, command: [sh, -c, "echo hello from $JOB_COMPLETION_INDEX"]}
"""
ENDLESS = """
apiVersion: batch/v1
kind: Job
metadata: {name: endless}
spec:
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: host, command: [sleep, "1000"]}]
"""


@pytest.fixture(scope="module")
def up() -> Iterator[Platform]:
    with platform() as found:
        yield found


def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def status(up: Platform, name: str) -> Document:
    found: Document = up.client.get("jobs.batch", name)["status"]
    return found


def is_true(up: Platform, name: str, condition: str) -> bool:
    return any(c["type"] == condition and c["status"] == "True" for c in status(up, name).get("conditions", []))


def test_a_job_that_is_applied_runs_and_completes(up: Platform) -> None:
    done = up.muster("apply", "-f", "-", stdin=INDEXED)
    assert done.stdout == "job.batch/greet created\n", done.stderr
    until(lambda: is_true(up, "greet", "Complete"))
    found = status(up, "greet")
    assert (found["succeeded"], found["completedIndexes"]) == (3, "0-2")
    names = sorted(pod["metadata"]["name"] for pod in up.client.list("pods"))
    assert [name[:8] for name in names] == ["greet-0-", "greet-1-", "greet-2-"]
    assert up.muster("logs", names[2]).stdout == "hello from 2\n"
    assert up.muster("get", "jobs.batch", "greet").stdout.splitlines()[1].split()[1:3] == ["Complete", "3/3"]
    assert up.muster("apply", "-f", "-", stdin=INDEXED).stdout == "job.batch/greet unchanged\n"
    up.muster("delete", "jobs.batch/greet")
    until(lambda: not up.client.list("pods"))


def test_a_job_is_deleted_with_its_processes(up: Platform) -> None:
    up.muster("apply", "-f", "-", stdin=ENDLESS)
    until(lambda: status(up, "endless").get("ready") == 1)
    assert any(process.cmdline() == ["sleep", "1000"] for process in processes_of(str(up.data)))
    up.muster("delete", "jobs.batch/endless")
    until(lambda: not up.client.list("pods"))
    assert not any(process.cmdline() == ["sleep", "1000"] for process in processes_of(str(up.data)))


def test_the_example_runs(up: Platform) -> None:
    done = up.muster("apply", "-f", str(ROOT / "examples" / "job.yaml"))
    assert done.returncode == 0, done.stderr
    until(lambda: is_true(up, "primes", "Complete"))
