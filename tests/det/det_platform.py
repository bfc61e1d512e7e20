"""A real platform for the real client: `muster up` as a process of its own, that can be killed and started again."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import urllib3
from tests.det.det_client import ENVIRONMENT, Det, Forks
from tests.e2e.cli_platform import MUSTER, end, processes_of, wait_ready

PASSWORD = "Mustered-1"


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: Mapping[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


@dataclass
class DetPlatform:
    directory: Path
    port: int
    options: Sequence[str]
    forks: Forks
    process: subprocess.Popen[bytes]
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of the environment that it is started in."""
    pool: urllib3.PoolManager = field(default_factory=lambda: urllib3.PoolManager(retries=False))
    _users: dict[str, Det] = field(default_factory=dict)

    @property
    def master(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.directory / "up.log"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def admin(self) -> Det:
        return self.user("admin", PASSWORD)

    def user(self, name: str, password: str) -> Det:
        """The client as somebody who exists already."""
        if name not in self._users:
            home = self.directory / f"home-{name}"
            home.mkdir()
            self._users[name] = Det(self.forks, self.master, home, name, password)
        return self._users[name]

    def new_user(self, name: str, password: str = "Passw0rdX") -> Det:
        self.admin("user", "create", "--password", password, name)
        return self.user(name, password)

    def token(self, user: Det) -> str:
        """A session's, which requests without the client can use."""
        body = {"username": user.user, "password": user.password}
        answer = self.http("POST", "/api/v1/auth/login", body=body)
        assert answer.status == 200, answer.text
        token: str = answer.json["token"]
        return token

    def http(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
    ) -> Answer:
        """A request as any program may make it. `body`: bytes as they are, all else as JSON."""
        sent = {"Connection": "close", **(headers or {})}
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.pool.request(
            method, self.master + path, body=content, headers=sent, timeout=timeout, redirect=False
        )
        return Answer(answer.status, answer.data, answer.headers)

    def kill(self) -> None:
        """As a crash does it: no chance to tidy up."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def start(self) -> None:
        self.process = _start(self.directory, self.port, self.options, self.variables)
        wait_ready(self.process, self.data, self.log).close()

    def processes(self, mark: str) -> list[psutil.Process]:
        """What runs on the nodes and has this in its command line or environment; never the platform itself."""
        return [found for found in processes_of(mark) if found.pid not in self._own()]

    def _own(self) -> set[int]:
        return {self.process.pid, os.getpid()}


@contextlib.contextmanager
def det_platform(
    forks: Forks, *options: str, variables: Mapping[str, str] = MappingProxyType({})
) -> Iterator[DetPlatform]:
    with tempfile.TemporaryDirectory(prefix="muster-det-", ignore_cleanup_errors=True) as name:
        directory, port = Path(name), free_port()
        process = _start(directory, port, options, variables)
        platform = DetPlatform(directory, port, options, forks, process, variables)
        try:
            wait_ready(process, platform.data, platform.log).close()
            yield platform
        finally:
            with contextlib.suppress(ProcessLookupError):
                end(platform.process)
            for left in processes_of(name):
                with contextlib.suppress(psutil.NoSuchProcess):
                    left.kill()


@dataclass
class Machine:
    """Another machine that has joined a platform: an agent in a process of its own, and what it runs."""

    directory: Path
    process: subprocess.Popen[bytes]

    def lose(self) -> None:
        """As when its power fails."""
        self.process.kill()
        self.process.wait()
        for left in processes_of(str(self.directory)):
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()


@contextlib.contextmanager
def machine(platform: DetPlatform, name: str, *options: str) -> Iterator[Machine]:
    """Ready for work."""
    directory = platform.directory / name
    directory.mkdir()
    token = (platform.data / "node-token").read_text().strip()
    joining = ["--server", platform.master, "--token", token, "--name", name, "--data", str(directory / "data")]
    with (directory / "agent.log").open("wb") as output:
        process = subprocess.Popen(
            [*MUSTER, "agent", *joining, *options],
            stdout=output,
            stderr=output,
            env=_environment(directory, {}),
            start_new_session=True,
        )
    found = Machine(directory, process)
    try:
        wait_ready(process, platform.data, directory / "agent.log", nodes=2).close()
        yield found
    finally:
        found.lose()


def eventually(what: Any, *, seconds: float = 20.0, every: float = 0.05) -> Any:
    """What it returns, once that is true."""
    deadline = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < deadline, f"not true within {seconds} s; the last answer was {value!r}"
        time.sleep(every)
    return value


def _start(directory: Path, port: int, options: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with (directory / "up.log").open("ab") as output:
        return subprocess.Popen(
            [*MUSTER, "up", "--port", str(port), "--data", str(directory / "data"), *options],
            stdout=output,
            stderr=output,
            env=_environment(directory, variables),
            start_new_session=True,
        )


def _environment(directory: Path, variables: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "DET_"))}
    return {
        **kept,
        "PATH": f"{ENVIRONMENT / 'bin'}:{kept['PATH']}",  # what tasks run: JupyterLab, TensorBoard, PyTorch
        "XDG_CONFIG_HOME": str(directory / "no-config"),
        "MUSTER_SECURITY_INITIAL_USER_PASSWORD": PASSWORD,
        **variables,
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
