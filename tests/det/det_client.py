"""The unmodified client of Determined as one user: its own home, its own tokens, the environment that the CLI reads."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / "build" / "det-venv"
PYTHON = ENVIRONMENT / "bin" / "python"
DET = ENVIRONMENT / "bin" / "det"


@dataclass(frozen=True)
class Outcome:
    arguments: Sequence[str]
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def rows(self) -> list[dict[str, str]]:
        """Of a table that the CLI printed."""
        split = [[cell.strip() for cell in line.split("|")] for line in self.lines if "|" in line]
        titles, *rows = split
        return [dict(zip(titles, row, strict=False)) for row in rows]


class Forks:
    """The process that imports the client once and becomes each call of it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "forks"
        self._process = subprocess.Popen(
            [PYTHON, Path(__file__).with_name("det_forks.py"), self._path],
            stdin=subprocess.DEVNULL,
            env={**_quiet(os.environ), "HOME": str(directory)},
        )
        deadline = time.monotonic() + 60
        while not self._path.exists():
            assert self._process.poll() is None, "the client cannot be imported"
            assert time.monotonic() < deadline, "the client takes more than a minute to import"
            time.sleep(0.02)

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], text: str) -> "Running":
        call = {"arguments": list(arguments), "environment": dict(environment), "directory": environment["HOME"]}
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connect(connection)
        with tempfile.TemporaryFile("w+") as given:
            given.write(text)
            given.seek(0)
            out, err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")  # noqa: SIM115  kept by what runs
            streams = [given.fileno(), out.fileno(), err.fileno()]
            socket.send_fds(connection, [json.dumps(call).encode() + b"\n"], streams)
        return Running(arguments, connection, out, err)

    def _connect(self, connection: socket.socket) -> None:
        # The path is there a moment before anybody listens on it.
        deadline = time.monotonic() + 5
        while True:
            try:
                connection.connect(str(self._path))
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


class Running:
    """A call of the client that goes on, and what it has printed so far."""

    def __init__(self, arguments: Sequence[str], connection: socket.socket, out: TextIO, err: TextIO) -> None:
        self.arguments = arguments
        self._connection = connection
        self._files = (out, err)
        self._answers = connection.makefile("r")
        self.pid = int(self._answers.readline())

    def wait(self, timeout: float = 60.0) -> Outcome:
        """One that takes too long is killed, and fails the test with what it said."""
        self._connection.settimeout(timeout)
        try:
            told = self._answers.readline()
        except TimeoutError:
            self.kill()
            raise AssertionError(f"det {' '.join(self.arguments)} did not end in {timeout} s:\n{self.text}") from None
        code = int(told) if told else -signal.SIGKILL
        outcome = Outcome(self.arguments, code, *map(_content, self._files))
        self._close()
        return outcome

    @property
    def text(self) -> str:
        return "".join(map(_content, self._files))

    def until(self, word: str, timeout: float = 30.0) -> str:
        """What it has printed once that is in it."""
        deadline = time.monotonic() + timeout
        while word not in (text := self.text):
            assert time.monotonic() < deadline, f"{word!r} was not printed in {timeout} s:\n{text}"
            time.sleep(0.02)
        return text

    def interrupt(self) -> None:
        os.kill(self.pid, signal.SIGINT)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        """Of one that would go on for ever."""
        self.kill()
        self.wait()

    def _close(self) -> None:
        self._answers.close()
        self._connection.close()
        for file in self._files:
            file.close()


def _content(file: TextIO) -> str:
    """Read by position: the child writes through the same open file, and its position is not ours to move."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


@dataclass(frozen=True)
class Det:
    """One user at one server."""

    forks: Forks
    master: str
    home: Path
    user: str
    password: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            **_quiet(os.environ),
            "HOME": str(self.home),
            "DET_MASTER": self.master,
            "DET_USER": self.user,
            "DET_PASS": self.password,
            "COLUMNS": "400",
            "BROWSER": "echo %s",  # opening an address prints it
        }

    def __call__(self, *arguments: str, code: int = 0, text: str = "", timeout: float = 60.0) -> Outcome:
        """Runs it to its end. `code`: what it must end with. `text`: on its standard input."""
        outcome = self.start(*arguments, text=text).wait(timeout)
        told = f"det {' '.join(arguments)} ended with {outcome.code}, not {code}:\n{outcome.text}"
        assert outcome.code == code, told
        return outcome

    def start(self, *arguments: str, text: str = "") -> Running:
        # The client reads DET_MASTER when it is imported, which was long ago.
        return self.forks.start(["-m", self.master, *arguments], self.environment, text)

    def process(self, *arguments: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """The executable itself, as a user starts it."""
        return subprocess.run(
            [DET, *arguments],
            env=self.environment,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def python(self, script: str, *arguments: str, timeout: float = 60.0) -> str:
        """What a script prints that uses the SDK."""
        done = subprocess.run(
            [PYTHON, "-W", "ignore", "-c", script, *arguments],
            env=self.environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def write(self, name: str, text: str) -> str:
        """A file in the home, where every call starts."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)


def _quiet(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(("DET_", "MUSTER_"))}
