"""Removing checkpoints as it is done on a node."""

import json
from pathlib import Path

from tests.integration.glue_world import Told, glue, master, run, told

from muster.tasks.glue import storages

__all__ = ["glue", "master", "told"]


def wanted(storage: dict[str, str], *uuids: str, globs: tuple[str, ...] = storages.ALL) -> dict[str, str]:
    document = {"storage": storage, "uuids": uuids, "globs": globs, "directories": ["c/tensorboard/experiment/1"]}
    return {"DET_REMOVAL": json.dumps(document)}


def test_checkpoints_are_removed_and_what_is_left_is_told(glue: Path, master: str, told: Told, tmp_path: Path) -> None:
    storage = {"type": "directory", "container_path": str(tmp_path / "kept")}
    saved = tmp_path / "saved"
    saved.mkdir()
    for name in ("a.pt", "a.opt"):
        (saved / name).write_text("xy")
    for uuid in ("c1", "c2", "c/tensorboard/experiment/1"):
        storages.opened(storage).put(uuid, str(saved))
    done = run(glue, master, "CHECKPOINT_GC", **wanted(storage, "c1", "gone", globs=("*.opt",)))
    assert done.returncode == 0, told.texts
    assert told.left == [
        {"uuid": "c1", "resources": {"resources": {"a.pt": "2"}}},
        {"uuid": "gone", "resources": {"resources": {}}},
    ]
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["c", "c1", "c2"]
    assert not (tmp_path / "kept" / "c/tensorboard/experiment/1").exists()
    assert "1 files of checkpoint c1 are left" in told.texts
    assert "secret" not in "".join(told.texts)


def test_a_storage_that_fails_is_an_error_and_nothing_is_told_as_gone(
    glue: Path, master: str, told: Told, tmp_path: Path
) -> None:
    words = {**wanted({"type": "tape"}, "c1"), "MUSTER_TERMINATION_LOG": str(tmp_path / "word")}
    assert run(glue, master, "CHECKPOINT_GC", **words).returncode == 1
    assert told.left == []
    assert (tmp_path / "word").read_text() == "checkpoint_storage.type: 'tape' is not known"
    assert any("'tape' is not known" in text for text in told.texts)
