"""A real platform as a process of its own, and the real `muster` beside it.

With MUSTER_E2E_ON=kubernetes the same tests have a Kubernetes cluster instead: see `cluster_platform`.
"""

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
from tests.e2e import cluster_platform
from tests.e2e.processes import MUSTER, ROOT, Platform, end, is_ready, processes_of

from muster.api import errors
from muster.sdk import Client
from muster.sdk.config import connection
from muster.sdk.resources import NODES

__all__ = ["MUSTER", "ROOT", "Platform", "end", "is_ready", "platform", "processes_of", "start", "wait_ready"]

ON_CLUSTER = os.environ.get("MUSTER_E2E_ON", "") == "kubernetes"


def platform(*options: str) -> AbstractContextManager[Platform]:
    """With the options of `muster up`."""
    return cluster_platform.on_cluster(*options) if ON_CLUSTER else _embedded(*options)


@contextlib.contextmanager
def _embedded(*options: str) -> Iterator[Platform]:
    with tempfile.TemporaryDirectory(prefix="muster-e2e-", ignore_cleanup_errors=True) as directory:
        data, log = Path(directory) / "data", Path(directory) / "up.log"
        process = start(data, log, options)
        try:
            client = wait_ready(process, data, log)
            try:
                yield Platform(data, process, client, log)
            finally:
                client.close()
        finally:
            end(process)
            for left in processes_of(directory):
                with contextlib.suppress(psutil.NoSuchProcess):
                    left.kill()


def start(data: Path, log: Path, options: Sequence[str]) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            [*MUSTER, "up", "--port", "0", "--data", str(data), *options],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def wait_ready(
    process: subprocess.Popen[bytes], data: Path, log: Path, *, nodes: int = 1, seconds: float = 30.0
) -> Client:
    """Once there are so many nodes, or more, and all of them are."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(errors.ApiError):
            client = Client(connection(data=data))
            found = client.list(NODES)
            if len(found) >= nodes and all(is_ready(node) for node in found):
                return client
            client.close()
        time.sleep(0.05)
    raise AssertionError(f"the platform did not start:\n{log.read_text()}")
