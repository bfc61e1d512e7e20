"""Whether this machine has what a platform of its own needs."""

import os
import shutil
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from muster.agent import cgroups, devices
from muster.deploying.findings import Finding, fail, ok, warn

_OLDEST_SQLITE: Final = (3, 35)  # RETURNING
_LEAST_FREE_BYTES: Final = 1 << 30
_HOST: Final = "127.0.0.1"


def examine(data: Path, port: int) -> list[Finding]:
    return [_data(data), _database(), _port(port), _limits(), *_machine()]


def _data(data: Path) -> Finding:
    there = next(path for path in (data, *data.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if not os.access(there, os.W_OK):
        return fail("data directory", f"{there} cannot be written to", "choose another with --data or MUSTER_DATA")
    told = f"{data}, {free / (1 << 30):.1f} GiB free"
    if free < _LEAST_FREE_BYTES:
        return warn("data directory", told, "make room, or choose another with --data or MUSTER_DATA")
    return ok("data directory", told if data.exists() else f"{told}; made at the first start")


def _database() -> Finding:
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        wanted = ".".join(map(str, _OLDEST_SQLITE))
        return fail("SQLite", sqlite3.sqlite_version, f"Muster needs {wanted}: use a newer Python")
    return ok("SQLite", sqlite3.sqlite_version)


def _port(port: int) -> Finding:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((_HOST, port))
        except OSError as error:
            advice = "a platform may run already; another takes --port"
            return warn("port", f"{_HOST}:{port}: {error.strerror}", advice)
    return ok("port", f"{_HOST}:{port} is free")


def _limits() -> Finding:
    if cgroups.find() is None:
        advice = "memory and processor limits of jobs are not enforced; as root, or with delegated cgroups, they are"
        return warn("cgroups", "none that may be used", advice)
    return ok("cgroups", "jobs are held to their limits")


def _machine() -> Iterator[Finding]:
    machine = devices.discover()
    cores, memory = machine.cpu_milli // 1000, machine.memory_bytes / (1 << 30)
    yield ok("machine", f"{cores} processors, {memory:.1f} GiB")
    models = ", ".join(sorted({gpu.name for gpu in machine.gpus}))
    yield ok("GPUs", f"{len(machine.gpus)} ({models})" if models else "none; `muster up --fake-gpus 8` pretends some")
