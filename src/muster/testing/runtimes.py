"""The conformance suite of the `Runtime` seam, and a runtime that only pretends, for tests on virtual time.

Inherit `RuntimeSuite` and provide a `world` fixture: it makes runtimes that share one machine, as an agent and its
successor do, and knows the commands that the suite needs.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest

from muster.agent.logs import LogOptions
from muster.agent.runtime import Attempt, Executed, Exit, Found, Launch, Running, Runtime, Unlaunchable
from muster.api.meta import Instant
from muster.runtime.clock import Clock


class World(Protocol):
    """One machine for the suite to run on."""

    def runtime(self) -> Runtime:
        """A new runtime, as a new agent process would make it."""
        ...

    async def crash(self, runtime: Runtime) -> None:
        """The agent process that had this runtime is gone."""
        ...

    def exits(self, code: int) -> Sequence[str]:
        """A command that ends at once."""
        ...

    def sleeps(self, seconds: float, code: int = 0) -> Sequence[str]: ...

    def says(self, text: str) -> Sequence[str]: ...

    def ignores_term(self, seconds: float) -> Sequence[str]:
        """Says "ready" once it can no longer be ended by TERM, then sleeps."""
        ...

    def missing(self) -> Sequence[str]:
        """A command that does not exist."""
        ...


async def read(runtime: Runtime, attempt: Attempt, *, follow: bool = False) -> str:
    return b"".join([piece async for piece in runtime.logs(attempt, LogOptions(follow=follow))]).decode()


class RuntimeSuite:
    """Sentences about any runtime."""

    @pytest.fixture
    def attempt(self, tmp_path: Path) -> Attempt:
        return Attempt(tmp_path / "containers" / "main", 0)

    def launch(self, attempt: Attempt, argv: Sequence[str]) -> Launch:
        name = f"suite-{attempt.directory.parent.parent.name}-{attempt.number}"
        return Launch(attempt, name, argv, {"PATH": "/usr/local/bin:/usr/bin:/bin"}, attempt.directory.parent.parent)

    @pytest.mark.parametrize("code", [0, 1, 3, 255])
    async def test_exit_codes_are_exact(self, world: World, attempt: Attempt, code: int) -> None:
        runtime = world.runtime()
        await runtime.start(self.launch(attempt, world.exits(code)))
        end = await runtime.wait(attempt)
        assert (end.exit_code, end.signal) == (code, 0)
        assert end.reason == ("Completed" if code == 0 else "Error")
        assert 0 < end.started_at <= end.finished_at

    async def test_what_runs_is_running_until_it_ends(self, world: World, attempt: Attempt) -> None:
        runtime = world.runtime()
        assert isinstance(await runtime.start(self.launch(attempt, world.sleeps(60))), Running)
        assert isinstance(await runtime.adopt(attempt), Running)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(runtime.wait(attempt), 0.05)
        await runtime.signal(attempt, signal.SIGKILL)
        assert (await runtime.wait(attempt)).exit_code == 137
        assert isinstance(await runtime.adopt(attempt), Exit)

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1])
    async def test_a_signal_ends_it_and_is_reported(self, world: World, attempt: Attempt, number: int) -> None:
        runtime = world.runtime()
        await runtime.start(self.launch(attempt, world.sleeps(60)))
        await runtime.signal(attempt, number)
        end = await runtime.wait(attempt)
        assert (end.exit_code, end.signal, end.reason) == (128 + number, number, "Error")

    async def test_term_may_be_ignored_and_kill_may_not(self, world: World, attempt: Attempt) -> None:
        runtime = world.runtime()
        await runtime.start(self.launch(attempt, world.ignores_term(60)))
        async for piece in runtime.logs(attempt, LogOptions(follow=True)):
            if b"ready" in piece:
                break
        await runtime.signal(attempt, signal.SIGTERM)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(runtime.wait(attempt), 0.2)
        await runtime.signal(attempt, signal.SIGKILL)
        assert (await runtime.wait(attempt)).signal == signal.SIGKILL

    async def test_signals_to_what_has_ended_do_nothing(self, world: World, attempt: Attempt) -> None:
        runtime = world.runtime()
        await runtime.signal(attempt, signal.SIGTERM)
        await runtime.start(self.launch(attempt, world.exits(4)))
        await runtime.wait(attempt)
        await runtime.signal(attempt, signal.SIGKILL)
        assert (await runtime.wait(attempt)).exit_code == 4

    async def test_any_number_may_wait(self, world: World, attempt: Attempt) -> None:
        runtime = world.runtime()
        await runtime.start(self.launch(attempt, world.sleeps(0.1, 7)))
        ends = await asyncio.gather(*(runtime.wait(attempt) for _ in range(5)))
        assert {end.exit_code for end in ends} == {7}

    async def test_an_attempt_runs_once_however_often_it_is_started(self, world: World, attempt: Attempt) -> None:
        first, second = world.runtime(), world.runtime()
        launch = self.launch(attempt, world.says("once"))
        await asyncio.gather(*(runtime.start(launch) for runtime in (first, second, first, second)))
        await first.wait(attempt)
        await second.start(launch)
        assert await read(second, attempt, follow=True) == "once\n"

    async def test_a_command_that_does_not_exist_is_an_end_that_says_so(self, world: World, attempt: Attempt) -> None:
        runtime = world.runtime()
        end = await runtime.start(self.launch(attempt, world.missing()))
        assert isinstance(end, Exit)
        assert (end.exit_code, end.reason) == (127, "ContainerCannotRun")
        assert world.missing()[0] in end.message
        assert await runtime.wait(attempt) == end

    async def test_output_is_kept(self, world: World, attempt: Attempt) -> None:
        runtime = world.runtime()
        await runtime.start(self.launch(attempt, world.says("hello\nworld")))
        await runtime.wait(attempt)
        assert await read(runtime, attempt) == "hello\nworld\n"

    async def test_following_ends_with_the_attempt(self, world: World, attempt: Attempt) -> None:
        runtime = world.runtime()
        await runtime.start(self.launch(attempt, world.sleeps(0.2)))
        assert await asyncio.wait_for(read(runtime, attempt, follow=True), 10) == ""
        assert isinstance(await runtime.adopt(attempt), Exit)

    async def test_what_never_ran_is_not_adopted(self, world: World, attempt: Attempt) -> None:
        assert await world.runtime().adopt(attempt) is None

    async def test_attempts_survive_the_agent_and_are_adopted(self, world: World, attempt: Attempt) -> None:
        old = world.runtime()
        await old.start(self.launch(attempt, world.sleeps(0.3, 9)))
        await world.crash(old)
        new = world.runtime()
        assert isinstance(await new.adopt(attempt), Running)
        assert (await new.wait(attempt)).exit_code == 9

    async def test_an_end_nobody_saw_is_known_afterwards(self, world: World, attempt: Attempt) -> None:
        old = world.runtime()
        await old.start(self.launch(attempt, world.exits(5)))
        await old.wait(attempt)
        await world.crash(old)
        found = await world.runtime().adopt(attempt)
        assert isinstance(found, Exit)
        assert found.exit_code == 5


@dataclass(slots=True)
class _Process:
    launch: Launch
    started_at: Instant
    output: str = ""
    ignores: frozenset[int] = frozenset()
    end: Exit | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class PretendMachine:
    """Where `PretendRuntime`s run their attempts. Survives them, as a machine survives its agent.

    Commands: `exit CODE`, `sleep SECONDS [CODE]`, `say TEXT`, `ignore-term SECONDS`. `launches` lists every start.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.processes: dict[Attempt, _Process] = {}
        self.launches: list[Launch] = []
        self.refusals = 0
        """How many of the next starts fail as if the runtime itself were broken."""

    def begin(self, launch: Launch) -> _Process:
        self.launches.append(launch)
        now = self.clock.now()
        process = self.processes[launch.attempt] = _Process(launch, now)
        # The agent counts attempts by the files that runtimes leave.
        launch.attempt.directory.mkdir(parents=True, exist_ok=True)
        (launch.attempt.directory / f"{launch.attempt.number}.state.json").write_text("{}")
        verb, *arguments = launch.argv
        match verb:
            case "exit":
                self.finish(process, int(arguments[0]))
            case "say":
                process.output = f"{arguments[0]}\n"
                self.finish(process, 0)
            case "sleep":
                self._finish_later(process, float(arguments[0]), int((*arguments, "0")[1]))
            case "ignore-term":
                process.output = "ready\n"
                process.ignores = frozenset({signal.SIGTERM})
                self._finish_later(process, float(arguments[0]), 0)
            case _:
                message = f'exec: "{verb}": executable file not found in $PATH'
                process.end = Exit(127, 0, "ContainerCannotRun", message, now, now)
                process.ended.set()
        return process

    def _finish_later(self, process: _Process, seconds: float, code: int) -> None:
        asyncio.get_running_loop().call_later(seconds, self.finish, process, code)

    def finish(self, process: _Process, code: int, number: int = 0) -> None:
        if process.end is None:
            reason = "Completed" if code == 0 else "Error"
            process.end = Exit(code, number, reason, "", process.started_at, self.clock.now())
            process.ended.set()


class PretendRuntime:
    """Runs nothing: attempts are entries of a `PretendMachine`, and their time is the clock's."""

    def __init__(self, machine: PretendMachine) -> None:
        self._machine = machine

    async def start(self, launch: Launch) -> Found:
        found = await self.adopt(launch.attempt)
        if found is not None:
            return found
        if self._machine.refusals:
            self._machine.refusals -= 1
            raise Unlaunchable("the machine pretends to be broken")
        process = self._machine.begin(launch)
        return process.end if process.end is not None else Running(process.started_at)

    async def signal(self, attempt: Attempt, number: int) -> None:
        process = self._machine.processes.get(attempt)
        if process is not None and number not in process.ignores:
            self._machine.finish(process, 128 + number, number)

    async def wait(self, attempt: Attempt) -> Exit:
        process = self._machine.processes[attempt]
        await process.ended.wait()
        assert process.end is not None
        return process.end

    async def logs(self, attempt: Attempt, options: LogOptions) -> AsyncIterator[bytes]:
        process = self._machine.processes[attempt]
        if process.output:
            yield process.output.encode()
        if options.follow:
            await process.ended.wait()

    async def adopt(self, attempt: Attempt) -> Found | None:
        process = self._machine.processes.get(attempt)
        if process is None:
            return None
        return process.end if process.end is not None else Running(process.started_at)

    async def execute(self, launch: Launch, argv: Sequence[str], timeout: float) -> Executed:  # noqa: ARG002
        return Executed(int(argv[1]) if argv[0] == "exit" else 0, "")


_: type[Runtime] = PretendRuntime
