"""The runtime suite over host processes and over the one that pretends."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import uvloop

from muster.agent import cgroups
from muster.agent.host_process import HostProcessRuntime
from muster.agent.runtime import Attempt, Runtime
from muster.runtime.clock import SystemClock
from muster.testing.runtimes import PretendMachine, PretendRuntime, RuntimeSuite


class HostWorld:
    def __init__(self) -> None:
        self.made: list[HostProcessRuntime] = []

    def runtime(self) -> Runtime:
        self.made.append(HostProcessRuntime(SystemClock(), groups=cgroups.find(), drain_seconds=0.2))
        return self.made[-1]

    async def crash(self, runtime: Runtime) -> None:
        assert isinstance(runtime, HostProcessRuntime)
        await runtime.close()

    def exits(self, code: int) -> Sequence[str]:
        return ["sh", "-c", f"exit {code}"]

    def sleeps(self, seconds: float, code: int = 0) -> Sequence[str]:
        return ["sh", "-c", f"sleep {seconds}; exit {code}"]

    def says(self, text: str) -> Sequence[str]:
        return ["printf", "%s\n", text]

    def ignores_term(self, seconds: float) -> Sequence[str]:
        return ["sh", "-c", f"trap '' TERM; echo ready; sleep {seconds}"]

    def missing(self) -> Sequence[str]:
        return ["no-such-command-anywhere"]


class PretendWorld:
    def __init__(self) -> None:
        self.machine = PretendMachine(SystemClock())

    def runtime(self) -> Runtime:
        return PretendRuntime(self.machine)

    async def crash(self, runtime: Runtime) -> None:
        """Nothing of it was in the runtime."""

    def exits(self, code: int) -> Sequence[str]:
        return ["exit", str(code)]

    def sleeps(self, seconds: float, code: int = 0) -> Sequence[str]:
        return ["sleep", str(seconds), str(code)]

    def says(self, text: str) -> Sequence[str]:
        return ["say", text]

    def ignores_term(self, seconds: float) -> Sequence[str]:
        return ["ignore-term", str(seconds)]

    def missing(self) -> Sequence[str]:
        return ["no-such-command-anywhere"]


class TestHostProcesses(RuntimeSuite):
    @pytest.fixture
    async def world(self) -> AsyncIterator[HostWorld]:
        world = HostWorld()
        yield world
        for runtime in world.made:
            await runtime.close()


def test_host_processes_run_on_uvloop_too(tmp_path: Path) -> None:
    async def main() -> None:
        world = HostWorld()
        runtime = world.runtime()
        suite = TestHostProcesses()
        quick, slow = Attempt(tmp_path / "containers" / "quick", 0), Attempt(tmp_path / "containers" / "slow", 0)
        await suite.test_exit_codes_are_exact(world, quick, 3)
        await suite.test_attempts_survive_the_agent_and_are_adopted(world, slow)
        await world.crash(runtime)
        for made in world.made:
            await world.crash(made)

    uvloop.run(main())


class TestPretending(RuntimeSuite):
    @pytest.fixture
    async def world(self) -> PretendWorld:
        return PretendWorld()
