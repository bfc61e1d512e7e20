"""Checkpoint storages: one suite over files and buckets; tests/det has a real S3 server and Determined's library."""

import sys
from pathlib import Path

import fsspec
import pytest

from muster.tasks.glue import storages
from muster.tasks.glue.storages import ALL, CheckpointStorage, Remote, StorageError


@pytest.fixture(params=["shared_fs", "directory", "bucket"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStorage:
    if request.param == "shared_fs":
        config: dict[str, object] = {"type": "shared_fs", "host_path": str(tmp_path), "storage_path": "inside"}
        return storages.opened(config)
    if request.param == "directory":
        return storages.opened({"type": "directory", "container_path": str(tmp_path / "kept")})
    return Remote(fsspec.filesystem("memory"), tmp_path.name)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    found = tmp_path / "saved"
    (found / "code" / "deep").mkdir(parents=True)
    (found / "model.pt").write_bytes(b"x" * 10)
    (found / "code" / "a.py").write_text("a")
    (found / "code" / "deep" / "b.py").write_text("bb")
    return found


SIZES = {"code/a.py": 1, "code/deep/b.py": 2, "model.pt": 10}


def test_what_was_put_is_listed_and_comes_back_as_it_was(
    storage: CheckpointStorage, saved: Path, tmp_path: Path
) -> None:
    told: list[tuple[str, int]] = []
    assert storage.put("c1", str(saved), lambda path, count: told.append((path, count))) == SIZES
    assert storage.list("c1") == SIZES
    assert sum(count for _, count in told) == 13
    assert storage.list("other") == {}
    storages.get(storage, "c1", str(tmp_path / "back"))
    assert (tmp_path / "back" / "model.pt").read_bytes() == b"x" * 10
    assert (tmp_path / "back" / "code" / "deep" / "b.py").read_text() == "bb"


def test_some_of_it_is_deleted_or_all(storage: CheckpointStorage, saved: Path) -> None:
    storage.put("c1", str(saved))
    storage.put("c2", str(saved))
    assert storage.delete("c1", ["**/*.py"]) == {"model.pt": 10}
    assert storage.delete("c1", ["nothing"]) == {"model.pt": 10}
    assert storage.delete("c1") == storage.list("c1") == {}
    assert storage.delete("c1", ALL) == {}
    assert storage.list("c2") == SIZES


def test_what_is_not_there_is_said(storage: CheckpointStorage, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="not in its storage any more"):
        storages.get(storage, "gone", str(tmp_path / "back"))
    with pytest.raises(StorageError), storage.open("gone", "file"):
        pass


@pytest.mark.parametrize("name", ["../out", "/etc", "a/../../b"])
def test_nothing_leads_out_of_the_storage(storage: CheckpointStorage, saved: Path, name: str) -> None:
    for act in (
        lambda: storage.list(name),
        lambda: storage.delete(name),
        lambda: storage.put(name, str(saved)),
        lambda: storage.open("c1", name).__enter__(),
    ):
        with pytest.raises(StorageError):
            act()


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("**/*", {"a", "d/b", "d/e/c.py"}),
        ("*", {"a", "d/b", "d/e/c.py"}),  # a directory goes with all that is in it
        ("*.py", set()),
        ("**/*.py", {"d/e/c.py"}),
        ("d", {"d/b", "d/e/c.py"}),
        ("d/*", {"d/b", "d/e/c.py"}),
        ("d/e/", {"d/e/c.py"}),
        ("?", {"a", "d/b", "d/e/c.py"}),
        ("d/?.py", set()),
        ("d/**/c.py", {"d/e/c.py"}),
        ("a.b", set()),
    ],
)
def test_patterns(pattern: str, matched: set[str]) -> None:
    assert set(storages.matching(["a", "d/b", "d/e/c.py"], [pattern])) == matched


def test_a_path_in_a_shared_file_system_may_be_told_as_the_host_sees_it() -> None:
    assert storages.inside_shared({"host_path": "/mnt", "storage_path": "/mnt/a/b"}) == "a/b"
    assert storages.inside_shared({"host_path": "/mnt", "storage_path": "a"}) == "a"
    assert storages.inside_shared({"host_path": "/mnt"}) == ""


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(StorageError, match=r"pip install muster\[gcs\]"):
        storages.opened({"type": "gcs", "bucket": "b"})
    with pytest.raises(StorageError, match="'tape' is not known"):
        storages.opened({"type": "tape"})


def test_empty_directories_of_files_are_kept(tmp_path: Path) -> None:
    (tmp_path / "saved" / "empty").mkdir(parents=True)
    storage = storages.opened({"type": "directory", "container_path": str(tmp_path / "kept")})
    assert storage.put("c1", str(tmp_path / "saved")) == {"empty/": 0}
    storages.get(storage, "c1", str(tmp_path / "back"))
    assert (tmp_path / "back" / "empty").is_dir()
    assert storage.delete("c1", ["nothing"]) == {"empty/": 0}
    assert storage.delete("c1") == {}


def test_a_storage_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    storage = storages.opened({"type": "directory", "container_path": "/proc/nowhere"})
    with pytest.raises(StorageError, match="checkpoint_storage /proc/nowhere"):
        storage.put("c", str(tmp_path))
