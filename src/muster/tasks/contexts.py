"""Context directories: the files that users send along with a task, kept as one archive each in the data directory.

They come from outside: nothing may lead out of the directory that they are unpacked into, nothing may be larger than
it looks, and nothing but files and directories is taken.
"""

import asyncio
import base64
import binascii
import contextlib
import gzip
import io
import os
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from muster.api import errors

MOST_BYTES: Final = 96 * 1024 * 1024
"""Of all files together. Determined's client sends no more."""
MOST_FILES: Final = 100_000
_LONGEST_PATH: Final = 4096
_FILE, _DIRECTORY = 48, 53
"""How the client says what something is: the letters of tar's type field."""
_NAME: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]{0,200}")


@dataclass(frozen=True, slots=True)
class File:
    """One of those that were sent. `content`: in base64. Of `type`, 48 is a file and 53 a directory."""

    path: str
    type: int = _FILE
    content: str = ""
    mode: int = 0o644
    mtime: int = 0


def pack(files: Sequence[File]) -> bytes:
    """As a tar.gz. Raises BadRequest, TooLarge."""
    if len(files) > MOST_FILES:
        raise errors.TooLarge(f"files: at most {MOST_FILES} are taken, found {len(files)}")
    encoded = sum(len(file.content) for file in files)
    if encoded * 3 // 4 > MOST_BYTES:
        raise _too_large()
    out = io.BytesIO()
    # Without a time of its own: the same files are the same archive.
    with (
        gzip.GzipFile(fileobj=out, mode="wb", compresslevel=3, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|") as archive,
    ):
        places = _Places()
        for number, file in enumerate(files):
            _add(archive, file, places, f"files[{number}]")
    return out.getvalue()


class _Places:
    """What is already where: one place cannot be two files, nor a file and a directory."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._directories: set[str] = set()

    def take(self, path: str, where: str, *, is_file: bool) -> None:
        """Raises BadRequest."""
        above = {str(parent) for parent in PurePosixPath(path).parents}
        if path in self._files or above & self._files or (is_file and path in self._directories):
            raise errors.BadRequest(f"{where}: {path[:200]!r} is given twice, or is both a file and a directory")
        self._directories |= above
        (self._files if is_file else self._directories).add(path)


def check(archive: bytes) -> None:
    """That a tar.gz from outside can be unpacked without harm. Raises BadRequest, TooLarge."""
    try:
        with tarfile.open(fileobj=_Bounded(archive), mode="r|") as opened:
            for number, member in enumerate(opened):
                if number >= MOST_FILES:
                    raise errors.TooLarge(f"contextDirectory: has more than {MOST_FILES} members")
                _safe(member.name, "contextDirectory")
                if not (member.isreg() or member.isdir()):
                    raise errors.BadRequest(
                        f"contextDirectory: {member.name[:200]!r} is neither a file nor a directory; send what it is"
                    )
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise errors.BadRequest(f"contextDirectory: is not a whole tar.gz: {error}") from error


class _Bounded(io.RawIOBase):
    """An archive as it is unpacked, up to what is allowed."""

    def __init__(self, archive: bytes) -> None:
        self._packed = gzip.GzipFile(fileobj=io.BytesIO(archive))
        self._left = MOST_BYTES + MOST_FILES * 2 * tarfile.BLOCKSIZE

    def read(self, size: int = -1) -> bytes:
        wanted = self._left + 1 if size < 0 else size
        found = self._packed.read(min(wanted, self._left + 1))
        self._left -= len(found)
        if self._left < 0:
            raise _too_large()
        return found


def _add(archive: tarfile.TarFile, file: File, places: _Places, where: str) -> None:
    path = _safe(file.path, f"{where}.path")
    places.take(path, f"{where}.path", is_file=file.type != _DIRECTORY)
    member = tarfile.TarInfo(path)
    member.mtime = max(0, min(file.mtime, 2**33 - 1))
    if file.type == _DIRECTORY:
        member.type, member.mode = tarfile.DIRTYPE, (file.mode & 0o777) | 0o700
        archive.addfile(member)
        return
    if file.type not in (_FILE, 0):
        raise errors.BadRequest(f"{where}.type: must be {_FILE} for a file or {_DIRECTORY} for a directory")
    try:
        content = base64.b64decode(file.content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise errors.BadRequest(f"{where}.content: is not base64: {error}") from error
    member.size, member.mode = len(content), (file.mode & 0o777) | 0o600
    archive.addfile(member, io.BytesIO(content))


def _safe(name: str, where: str) -> str:
    """Raises BadRequest. No bits that give rights and no way out are kept."""
    path = PurePosixPath(name)
    if not name or "\0" in name or len(name) > _LONGEST_PATH or path.is_absolute() or ".." in path.parts:
        raise errors.BadRequest(f'{where}: must be a relative path without "..", found {name[:200]!r}')
    if not path.parts:
        raise errors.BadRequest(f"{where}: must name something inside the directory, found {name!r}")
    return str(path)


def _too_large() -> errors.TooLarge:
    return errors.TooLarge(
        f"files: at most {MOST_BYTES // 1024**2} MiB are taken in all; large data belongs where tasks can read it"
    )


class Contexts:
    """One archive for each task that has one, in files of their own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def put(self, task: str, files: Sequence[File]) -> bool:
        """Durable when it returns. False where there are none. Raises BadRequest, TooLarge."""
        if not files:
            return False
        await asyncio.to_thread(self._put, task, files)
        return True

    async def put_archive(self, task: str, archive: bytes) -> None:
        """A tar.gz, instead of files one by one. Raises BadRequest, TooLarge."""
        if len(archive) > MOST_BYTES:
            raise _too_large()
        await asyncio.to_thread(check, archive)
        await asyncio.to_thread(self._write, task, archive)

    async def copy(self, source: str, task: str) -> bool:
        """False where the other has none."""
        return await asyncio.to_thread(self._copy, source, task)

    def rename(self, task: str, new: str) -> None:
        """Durable when it returns. Where it has none, the other has none afterwards."""
        try:
            os.replace(self._path(task), self._path(new))
        except FileNotFoundError:
            self._path(new).unlink(missing_ok=True)
            return
        with _opened(self._directory) as directory:
            os.fsync(directory)

    async def get(self, task: str) -> bytes:
        """A tar.gz; empty where there is none."""
        return await asyncio.to_thread(self._get, task)

    async def delete(self, task: str) -> None:
        await asyncio.to_thread(self._path(task).unlink, missing_ok=True)

    async def keep_only(self, tasks: Iterable[str]) -> None:
        """Remove what a crash has left of tasks that never came to be."""
        known = {self._path(task) for task in tasks}
        await asyncio.to_thread(self._sweep, known)

    def _put(self, task: str, files: Sequence[File]) -> None:
        self._write(task, pack(files))

    def _copy(self, source: str, task: str) -> bool:
        found = self._get(source)
        if found:
            self._write(task, found)
        return bool(found)

    def _get(self, task: str) -> bytes:
        try:
            return self._path(task).read_bytes()
        except FileNotFoundError:
            return b""

    def _write(self, task: str, archive: bytes) -> None:
        path = self._path(task)
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_suffix(".new")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as out:
            out.write(archive)
            out.flush()
            os.fsync(fd)
        os.replace(temporary, path)
        with _opened(self._directory) as directory:
            os.fsync(directory)

    def _sweep(self, known: set[Path]) -> None:
        with contextlib.suppress(FileNotFoundError):
            for path in self._directory.iterdir():
                if path not in known:
                    path.unlink(missing_ok=True)

    def _path(self, task: str) -> Path:
        # Ids are ours, but they also come back from outside.
        if not _NAME.fullmatch(task):
            raise errors.NotFound(f"task {task[:80]!r} not found")
        return self._directory / f"{task}.tgz"


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
