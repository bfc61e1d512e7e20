"""Processes of this machine that belong to a cluster: agents as its nodes, controllers beside them."""

import asyncio
import contextlib
import secrets
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.e2e.cli_platform import MUSTER, end, is_ready, processes_of

from muster.api import core, errors
from muster.api.objects import Key
from muster.store.kubernetes import KubernetesStore
from muster.store.protocol import Delete

_READY_SECONDS = 30.0


@dataclass
class Machines:
    """`home`: where agents keep what they run, and everybody's log is."""

    store: KubernetesStore
    configuration: Path
    home: Path
    lines: dict[str, list[str]] = field(default_factory=dict)
    """The command line of each node's agent."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    async def node(self, *, gpus: int = 0, labels: Mapping[str, str] | None = None) -> str:
        """The name of a new one, once it takes pods."""
        name = f"node-{secrets.token_hex(3)}"
        self.lines[name] = ["agent", "--name", name, "--host", "127.0.0.1", "--fake-gpus", str(gpus)]
        self.lines[name] += ["--data", str(self.home / name)]
        self.lines[name] += [word for key, value in (labels or {}).items() for word in ("--label", f"{key}={value}")]
        await self.revive(name)
        return name

    async def revive(self, name: str) -> None:
        """Start the node's agent, once again or for the first time."""
        self.start(name, *self.lines[name])
        await self._until_ready(name)

    def kill(self, name: str) -> None:
        """At once, as if it had crashed."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        """`muster …` with the cluster's configuration. `name`: what to call the process here."""
        line = [*MUSTER, *arguments, "--kubeconfig", str(self.configuration)]
        with self._log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(line, stdout=log, stderr=log)
        return self.processes[name]

    def said(self) -> str:
        """By all of them."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.home.glob("*.log")))

    async def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                end(process)
        for left in processes_of(str(self.home)):
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()
        await self.store.write([Delete(core.NODE, Key("", name)) for name in self.lines])

    def _log(self, name: str) -> Path:
        return self.home / f"{name}.log"

    async def _until_ready(self, name: str) -> None:
        """Fit for pods as far as the cluster knows, too: it takes the taint off that new nodes have."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_READY_SECONDS):
                while self.processes[name].poll() is None:
                    with contextlib.suppress(errors.NotFound):
                        found = (await self.store.get(core.NODE, Key("", name))).document()
                        if is_ready(found) and not found.get("spec", {}).get("taints"):
                            return
                    await asyncio.sleep(0.1)
        raise AssertionError(f"node {name} did not come up:\n{self.said()}")
