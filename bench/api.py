"""Determined's API over HTTP: small requests on kept connections, the server on one core, those who ask on another."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import uvloop

from bench.figures import Figure, Progress

_CONNECTIONS = 16
_REQUESTS = 8_000
_WARM = 500
_USERS = 100
_ASKED = 500
"""Requests a second on one core: `GET /api/v1/me` begins each command of the client."""


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    token: str
    process: psutil.Process


@dataclass(frozen=True, slots=True)
class Measured:
    """`latencies`: in seconds, sorted. `cpu`: what the server used for it."""

    seconds: float
    cpu: float
    latencies: list[float]

    def at(self, share: float) -> float:
        return self.latencies[int(share * (len(self.latencies) - 1))]


def run(progress: Progress) -> list[Figure]:
    figures = []
    with serving() as server:
        session = _prepared(server)
        for name, path, target in (
            ("me", "/api/v1/me", _ASKED),
            ("info", "/info", None),
            ("users", f"/api/v1/users?limit={_USERS}", None),
        ):
            progress(f"{_REQUESTS} requests of {path} on {_CONNECTIONS} connections")
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                measured = runner.run(_measure(server, session, path))
            figures += _figures(name, measured, target)
    return figures


def _figures(name: str, measured: Measured, target: float | None) -> list[Figure]:
    rate, used = _REQUESTS / measured.seconds, measured.cpu / _REQUESTS
    note = f"{_CONNECTIONS} kept connections; the server used {measured.cpu / measured.seconds:.0%} of a core"
    return [
        Figure(f"{name}.rate", round(rate), "requests/s", target, note=note),
        Figure(f"{name}.cpu", round(used * 1e6), "µs", note="of the server, for one request"),
        Figure(f"{name}.p50", round(measured.at(0.5) * 1e3, 2), "ms"),
        Figure(f"{name}.p99", round(measured.at(0.99) * 1e3, 2), "ms"),
    ]


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """A real server in a process of its own, on the first core that we may use; we leave that one to it."""
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "muster.cli.main", "serve", "--port", "0", "--data", folder]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        os.sched_setaffinity(process.pid, cores[:1])
        os.sched_setaffinity(0, cores[1:] or cores)
        try:
            assert process.stdout is not None
            url = next(line.split()[1] for line in process.stdout if line.startswith("  address"))
            yield Server(url, (Path(folder) / "token").read_text().strip(), psutil.Process(process.pid))
        finally:
            os.sched_setaffinity(0, cores)
            process.terminate()
            process.communicate()


def _prepared(server: Server) -> str:
    """Some users, and the session of one of them: what the owner of the data directory has is no session."""
    for number in range(_USERS):
        user = {"username": f"user-{number:03}", "active": True}
        _post(server, "/api/v1/users", {"user": user, "password": "Passw0rd"})
    return str(_post(server, "/api/v1/auth/login", {"username": "user-000", "password": "Passw0rd"})["token"])


def _post(server: Server, path: str, body: dict[str, object]) -> dict[str, object]:
    headers = {"Authorization": f"Bearer {server.token}"}
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as reply:
        found: dict[str, object] = json.load(reply)
    return found


async def _measure(server: Server, token: str, path: str) -> Measured:
    await _ask(server, token, path, _WARM)
    before, started = sum(server.process.cpu_times()[:2]), time.perf_counter()
    latencies = await _ask(server, token, path, _REQUESTS)
    seconds = time.perf_counter() - started
    return Measured(seconds, sum(server.process.cpu_times()[:2]) - before, sorted(latencies))


async def _ask(server: Server, token: str, path: str, requests: int) -> list[float]:
    latencies: list[float] = []
    async with asyncio.TaskGroup() as tasks:
        for _ in range(_CONNECTIONS):
            tasks.create_task(_keep_asking(server.url, token, path, requests // _CONNECTIONS, latencies))
    return latencies


async def _keep_asking(url: str, token: str, path: str, requests: int, latencies: list[float]) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    request = (
        f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUser-Agent: python-requests/2.32.5\r\n"
        "Accept-Encoding: gzip, deflate\r\nAccept: */*\r\nConnection: keep-alive\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    ).encode()
    for _ in range(requests):
        began = time.perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        await reader.readexactly(length)
        latencies.append(time.perf_counter() - began)
    writer.close()
    await writer.wait_closed()
