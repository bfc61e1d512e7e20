"""The real `muster` as a process, and what belongs to one that runs."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from muster.sdk import Client

MUSTER = [sys.executable, "-m", "muster.cli.main"]
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Platform:
    """`more`: what its users must have in their environment, beside where its data is."""

    data: Path
    process: subprocess.Popen[bytes]
    client: Client
    log: Path
    more: Mapping[str, str] = field(default_factory=dict)

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
            **self.more,
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
