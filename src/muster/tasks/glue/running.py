"""Sets a task up, runs it, and takes its output to the server. It ends with the program's own exit code."""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time

from . import entrypoints, removals, setting_up, trials
from .calls import Master, Refused, Unreachable
from .setting_up import Problem
from .shipping import Lines, Shipper, entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

CRASHED = 80
"""As Determined has it: not the program has failed, but what is around it."""
_READ_BYTES = 65_536
_STRAGGLER_SECONDS = 30.0


class Run:
    """One task. `environ` is what its program will see."""

    def __init__(self, kind: str, words: list[str], environ: dict[str, str]) -> None:
        self._kind = kind
        self._words = words
        self._environ = environ
        names = {"task_id": "DET_TASK_ID", "allocation_id": "DET_ALLOCATION_ID", "container_id": "DET_CONTAINER_ID"}
        names["agent_id"] = "DET_AGENT_ID"
        self._common = {name: environ[variable] for name, variable in names.items() if environ.get(variable)}
        self._shipper = Shipper(Master(environ), _complain)
        pattern = entrypoints.READY.get(kind)
        self._ready = None if pattern is None else re.compile(pattern)
        self._child: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        try:
            return self._run()
        except Problem as problem:
            self._tell(f"ERROR: {problem}")
            return 1
        except (Refused, Unreachable) as error:
            self._tell(f"ERROR: the task could not be set up: {error}")
            return CRASHED
        finally:
            self._shipper.close()

    def _run(self) -> int:
        environ = self._environ
        work = setting_up.directories(environ)
        setting_up.write_facts(environ)
        is_trial = self._kind == "TRIAL"
        if environ.pop("DET_HAS_CONTEXT", ""):
            copy = [os.path.join(environ["DET_RUN_DIR"], "train", "model")] if is_trial else []
            setting_up.fetch_files(Master(environ), environ["DET_TASK_ID"], work, *copy)
        if environ.get("MUSTER_UNMOUNTED") and environ.get("DET_NEEDS_MOUNTS"):
            raise Problem(
                "this node may not mount anything for a task, which bind_mounts need: run its agent as root or permit "
                "user namespaces, or use the same host_path and container_path"
            )
        missing = environ.pop("DET_PYTHON_MISSING", "")
        if missing:
            raise Problem(f"{missing}, which the setting tasks.python names, is not on this node")
        setting_up.environment(environ)
        if is_trial:
            trials.write_trial(environ)
            trials.tell_devices(Master(environ), environ)
        argv = entrypoints.argv(self._kind, self._words, environ)
        if not setting_up.has("determined") and not (is_trial and setting_up.has("muster")):
            self._tell(f"WARNING: {setting_up.WITHOUT_DETERMINED.format(python=sys.executable)}")
        self._watch_idleness()
        return self._execute(argv, work)

    def _watch_idleness(self) -> None:
        if self._kind == "NOTEBOOK" and self._environ.get("DET_IDLE_SECONDS"):
            command = [sys.executable, sys.argv[0], "idle"]
            subprocess.Popen(command, env=self._environ, stdin=subprocess.DEVNULL)

    def _execute(self, argv: list[str], work: str) -> int:
        # Hooks may change the environment: so they are run by the shell that becomes the program.
        startup = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "startup.sh")
        command = [shutil.which("bash") or "/bin/sh", startup, *argv]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, self._pass_on)
        self._child = subprocess.Popen(
            command,
            cwd=work,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self._pump(self._child, {"stdout": self._child.stdout, "stderr": self._child.stderr})
        code = self._child.wait()
        return 128 - code if code < 0 else code

    def _pass_on(self, number: int, _frame: object) -> None:
        """As the first process of a container we alone are told; elsewhere the whole group is."""
        if os.getpid() == 1 and self._child is not None:
            self._child.send_signal(number)

    def _pump(self, child: subprocess.Popen[bytes], pipes: dict[str, IO[bytes]]) -> None:
        """Until both are closed, or the program has ended and what it left behind has had its time."""
        lines = {name: Lines() for name in pipes}
        deadline = None
        with selectors.DefaultSelector() as selector:
            for name, pipe in pipes.items():
                selector.register(pipe, selectors.EVENT_READ, name)
            while selector.get_map():
                for key, _ in selector.select(0.5):
                    data = os.read(key.fd, _READ_BYTES)
                    self._forward(key.data, lines[key.data].feed(data) if data else lines[key.data].end())
                    if not data:
                        selector.unregister(key.fileobj)
                if deadline is None and child.poll() is not None:
                    wait = float(self._environ.get("DET_LOG_WAIT_TIME") or _STRAGGLER_SECONDS)
                    deadline = time.monotonic() + wait
                if deadline is not None and time.monotonic() > deadline:
                    return

    def _forward(self, stdtype: str, lines: list[str]) -> None:
        if not lines:
            return
        out = sys.stdout if stdtype == "stdout" else sys.stderr
        out.write("".join(f"{line}\n" for line in lines))
        out.flush()
        self._shipper.put([entry(line, stdtype, self._common) for line in lines])
        if self._ready is not None and any(self._ready.search(line) for line in lines):
            self._ready = None
            self._shipper.post(f"/api/v1/allocations/{self._environ['DET_ALLOCATION_ID']}/ready")

    def _tell(self, text: str) -> None:
        self._forward("stderr", text.splitlines())


def _complain(text: str) -> None:
    sys.stderr.write(f"logs could not be shipped: {text}\n")
    sys.stderr.flush()


def _step(name: str) -> int:
    """In a process of its own, whose output goes where the program's does."""
    environ = dict(os.environ)
    try:
        if name == "remove":
            return removals.main(environ)
        return trials.launch(environ)
    except Problem as problem:
        sys.stderr.write(f"ERROR: {problem}\n")
        return 1
    except (Refused, Unreachable) as error:
        sys.stderr.write(f"ERROR: {error}\n")
        return CRASHED


def main() -> None:
    setting_up.choose_python(os.environ, sys.argv)
    if sys.argv[1] == "idle":
        from . import idle  # noqa: PLC0415 - only where it is wanted: this stands before the start of every task

        idle.main(dict(os.environ))
        return
    if sys.argv[1] in entrypoints.STEPS.values():
        sys.exit(_step(sys.argv[1]))
    code = Run(sys.argv[1], sys.argv[2:], dict(os.environ)).run()
    sys.stdout.flush()
    os._exit(code)
