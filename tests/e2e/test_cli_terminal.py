"""What a person at a terminal sees: a real `muster` on a pseudo-terminal."""

import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from fcntl import ioctl

import pytest
from tests.e2e.cli_platform import MUSTER, Platform, platform

from muster.sdk import jobs


@pytest.fixture(scope="module")
def up() -> Iterator[Platform]:
    with platform("--nodes", "2", "--fake-gpus", "1") as found:
        yield found


class Terminal:
    """One command on a terminal of its own."""

    def __init__(self, up: Platform, *arguments: str, width: int = 100, **env: str) -> None:
        self._ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        kept = {name: value for name, value in up.env.items() if name not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
        self.process = subprocess.Popen(
            [*MUSTER, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**kept, "TERM": "xterm-256color", **env},
            start_new_session=True,
            preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  Ctrl-C needs a controlling terminal
        )
        os.close(theirs)
        self.seen = ""

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def until(self, text: str, seconds: float = 20.0) -> str:
        """What was shown up to `text`, without colours."""
        deadline = time.monotonic() + seconds
        while text not in self.plain():
            assert time.monotonic() < deadline, f"{text!r} did not come; seen: {self.plain()}"
            self._read(0.1)
        return self.plain()

    def end(self, seconds: float = 30.0) -> int:
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read(0.05)
        self._read(0.05)
        os.close(self._ours)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        return self.process.wait()

    def plain(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.seen)

    def _read(self, seconds: float) -> None:
        while select.select([self._ours], [], [], seconds)[0]:
            try:
                self.seen += os.read(self._ours, 65536).decode("utf-8", "replace")
            except OSError:  # the other side has closed
                return


def test_run_shows_a_status_line_while_it_runs_and_a_summary_after(up):
    terminal = Terminal(up, "run", "--replicas", "2", "--", "sh", "-c", "echo hello; sleep 1")
    terminal.until("2 of 2 ranks, on ")
    assert terminal.end() == 0
    assert "[0] hello" in terminal.plain()
    assert "succeeded in" in terminal.plain()
    assert "\x1b[3" in terminal.seen  # colours


def test_no_color_is_respected(up):
    terminal = Terminal(up, "run", "--replicas", "2", "--", "echo", "hello", NO_COLOR="1")
    assert terminal.end() == 0
    assert "[0] hello" in terminal.plain()
    assert not re.search(r"\x1b\[(3|9)\d", terminal.seen)


def test_an_interrupt_asks_and_detaching_leaves_the_job_alone(up):
    terminal = Terminal(up, "run", "--name", "left", "--", "sh", "-c", "echo on; sleep 100")
    terminal.until("on\r\n")
    terminal.type("\x03")
    terminal.until("[d]etach, [s]top, [c]ontinue?")
    terminal.type("c")
    terminal.until("? c")
    terminal.type("\x03")
    time.sleep(0.3)  # the second question is the same text as the first
    terminal.type("d")
    terminal.until("left goes on")
    assert terminal.end() == 0
    assert jobs.status(up.client, "left").phase == "Running"
    jobs.wait_gone(up.client, jobs.stop(up.client, "left", grace_seconds=1))


def test_a_second_interrupt_stops_the_job(up):
    terminal = Terminal(up, "run", "--name", "twice", "--", "sh", "-c", "echo on; exec sleep 100")
    terminal.until("on\r\n")
    terminal.type("\x03")
    terminal.until("[d]etach")
    terminal.type("\x03")
    terminal.until("twice stopped")
    assert terminal.end() == 130


def test_a_job_that_waits_shows_the_reason_in_one_line(up):
    up.muster("run", "-d", "--name", "holds", "--replicas", "2", "--gpus", "1", "--", "sleep", "100")
    terminal = Terminal(up, "run", "--name", "waits", "--gpus", "1", "--", "true", width=60)
    terminal.until("Pending  1s")
    up.muster("stop", "holds", "--grace-period", "1")
    assert terminal.end() == 0
    assert all(len(line) <= 60 for line in re.split(r"[\r\n]+", terminal.plain()))


@pytest.mark.parametrize("width", [40, 80])
def test_tables_fit_the_terminal(up, width):
    for command in (["nodes"], ["get", "nodes", "-o", "wide"], ["ps"]):
        terminal = Terminal(up, *command, width=width)
        assert terminal.end() == 0
        assert all(len(line) <= width for line in terminal.plain().split("\r\n"))
        assert terminal.plain().count("\r\n") > 1
