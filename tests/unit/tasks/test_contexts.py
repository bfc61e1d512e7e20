"""Files that come along with a task."""

import base64
import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import errors
from muster.tasks import contexts
from muster.tasks.contexts import Contexts, File


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def archived(*members: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size) if member.isreg() else None)
    return out.getvalue()


def a_member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.size, member.linkname = kind, size, link
    return member


def test_files_come_out_as_they_went_in() -> None:
    packed = contexts.pack(
        [
            File("src", 53, mode=0o40755),
            File("src/run.py", content=encoded(b"print()"), mode=0o100755, mtime=12),
            File("data.bin", content=encoded(bytes(range(256)))),
        ]
    )
    contexts.check(packed)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert archive.getnames() == ["src", "src/run.py", "data.bin"]
        assert archive.getmember("src").isdir()
        found = archive.getmember("src/run.py")
        assert (found.mode, found.mtime, found.uid) == (0o755, 12, 0)
        file = archive.extractfile("data.bin")
        assert file is not None
        assert file.read() == bytes(range(256))


def test_no_bits_that_give_rights_are_kept() -> None:
    packed = contexts.pack([File("x", content="", mode=0o104755)])
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        assert archive.getmember("x").mode == 0o755


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "", ".", "a\0b", "x" * 5000])
def test_no_path_leads_out(path: str) -> None:
    with pytest.raises(errors.BadRequest, match=r"files\[0\]\.path"):
        contexts.pack([File(path)])


def test_what_is_wrong_with_a_file_is_named() -> None:
    with pytest.raises(errors.BadRequest, match=r"files\[1\]\.type"):
        contexts.pack([File("a"), File("b", type=50)])
    with pytest.raises(errors.BadRequest, match=r"files\[0\]\.content: is not base64"):
        contexts.pack([File("a", content="é?")])


@pytest.mark.parametrize("paths", [("a", "a"), ("a", "a/b"), ("a/b", "a"), ("d/", "d"), ("a", "./a")])
def test_one_place_is_one_thing(paths: tuple[str, str]) -> None:
    files = [File(path, type=53 if path.endswith("/") else 48) for path in paths]
    with pytest.raises(errors.BadRequest, match=r"files\[1\]\.path: .* is given twice, or is both"):
        contexts.pack(files)


def test_a_directory_may_be_given_before_and_after_what_is_in_it() -> None:
    contexts.pack([File("d", type=53), File("d/x"), File("d", type=53), File("d/y")])


def test_too_much_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "MOST_BYTES", 1000)
    monkeypatch.setattr(contexts, "MOST_FILES", 3)
    with pytest.raises(errors.TooLarge):
        contexts.pack([File("a", content=encoded(bytes(2000)))])
    with pytest.raises(errors.TooLarge):
        contexts.pack([File(str(number)) for number in range(4)])
    with pytest.raises(errors.TooLarge):
        contexts.check(archived(*(a_member(str(number)) for number in range(4))))


@pytest.mark.parametrize(
    "member",
    [
        a_member("../x"),
        a_member("/x"),
        a_member("a/../../x"),
        a_member("link", tarfile.SYMTYPE, link="/etc"),
        a_member("link", tarfile.SYMTYPE, link="x"),
        a_member("hard", tarfile.LNKTYPE, link="../x"),
        a_member("device", tarfile.CHRTYPE),
        a_member("pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda member: f"{member.name} {member.type!r}",
)
def test_an_archive_with_what_does_harm_is_refused(member: tarfile.TarInfo) -> None:
    with pytest.raises(errors.BadRequest):
        contexts.check(archived(a_member("fine"), member))


def test_a_bomb_is_refused_before_it_has_gone_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "MOST_BYTES", 10_000)
    monkeypatch.setattr(contexts, "MOST_FILES", 10)
    bomb = archived(a_member("big", size=5_000_000))
    assert len(bomb) < 10_000
    with pytest.raises(errors.TooLarge):
        contexts.check(bomb)
    contexts.check(archived(a_member("small", size=9_000)))


@given(st.binary(max_size=200))
def test_whatever_is_no_archive_is_refused(found: bytes) -> None:
    with pytest.raises((errors.BadRequest, errors.TooLarge)):
        contexts.check(found)


async def test_they_are_kept_for_tasks_and_go_with_them(tmp_path: Path) -> None:
    kept = Contexts(tmp_path / "contexts")
    assert await kept.get("t1") == b""
    assert not await kept.put("t1", [])
    assert await kept.put("t1", [File("a", content=encoded(b"A"))])
    assert await kept.copy("t1", "t2")
    assert not await kept.copy("none", "t3")
    assert await kept.get("t2") == await kept.get("t1") != b""
    await kept.delete("t1")
    await kept.delete("t1")
    assert await kept.get("t1") == b""
    await kept.put_archive("t4", archived(a_member("a")))
    with pytest.raises(errors.BadRequest):
        await kept.put_archive("t5", archived(a_member("../a")))
    assert await kept.get("t5") == b""
    await kept.keep_only(["t4"])
    assert (await kept.get("t2"), bool(await kept.get("t4"))) == (b"", True)


@pytest.mark.parametrize("task", ["../x", "", "a/b", ".hidden"])
async def test_an_id_is_no_path(tmp_path: Path, task: str) -> None:
    with pytest.raises(errors.NotFound):
        await Contexts(tmp_path).get(task)
