"""What runs around a task, as it runs on a node: real processes, and a server that writes down what it is told."""

import base64
import io
import json
import sys
import tarfile
from pathlib import Path

import pytest
from tests.integration.glue_world import Told, glue, master, run, told

from muster.tasks import contexts, glue_files
from muster.tasks.contexts import File
from muster.tasks.glue import entrypoints, idle, setting_up, shipping

__all__ = ["glue", "master", "told"]


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
