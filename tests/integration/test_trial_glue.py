"""What runs around a trial: the facts that it finds, and how its program is begun."""

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.glue_world import Told, glue, master, run, told

from muster.tasks import contexts
from muster.tasks.contexts import File
from muster.tasks.glue import trials
from muster.tasks.glue.setting_up import Problem

__all__ = ["glue", "master", "told"]


def trial(entrypoint: object, **config: object) -> dict[str, str]:
    return {
        "DET_TRIAL_ID": "7",
        "DET_EXPERIMENT_ID": "3",
        "DET_TRIAL_SEED": "11",
        "DET_TRIAL_RUN_ID": "2",
        "DET_STEPS_COMPLETED": "40",
        "DET_RESOURCES_ID": "r0",
        "DET_HPARAMS": json.dumps({"lr": 0.1}),
        "DET_EXPERIMENT_CONFIG": json.dumps({"entrypoint": entrypoint, **config}),
    }


def info(glue: Path, name: str) -> Any:
    return json.loads((glue.parent / "run" / "info" / f"{name}.json").read_text())


def test_a_trial_finds_its_facts_and_meets_its_peers_before_its_program_begins(
    glue: Path, master: str, told: Told
) -> None:
    done = run(glue, master, "TRIAL", **trial("echo training; exit 5"))
    assert (done.returncode, told.texts[-1]) == (5, "training")
    facts = info(glue, "trial")
    assert (facts["trial_id"], facts["hparams"], facts["steps_completed"], facts["trial_run_id"]) == (
        7,
        {"lr": 0.1},
        40,
        2,
    )
    assert info(glue, "rendezvous") == {
        "container_addrs": ["10.0.0.1", "10.0.0.2"],
        "container_rank": 1,
        "container_slot_counts": [2, 2],
    }
    assert info(glue, "resources") == {"gpu_uuids": []}
    assert ("GET", "/api/v1/allocations/t1.1/resources/r0/rendezvous") in told.calls


def test_a_list_is_executed_as_it_is_and_what_is_not_there_is_said(glue: Path, master: str, told: Told) -> None:
    assert run(glue, master, "TRIAL", **trial(["echo", "$HOME; false"])).returncode == 0
    assert "$HOME; false" in told.texts
    assert run(glue, master, "TRIAL", **trial(["no-such-program"])).returncode == 127
    assert any("'no-such-program' cannot be executed" in text for text in told.texts)


def test_the_model_is_there_twice_and_hooks_go_before_the_rendezvous(glue: Path, master: str, told: Told) -> None:
    hook = base64.b64encode(b"export MET=$(ls $DET_RUN_DIR/info)\n").decode()
    told.archive = contexts.pack([File("startup-hook.sh", content=hook)])
    done = run(glue, master, "TRIAL", **trial("echo before: $MET"), DET_HAS_CONTEXT="1")
    assert done.returncode == 0
    assert "before: cluster.json resources.json trial.json" in told.texts
    assert (glue.parent / "run" / "train" / "model" / "startup-hook.sh").exists()


def test_a_storage_that_cannot_be_written_fails_before_the_training(glue: Path, master: str, told: Told) -> None:
    storage = {"type": "directory", "container_path": "/proc/nowhere"}
    assert run(glue, master, "TRIAL", **trial("echo never", checkpoint_storage=storage)).returncode == 1
    assert any("checkpoint_storage: /proc/nowhere can be neither found nor made" in text for text in told.texts)
    assert "never" not in told.texts


def test_without_mounts_the_library_is_led_to_the_facts_and_the_storage_to_its_real_place(
    glue: Path, master: str, told: Told, tmp_path: Path
) -> None:
    package = tmp_path / "packages" / "determined"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from determined._info import TrialInfo, RendezvousInfo\n")
    classes = "".join(
        f"""
class {name}:
    def _to_file(self, path="/run/determined/info/x.json"): ...
    @classmethod
    def _from_file(cls, path="/run/determined/info/x.json"):
        import json
        return json.load(open(path))
"""
        for name in ("ClusterInfo", "TrialInfo", "RendezvousInfo", "ResourcesInfo")
    )
    (package / "_info.py").write_text(classes)
    shown = "import determined as d; t = d.TrialInfo._from_file(); "
    shown += "print(t['trial_id'], d.RendezvousInfo._from_file()['container_rank'], t['config']['checkpoint_storage'])"
    host = tmp_path / "shared"
    storage = {"type": "shared_fs", "host_path": str(host), "storage_path": str(host / "inside")}
    more = {"MUSTER_UNMOUNTED": "1", "PYTHONPATH": str(package.parent)}
    given = trial([sys.executable, "-c", shown], checkpoint_storage=storage)
    assert run(glue, master, "TRIAL", **given, **more).returncode == 0, told.texts
    assert told.texts[-1] == f"7 1 {{'type': 'directory', 'container_path': '{host / 'inside'}'}}"
    assert (host / "inside").is_dir()


def test_a_class_as_entrypoint_needs_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "has", lambda _module: False)
    with pytest.raises(Problem, match="-m pip install determined"):
        trials.program("model_def:Trial")
    monkeypatch.setattr(trials, "has", lambda _module: True)
    assert trials.program("model_def:Trial")[-2:] == ["--trial", "model_def:Trial"]
    assert trials.program("python3 model_def:Trial") == ["/bin/sh", "-c", "python3 model_def:Trial"]


def test_devices_are_told_by_their_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf '0, GPU-a\\n1, GPU-b\\n2, GPU-c\\n'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert trials._gpu_uuids("0,2") == ["GPU-a", "GPU-c"]
    assert trials._gpu_uuids("") == []


def test_a_trial_takes_the_agents_python_where_its_own_could_not_report(
    glue: Path, master: str, told: Told, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    other = tmp_path / "bin" / "python"
    other.write_text(f'#!/bin/sh\nIS_OTHER=yes exec {sys.executable} "$@"\n')
    other.chmod(0o755)
    bare = [sys.executable, "-S", "-E"]  # without any packages
    chosen = {"DET_PYTHON_EXECUTABLE": "", "MUSTER_PYTHON": str(other), **trial("echo other: $IS_OTHER")}
    assert run(glue, master, "TRIAL", python=bare, **chosen).returncode == 0, told.texts
    assert told.texts == ["other: yes"]
    told.lines.clear()
    assert run(glue, master, "COMMAND", "echo other: $IS_OTHER", python=bare, **chosen).returncode == 0
    assert "other:" in told.texts
