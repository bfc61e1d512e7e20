"""The glue of tasks as it runs on a node, and a server that writes down what it is told. For tests to import."""

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from muster.tasks import glue_files


@dataclass
class Told:
    """`refusing`: how many calls are answered with 503 before any is taken."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    left: list[dict[str, Any]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    archive: bytes = b""
    refusing: int = 0

    @property
    def texts(self) -> list[str]:
        return [line["log"].rstrip("\n") for line in self.lines]


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def master(told: Told) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            status, answer = 200, b"{}"
            if told.refusing:
                told.refusing -= 1
                status = 503
            else:
                told.calls.append((self.command, self.path))
                told.tokens.add(self.headers["Grpc-Metadata-x-allocation-token"])
                if self.path == "/api/v1/checkpoints":
                    told.left += json.loads(body)["checkpoints"]
                if self.path == "/api/v1/task/logs":
                    told.lines += json.loads(body)["logs"]
                if self.path.endswith("/rendezvous"):
                    met = {"addresses": ["10.0.0.1", "10.0.0.2"], "rank": 1, "slots": [2, 2]}
                    answer = json.dumps({"rendezvousInfo": met}).encode()
                if self.path.endswith("/context_directory"):
                    answer = json.dumps({"b64Tgz": base64.b64encode(told.archive).decode()}).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_PUT = do_PATCH = _answer  # noqa: N815 - as the library wants them

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def glue(tmp_path: Path) -> Path:
    directory = tmp_path / "glue"
    for path, text in glue_files.read(startup_hook="export FROM_CLUSTER=yes\n").files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)
    return directory


def run(
    glue: Path, master: str, *argv: str, python: Sequence[str] = (sys.executable,), **more: str
) -> "subprocess.CompletedProcess[str]":
    env = {
        "PATH": os.environ["PATH"],
        "DET_RUN_DIR": str(glue.parent / "run"),
        "DET_MASTER": master,
        "DET_CLUSTER_ID": "c",
        "DET_AGENT_ID": "n1",
        "DET_SLOT_IDS": "[0]",
        "DET_TASK_ID": "t1",
        "DET_ALLOCATION_ID": "t1.1",
        "DET_SESSION_TOKEN": "secret",
        "DET_TASK_TYPE": argv[0],
        "DET_CONTAINER_ID": "t1.1-0",
        "DET_PYTHON_EXECUTABLE": sys.executable,
        **more,
    }
    command = [*python, str(glue), *argv]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
