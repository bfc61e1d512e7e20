"""Runs the real kubectl against a server of ours."""

import asyncio
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

KUBECTL = os.environ.get("KUBECTL") or shutil.which("kubectl")


def require_kubectl() -> None:
    if KUBECTL is None:
        message = "kubectl is not installed; put it on PATH or name it in KUBECTL"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(message)
        pytest.skip(message)


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Kubectl:
    home: Path
    kubeconfig: Path
    processes: list[asyncio.subprocess.Process] = field(default_factory=list)

    async def run(self, *arguments: str, stdin: str = "") -> Outcome:
        process = await self.start(*arguments)
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 60)
        assert process.returncode is not None
        return Outcome(process.returncode, out.decode(), err.decode())

    async def __call__(self, *arguments: str, stdin: str = "") -> str:
        """What it printed. Fails the test where kubectl failed."""
        outcome = await self.run(*arguments, stdin=stdin)
        assert outcome.code == 0, f"kubectl {' '.join(arguments)}: {outcome.err}{outcome.out}"
        return outcome.out

    async def fails(self, *arguments: str, stdin: str = "") -> str:
        """What it complained of. Fails the test where kubectl succeeded."""
        outcome = await self.run(*arguments, stdin=stdin)
        assert outcome.code != 0, f"kubectl {' '.join(arguments)} succeeded: {outcome.out}"
        return outcome.err

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        assert KUBECTL is not None
        process = await asyncio.create_subprocess_exec(
            KUBECTL,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig)},
        )
        self.processes.append(process)
        return process

    async def stop(self) -> None:
        for process in self.processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
