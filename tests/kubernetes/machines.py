"""Processes of this machine that belong to a cluster: agents as its nodes, controllers beside them."""

import asyncio
import contextlib
import secrets
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.e2e.processes import MUSTER, ROOT, end, is_ready, processes_of

from muster.api import core, errors
from muster.api.objects import Key
from muster.deploying import kinds, names
from muster.store.kubernetes import KubernetesStore
from muster.store.protocol import Create, Delete

_READY_SECONDS = 40.0
_WEBHOOKS = (kinds.MUTATING_WEBHOOKS, kinds.VALIDATING_WEBHOOKS)


def a_name() -> str:
    """Of a node, which no other has had."""
    return f"node-{secrets.token_hex(3)}"


@dataclass
class _Process:
    line: list[str]
    is_up: Callable[[], Awaitable[bool]]
    running: subprocess.Popen[bytes] | None = None


@dataclass
class Machines:
    """`home`: where agents keep what they run, and everybody's log is."""

    store: KubernetesStore
    configuration: Path
    home: Path
    known: dict[str, _Process] = field(default_factory=dict)
    nodes: list[str] = field(default_factory=list)

    async def node(self, *, gpus: int = 0, labels: Mapping[str, str] | None = None) -> str:
        """The name of a new one, once it takes pods."""
        told = [word for key, value in (labels or {}).items() for word in ("--label", f"{key}={value}")]
        name = a_name()
        await self.join(name, "--fake-gpus", str(gpus), *told, configuration=self.configuration)
        return name

    async def join(self, name: str, *arguments: str, configuration: Path) -> None:
        """A node whose agent is whom that configuration says."""
        line = [*MUSTER, "agent", "--name", name, "--host", "127.0.0.1", "--data", str(self.home / name), *arguments]
        self.known[name] = _Process([*line, "--kubeconfig", str(configuration)], lambda: self._is_fit(name))
        self.nodes.append(name)
        await self.start(name)

    async def controller(self, *, is_mortal: bool = False) -> str:
        """`muster controller` with webhooks, once these are registered. It needs our kinds. `is_mortal`: to be killed,
        after which the next need not wait for long."""
        await self.store.write([Create(core.NAMESPACE, {"metadata": {"name": names.NAMESPACE}})])
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        address = ("--webhook-port", str(port), "--webhook-url", f"https://127.0.0.1:{port}")
        line = [*MUSTER, "controller", "--metrics-port", "0", *address, "--kubeconfig", str(self.configuration)]
        if is_mortal:
            line = [sys.executable, "-m", "tests.kubernetes.mortal_controller", str(self.configuration), str(port)]
        self.known["controller"] = _Process(line, lambda: self._is_asked_at(port))
        await self.start("controller")
        return "controller"

    async def start(self, name: str) -> None:
        """For the first time, or once again; returns when it is up."""
        process = self.known[name]
        with (self.home / f"{name}.log").open("ab") as log:
            process.running = subprocess.Popen(process.line, stdout=log, stderr=log, cwd=ROOT)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_READY_SECONDS):
                while process.running.poll() is None:
                    with contextlib.suppress(errors.NotFound):
                        if await process.is_up():
                            return
                    await asyncio.sleep(0.1)
        raise AssertionError(f"{name} did not come up:\n{self.said()}")

    def kill(self, name: str) -> None:
        """At once, as if it had crashed."""
        process = self.known[name].running
        assert process is not None
        process.kill()
        process.wait()

    def said(self) -> str:
        """By all of them."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.home.glob("*.log")))

    async def close(self) -> None:
        for process in self.known.values():
            if process.running is not None and process.running.poll() is None:
                end(process.running)
        for left in processes_of(str(self.home)):
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()
        await self.store.write(
            [
                *(Delete(core.NODE, Key("", name)) for name in self.nodes),
                # Nobody answers there any more.
                *(
                    Delete(kind, Key("", names.WEBHOOK))
                    for kind in (kinds.MUTATING_WEBHOOKS, kinds.VALIDATING_WEBHOOKS)
                ),
                *(Delete(kinds.API_SERVICE, Key("", name)) for name in names.API_SERVICES),
            ]
        )

    async def _is_fit(self, name: str) -> bool:
        """Ready, and as far as the cluster knows, too: it takes the taint off that new nodes have."""
        found = (await self.store.get(core.NODE, Key("", name))).document()
        return is_ready(found) and not found.get("spec", {}).get("taints")

    async def _is_asked_at(self, port: int) -> bool:
        """Whether the API server asks the webhooks that listen there."""
        found = await self.store.get(kinds.VALIDATING_WEBHOOKS, Key("", names.WEBHOOK))
        return f":{port}/" in str(found.document()["webhooks"])
