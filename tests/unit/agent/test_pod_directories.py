"""What pods leave on disk, and how it goes."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.agent import directories


@pytest.fixture
def owned() -> Iterator[Path]:
    """A directory of a user whom permissions bind: root is not."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        home = Path(name) / "owned"
        home.mkdir()
        if os.geteuid() != 0:
            yield home
            return
        os.chown(home, 65_534, 65_534)
        os.seteuid(65_534)
        try:
            yield home
        finally:
            os.seteuid(0)


def test_directories_that_were_locked_are_removed_too(owned: Path) -> None:
    home, outside = owned / "pod", owned / "outside"
    (home / "a" / "b").mkdir(parents=True)
    (home / "a" / "b" / "file").touch()
    outside.mkdir(mode=0o500)
    (home / "a" / "link").symlink_to(outside)
    for locked in (home / "a" / "b", home / "a", home):
        locked.chmod(0)
    directories.erase(home)
    assert not home.exists()
    assert outside.stat().st_mode & 0o777 == 0o500, "what a link points to is not the pod's"


def test_only_earlier_attempts_are_pruned(tmp_path: Path) -> None:
    for name in ("0.log", "1.log", "1.exit.json", "2.log", "2.log.1", "10.log", "other", "x.1.log"):
        (tmp_path / name).touch()
    (tmp_path / "1.message" / "made").mkdir(parents=True)
    directories.prune(tmp_path, 2)
    assert {path.name for path in tmp_path.iterdir()} == {"2.log", "2.log.1", "10.log", "other", "x.1.log"}
