"""A real platform as a process of its own, and the real `muster` beside it."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from muster.api import errors
from muster.sdk import Client
from muster.sdk.config import connection
from muster.sdk.resources import NODES

MUSTER = [sys.executable, "-m", "muster.cli.main"]
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Platform:
    data: Path
    process: subprocess.Popen[bytes]
    client: Client
    log: Path

    @property
    def env(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
        bin_directory = str(Path(sys.executable).parent)
        return {
            **kept,
            "MUSTER_DATA": str(self.data),
            "XDG_CONFIG_HOME": str(self.data / "no-config"),
            "KUBECONFIG": str(self.data / "kubeconfig"),
            "PATH": f"{bin_directory}:{kept.get('PATH', '')}",
        }

    def muster(self, *arguments: str, stdin: str = "", timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*MUSTER, *arguments],
            input=stdin,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*MUSTER, *arguments], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )


@contextlib.contextmanager
def platform(*options: str) -> Iterator[Platform]:
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


def is_ready(node: dict) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def end(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def processes_of(directory: str) -> list[psutil.Process]:
    """Processes whose command line, directory or environment mentions it: keepers, launchers, pods."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            where = [*process.cmdline(), process.cwd(), *process.environ().values()]
            if process.pid != os.getpid() and any(directory in word for word in where):
                found.append(process)
    return found
