"""What runs around a task, as it runs on a node: real processes, and a server that writes down what it is told."""

import base64
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from muster.tasks import contexts, glue_files
from muster.tasks.contexts import File
from muster.tasks.glue import entrypoints, idle, setting_up, shipping


@dataclass
class Told:
    """`refusing`: how many calls are answered with 503 before any is taken."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
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
                if self.path == "/api/v1/task/logs":
                    told.lines += json.loads(body)["logs"]
                if self.path.endswith("/context_directory"):
                    answer = json.dumps({"b64Tgz": base64.b64encode(told.archive).decode()}).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = do_PUT = _answer  # noqa: N815 - as the library wants them

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


def run(glue: Path, master: str, *argv: str, **more: str) -> "subprocess.CompletedProcess[str]":
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
    command = [sys.executable, str(glue), *argv]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_a_command_runs_and_its_lines_are_with_the_server_when_it_has_ended(
    glue: Path, master: str, told: Told
) -> None:
    script = "echo out; echo err >&2; echo '[rank=3] ERROR: bad'; pwd; echo $FROM_CLUSTER; printf rest; exit 7"
    done = run(glue, master, "COMMAND", script)
    assert done.returncode == 7
    work = str(glue.parent / "run" / "workdir")
    out = [line for line in told.lines if line["stdtype"] == "stdout"]
    assert [line["log"] for line in out] == ["out\n", "bad\n", f"{work}\n", "yes\n", "rest\n"]
    assert (out[1]["rank_id"], out[1]["level"]) == (3, "LOG_LEVEL_ERROR")
    assert {"task_id": "t1", "allocation_id": "t1.1", "container_id": "t1.1-0", "agent_id": "n1"}.items() <= out[
        0
    ].items()
    assert "err" in told.texts
    assert told.tokens == {"Bearer secret"}
    assert "out\n" in done.stdout  # also for whoever looks at the pod
    facts = json.loads((glue.parent / "run/info/cluster.json").read_text())
    assert facts["slot_ids"] == [0]
    assert (facts["task_id"], facts["session_token"]) == ("t1", "secret")


def test_several_words_are_no_line_for_the_shell(glue: Path, master: str, told: Told) -> None:
    assert run(glue, master, "COMMAND", "echo", "$HOME; false").returncode == 0
    assert "$HOME; false" in told.texts


def test_files_of_the_context_are_there_and_its_hook_goes_before(glue: Path, master: str, told: Told) -> None:
    hook = base64.b64encode(b"export FROM_CONTEXT=$(cat sub/file)\n").decode()
    told.archive = contexts.pack(
        [
            File("sub", 53, mode=0o755),
            File("sub/file", content=base64.b64encode(b"hello").decode()),
            File("startup-hook.sh", content=hook),
        ]
    )
    done = run(glue, master, "GENERIC", "echo got $FROM_CONTEXT", DET_HAS_CONTEXT="1")
    assert done.returncode == 0
    assert "got hello" in told.texts


def test_a_server_that_is_away_for_a_moment_is_waited_for(glue: Path, master: str, told: Told) -> None:
    told.refusing = 3
    assert run(glue, master, "COMMAND", "echo patient").returncode == 0
    assert "patient" in told.texts


def test_many_lines_come_in_order_and_all(glue: Path, master: str, told: Told) -> None:
    assert run(glue, master, "COMMAND", "seq 1 25000").returncode == 0
    assert [text for text in told.texts if text.isdecimal()] == [str(number) for number in range(1, 25001)]
    assert len(told.calls) < 200


def test_a_signal_is_an_exit_code(glue: Path, master: str, told: Told) -> None:
    assert run(glue, master, "COMMAND", "kill -TERM $$").returncode == 143


@pytest.mark.parametrize(
    ("kind", "more", "says"),
    [
        ("NOTEBOOK", {"DET_NOTEBOOK_TOKEN": "x", "NOTEBOOK_PORT": "1"}, "-m pip install jupyterlab"),
        ("TENSORBOARD", {"TENSORBOARD_PORT": "1"}, "-m pip install tensorboard"),
        ("COMMAND", {"DET_NEEDS_MOUNTS": "1", "MUSTER_UNMOUNTED": "1"}, "which bind_mounts need"),
        ("COMMAND", {"DET_PYTHON_MISSING": "/no/python"}, "/no/python, which the setting tasks.python names"),
        ("COMMAND", {"DET_WORKDIR": "/proc/nowhere"}, "work_dir /proc/nowhere can be neither found nor made"),
    ],
)
def test_what_is_missing_is_said_in_the_log(
    kind: str, more: dict[str, str], says: str, glue: Path, master: str, told: Told
) -> None:
    assert run(glue, master, kind, "true", **more).returncode == 1
    assert any(says in text for text in told.texts)
    assert any(line.get("level") == "LOG_LEVEL_ERROR" for line in told.lines)


def test_a_python_without_the_library_says_so(glue: Path, master: str, told: Told) -> None:
    run(glue, master, "COMMAND", "true")
    assert any("-m pip install determined" in text for text in told.texts) is not setting_up.has("determined")


def test_the_agents_python_is_used_where_only_that_has_the_library(
    glue: Path, master: str, told: Told, tmp_path: Path
) -> None:
    (tmp_path / "packages" / "determined").mkdir(parents=True)
    (tmp_path / "packages" / "determined" / "__init__.py").touch()
    other = tmp_path / "bin" / "python"
    other.parent.mkdir()
    other.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/packages exec {sys.executable} "$@"\n')
    other.chmod(0o755)
    chosen = {"DET_PYTHON_EXECUTABLE": "", "MUSTER_PYTHON": str(other)}
    assert run(glue, master, "COMMAND", "python", "-c", "import determined; print('has it')", **chosen).returncode == 0
    assert told.texts == ["has it"]


def test_lines_are_cut_where_they_end_or_are_too_long() -> None:
    lines = shipping.Lines()
    assert lines.feed(b"a\nb") == ["a"]
    assert lines.feed(b"c\r\n\xff\n") == ["bc", "\N{REPLACEMENT CHARACTER}"]
    long = b"x" * (shipping.LONGEST_LINE + 10)
    assert [len(text) for text in lines.feed(long + b"\n")] == [shipping.LONGEST_LINE, 10]
    assert lines.feed(b"no end") == []
    assert lines.end() == ["no end"]
    assert lines.end() == []


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("INFO: x", "LOG_LEVEL_INFO"),
        ("WARNING: x", "LOG_LEVEL_WARNING"),
        ("nothing INFO: x", None),
        ("INFORMATION: x", None),
        ("INFO:x", None),
    ],
)
def test_levels_are_seen_where_lines_begin_with_them(text: str, level: str | None) -> None:
    found = shipping.entry(text, "stdout", {})
    assert found.get("level") == level
    assert found["log"] == ("x\n" if level else f"{text}\n")


@pytest.mark.parametrize(
    ("kind", "kernels", "terminals", "busy"),
    [
        ("kernels_or_terminals", [], [], False),
        ("kernels_or_terminals", [{}], [], True),
        ("kernels_or_terminals", [], [{}], True),
        ("kernel_connections", [{"connections": 0}], [{}], False),
        ("kernel_connections", [{"connections": 1}], [], True),
        ("activity", [{"last_activity": "1970-01-01T00:00:10Z"}], [], False),
        ("activity", [{"last_activity": "1970-01-01T00:10:00.5Z"}], [], True),
        ("activity", [{"execution_state": "busy"}], [], True),
        ("activity", [{"last_activity": "never"}], [], False),
    ],
)
def test_what_keeps_a_notebook_from_being_idle(
    kind: str, kernels: list[dict[str, object]], terminals: list[dict[str, object]], busy: bool
) -> None:
    assert idle.is_busy(kind, kernels, terminals, 100.0) is busy


def test_an_archive_that_leads_out_is_not_unpacked(tmp_path: Path) -> None:

    for name, kind in (("../out", tarfile.REGTYPE), ("link", tarfile.SYMTYPE)):
        out = io.BytesIO()
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc"
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            archive.addfile(member)
        with pytest.raises(setting_up.Problem):
            setting_up.unpack(out.getvalue(), str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_files_that_differ_have_another_name() -> None:
    plain, hooked = glue_files.read(), glue_files.read(startup_hook="x")
    assert plain.name == glue_files.read().name != hooked.name
    assert set(entrypoints.READY) == {"NOTEBOOK", "SHELL", "TENSORBOARD"}
