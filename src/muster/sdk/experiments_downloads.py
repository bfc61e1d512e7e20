"""Checkpoints from the server, as archives that are unpacked while they come."""

import io
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from muster.api import errors
from muster.sdk.determined import Determined, Told


def checkpoint(server: Determined, uuid: str) -> Iterator[bytes]:
    """An uncompressed archive. Raises NotFound, Unavailable."""
    return server.download(f"/checkpoints/{uuid}", "application/x-tar")


def archive_bytes(sizes: Iterable[int]) -> int:
    """About as long as the archive of files of these sizes is."""
    blocks = sum(1 + -(-size // tarfile.BLOCKSIZE) for size in sizes)
    return -(-(blocks + 2) * tarfile.BLOCKSIZE // tarfile.RECORDSIZE) * tarfile.RECORDSIZE


def unpack(chunks: Iterator[bytes], into: Path) -> None:
    """Nothing leads out of the directory. Raises Unavailable where the archive is not whole."""
    try:
        with tarfile.open(fileobj=_Chunks(chunks), mode="r|") as archive:
            archive.extractall(into, filter="data")
    except tarfile.TarError as error:
        raise errors.Unavailable(f"the checkpoint did not come whole: {error}") from error


def fetch(server: Determined, uuid: str, into: Path, told: Told) -> None:
    """All or nothing: the directory is there when all is in it. Raises AlreadyExists, NotFound, Unavailable, BadRequest
    where nothing can be written there."""
    if into.exists():
        raise errors.AlreadyExists(f"{into} is there already; name a directory that is not")
    part = into.with_name(f".{into.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)  # of one that was interrupted
        part.mkdir(parents=True)
        unpack(_counted(checkpoint(server, uuid), told), part)
        part.rename(into)
    except OSError as error:
        raise errors.BadRequest(f"cannot write {into}: {error.strerror}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _counted(chunks: Iterator[bytes], told: Told) -> Iterator[bytes]:
    for chunk in chunks:
        told(len(chunk))
        yield chunk


class _Chunks(io.RawIOBase):
    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        parts, wanted = [self._rest], size - len(self._rest)
        while size < 0 or wanted > 0:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            parts.append(chunk)
            wanted -= len(chunk)
        found = b"".join(parts)
        self._rest = found[size:] if size >= 0 else b""
        return found[:size] if size >= 0 else found
