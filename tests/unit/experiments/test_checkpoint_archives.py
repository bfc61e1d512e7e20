"""Checkpoints as archives."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from muster.api import errors
from muster.experiments import archiving
from muster.experiments.archiving import Format
from muster.tasks.glue import storages
from muster.tasks.glue.storages import CheckpointStorage

BIG = 3 * 1024 * 1024 + 17


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointStorage:
    saved = tmp_path / "saved"
    (saved / "code").mkdir(parents=True)
    (saved / "empty").mkdir()
    (saved / "model.pt").write_bytes(bytes(range(256)) * (BIG // 256) + b"x" * (BIG % 256))
    (saved / "code" / "a.py").write_text("a")
    found = storages.opened({"type": "directory", "container_path": str(tmp_path / "kept")})
    found.put("c1", str(saved))
    return found


async def collected(storage: CheckpointStorage, name: str, wanted: Format) -> io.BytesIO:
    return io.BytesIO(b"".join([chunk async for chunk in archiving.archived(storage, name, wanted)]))


@pytest.mark.parametrize("wanted", [Format.TGZ, Format.TAR])
async def test_tar(storage: CheckpointStorage, wanted: Format) -> None:
    mode = "r:gz" if wanted is Format.TGZ else "r:"
    with tarfile.open(fileobj=await collected(storage, "c1", wanted), mode=mode) as archive:  # type: ignore[call-overload]
        assert {member.name: member.size for member in archive} == {
            "code/a.py": 1,
            "empty": 0,
            "model.pt": BIG,
        }
        file = archive.extractfile("model.pt")
        assert file is not None
        assert file.read()[-3:] == b"xxx"


async def test_zip(storage: CheckpointStorage) -> None:
    with zipfile.ZipFile(await collected(storage, "c1", Format.ZIP)) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == ["code/a.py", "empty/", "model.pt"]
        assert len(archive.read("model.pt")) == BIG


async def test_what_is_gone_is_said_before_anything_is_sent(storage: CheckpointStorage) -> None:
    with pytest.raises(errors.NotFound, match="not in its storage any more"):
        await anext(archiving.archived(storage, "gone", Format.TGZ))


async def test_who_leaves_early_leaves_nothing_open(storage: CheckpointStorage) -> None:
    chunks = archiving.archived(storage, "c1", Format.TAR)
    assert await anext(chunks)
    await chunks.aclose()  # returns once whoever wrote has heard of it


async def test_a_file_that_vanishes_meanwhile_is_an_error(storage: CheckpointStorage) -> None:
    listed = storage.list
    storage.list = lambda name: {**listed(name), "lost": 1}  # type: ignore[method-assign]
    with pytest.raises(errors.Unavailable, match="lost"):
        await collected(storage, "c1", Format.TAR)
