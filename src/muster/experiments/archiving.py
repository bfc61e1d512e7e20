"""A checkpoint as one archive, made while it is read: nothing of it is ever whole in memory or on our disk."""

import asyncio
import contextlib
import fcntl
import gzip
import os
import shutil
import tarfile
import zipfile
from collections.abc import AsyncGenerator, Iterator, Mapping
from enum import StrEnum
from typing import IO, Final

from muster.api import errors
from muster.tasks.glue.storages import CheckpointStorage, StorageError

_CHUNK_BYTES: Final = 1024 * 1024


class Format(StrEnum):
    """By media type."""

    TGZ = "application/gzip"
    TAR = "application/x-tar"
    ZIP = "application/zip"

    @property
    def suffix(self) -> str:
        return {Format.TGZ: "tar.gz", Format.TAR: "tar", Format.ZIP: "zip"}[self]


async def archived(storage: CheckpointStorage, name: str, wanted: Format) -> AsyncGenerator[bytes, None]:
    """In pieces, with paths relative to the checkpoint. Raises NotFound and Unavailable before the first one; what
    fails later ends it early."""
    with _told():
        sizes = await asyncio.to_thread(storage.list, name)
    if not sizes:
        raise errors.NotFound(f"checkpoint {name} is not in its storage any more")
    source, sink = os.pipe()
    with contextlib.suppress(OSError):  # it only saves turns
        fcntl.fcntl(sink, fcntl.F_SETPIPE_SZ, _CHUNK_BYTES)
    writing = asyncio.create_task(asyncio.to_thread(_write, storage, name, sizes, wanted, sink), name=f"archive {name}")
    try:
        while chunk := await asyncio.to_thread(os.read, source, _CHUNK_BYTES):
            yield chunk
        with _told():
            await writing
    finally:
        os.close(source)  # whoever still writes is told so by that
        with contextlib.suppress(Exception):
            await writing


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        raise errors.Unavailable(str(error)) from error


def _write(storage: CheckpointStorage, name: str, sizes: Mapping[str, int], wanted: Format, sink: int) -> None:
    with os.fdopen(sink, "wb") as out:
        if wanted is Format.ZIP:
            _zip(storage, name, sizes, out)
        else:
            _tar(storage, name, sizes, out, is_packed=wanted is Format.TGZ)


def _tar(storage: CheckpointStorage, name: str, sizes: Mapping[str, int], out: IO[bytes], *, is_packed: bool) -> None:
    # What is saved is mostly numbers: harder packing costs much time and saves little.
    packed = gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1) if is_packed else contextlib.nullcontext(out)
    with packed as sink, tarfile.open(fileobj=sink, mode="w|") as archive:
        for path, size in sizes.items():
            member = tarfile.TarInfo(path.rstrip("/"))
            if path.endswith("/"):
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(member)
                continue
            member.size = size
            with storage.open(name, path) as file:
                archive.addfile(member, file)


def _zip(storage: CheckpointStorage, name: str, sizes: Mapping[str, int], out: IO[bytes]) -> None:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in sizes:
            if path.endswith("/"):
                archive.writestr(path, b"")
                continue
            with storage.open(name, path) as file, archive.open(path, "w", force_zip64=True) as member:
                shutil.copyfileobj(file, member, _CHUNK_BYTES)
