"""Where checkpoints are kept: directories of files, in a file system or in a bucket, in the layout of Determined's
library, so that what one has saved the other can load.

    storage = opened({"type": "s3", "bucket": "models"})
    storage.put("0ab1…", "/tmp/saved")
    storage.list("0ab1…")                   # {"model.pt": 1234}
    storage.delete("0ab1…", ["**/*.opt"])   # what is left

It stands alone: the server, the SDK and tasks on any node use it, with Python from 3.9 on. What speaks to buckets is
fsspec, which is loaded only where one is used.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import posixpath
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Protocol, cast

from . import azure_blobs

SHARED_PATH = "/determined_shared_fs"
"""Where tasks see the directory that a `shared_fs` names on its host."""
ALL = ("**/*",)
_PACKAGES = {"s3": "s3fs", "gcs": "gcsfs", "azure": "adlfs"}
_CHUNK_BYTES = 4 * 1024 * 1024

Told = Callable[[str, int], None]
"""A file's path, and how many bytes of it have just been copied."""
Sizes = dict[str, int]
"""Bytes by path; directories that are empty have a path that ends with a slash."""


class StorageError(Exception):
    """It cannot be used, and why."""


class CheckpointStorage(Protocol):
    """`name`: of a checkpoint, or of a directory of them. Everything raises StorageError."""

    def put(self, name: str, source: str, told: Told | None = None) -> Sizes:
        """All that is in a directory."""
        ...

    def open(self, name: str, path: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        """One file, to be read."""
        ...

    def list(self, name: str) -> Sizes:
        """Empty where there is none."""
        ...

    def delete(self, name: str, globs: Iterable[str] = ALL) -> Sizes:
        """What these match, and says what is left. Nothing happens to what is not there."""
        ...


def get(storage: CheckpointStorage, name: str, into: str, told: Told | None = None) -> Sizes:
    """Copies all of a checkpoint to a directory. Raises StorageError, also where there is nothing."""
    found = storage.list(name)
    if not found:
        raise StorageError(f"checkpoint {name} is not in its storage any more")
    for path in found:
        place = os.path.join(into, _inside(path))
        if path.endswith("/"):
            os.makedirs(place, exist_ok=True)
            continue
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with storage.open(name, path) as source, open(place, "wb") as copy:
            _copy(source, copy, path, told)
    return found


def opened(config: Mapping[str, object], shared_path: str | None = None) -> CheckpointStorage:
    """`config`: as `checkpoint_storage` of an experiment. `shared_path`: where a shared file system's `host_path` is
    seen from here; None: by that path itself. Raises StorageError."""
    kind = config.get("type")
    if kind == "shared_fs":
        host = str(config["host_path"])
        return Files(os.path.join(shared_path or host, inside_shared(config)))
    if kind == "directory":
        return Files(str(config["container_path"]))
    if kind in _PACKAGES:
        return _remote(str(kind), config)
    raise StorageError(f"checkpoint_storage.type: {kind!r} is not known")


def inside_shared(config: Mapping[str, object]) -> str:
    """Where in the shared directory; users may tell it as it is seen on the host."""
    path = str(config.get("storage_path") or "")
    return os.path.relpath(path, str(config["host_path"])) if os.path.isabs(path) else path


def matching(paths: Iterable[str], globs: Iterable[str]) -> list[str]:
    """A pattern that matches a directory takes all that is in it."""
    patterns = [re.compile(_expression(pattern)) for pattern in globs]
    return [path for path in paths if any(pattern.match(path) for pattern in patterns)]


class Files:
    """Below a directory of the file system."""

    def __init__(self, root: str) -> None:
        self._root = root

    def directory(self, name: str) -> str:
        """Where it is, or would be: it can be written and read there without a copy."""
        return self._place(name)

    def put(self, name: str, source: str, told: Told | None = None) -> Sizes:
        with _translated(self._root):
            for path in _walk(source):
                place = self._place(name, path)
                if path.endswith("/"):
                    os.makedirs(place, exist_ok=True)
                    continue
                os.makedirs(os.path.dirname(place), exist_ok=True)
                with open(os.path.join(source, path), "rb") as original, open(place, "wb") as copy:
                    _copy(original, copy, path, told)
        return self.list(name)

    @contextlib.contextmanager
    def open(self, name: str, path: str) -> Iterator[IO[bytes]]:
        with _translated(self._root), open(self._place(name, path), "rb") as file:
            yield file

    def list(self, name: str) -> Sizes:
        with _translated(self._root):
            place = self._place(name)
            return {path: _size(os.path.join(place, path)) for path in _walk(place)}

    def delete(self, name: str, globs: Iterable[str] = ALL) -> Sizes:
        found = self.list(name)
        gone = set(matching(found, globs))
        with _translated(self._root):
            if gone == set(found):
                if os.path.isdir(self._place(name)):
                    shutil.rmtree(self._place(name))
                return {}
            for path in gone:
                self._remove(self._place(name), path)
        return self.list(name)

    @staticmethod
    def _remove(root: str, path: str) -> None:
        """With the directories that are empty without it."""
        if not path.endswith("/"):
            os.unlink(os.path.join(root, path))
            path = posixpath.dirname(path)
        while path.strip("/") and not os.listdir(os.path.join(root, path)):
            os.rmdir(os.path.join(root, path))
            path = posixpath.dirname(path.rstrip("/"))

    def _place(self, name: str, path: str = "") -> str:
        return os.path.join(self._root, _inside(name), _inside(path))


class Remote:
    """In a bucket. `files`: a file system of fsspec, which must take names of objects that end with a slash as they
    are: Determined's library marks directories by empty objects with such names."""

    def __init__(self, files: _FileSystem, root: str) -> None:
        self._files = files
        self._root = root

    def put(self, name: str, source: str, told: Told | None = None) -> Sizes:
        found: Sizes = {}
        with _translated(self._root):
            for path in _walk(source):
                if not path.endswith("/"):
                    found[path] = self._put_file(os.path.join(source, path), name, path, told)
                else:
                    self._files.pipe_file(self._place(name, path) + "/", b"")
                    found[path] = 0
        return found

    @contextlib.contextmanager
    def open(self, name: str, path: str) -> Iterator[IO[bytes]]:
        with _translated(self._root), self._files.open(self._place(name, path), "rb") as file:
            yield file

    def list(self, name: str) -> Sizes:
        return _without_marks(self._objects(name))

    def delete(self, name: str, globs: Iterable[str] = ALL) -> Sizes:
        found = self._objects(name)
        shown = _without_marks(found)
        gone = matching(shown, globs)
        with _translated(self._root):
            if shown and len(gone) == len(shown):
                self._files.rm(self._place(name), recursive=True)  # with all marks of directories
            elif gone:
                self._remove(name, gone, _emptied(found, set(shown) - set(gone)))
        return self.list(name)

    def _put_file(self, source: str, name: str, path: str, told: Told | None) -> int:
        with open(source, "rb") as original, self._files.open(self._place(name, path), "wb") as copy:
            return _copy(original, copy, path, told)

    def _remove(self, name: str, paths: Iterable[str], marks: Iterable[str]) -> None:
        files = [path for path in paths if not path.endswith("/")]
        if files:
            self._files.rm([self._place(name, path) for path in files])
        for path in marks:
            self._files.rm_file(self._place(name, path) + "/")

    def _objects(self, name: str) -> Sizes:
        with _translated(self._root):
            self._files.invalidate_cache()
            start = self._place(name) + "/"
            listed = self._files.find(start, withdirs=False, detail=True)
        bare = start.lstrip("/")
        found = {
            place.lstrip("/")[len(bare) :]: int(cast(int, about["size"] or 0))
            for place, about in sorted(listed.items())
        }
        return {path: size for path, size in found.items() if path}

    def _place(self, name: str, path: str = "") -> str:
        return posixpath.join(self._root, _inside(name), _inside(path)).rstrip("/")


def _without_marks(objects: Sizes) -> Sizes:
    """Only directories that are empty are worth telling."""
    return {
        path: size
        for path, size in objects.items()
        if not (path.endswith("/") and any(other.startswith(path) for other in objects if other != path))
    }


def _emptied(objects: Iterable[str], left: Iterable[str]) -> Iterator[str]:
    """Marks of directories in which nothing is left."""
    kept = tuple(left)
    return (path for path in objects if path.endswith("/") and not any(other.startswith(path) for other in kept))


class _FileSystem(Protocol):
    """What we use of fsspec's."""

    def open(self, path: str, mode: str) -> contextlib.AbstractContextManager[IO[bytes]]: ...
    def find(self, path: str, *, withdirs: bool, detail: bool) -> dict[str, dict[str, object]]: ...
    def pipe_file(self, path: str, value: bytes) -> None: ...
    def rm(self, path: str | list[str], recursive: bool = False) -> None: ...
    def rm_file(self, path: str) -> None: ...
    def invalidate_cache(self) -> None: ...


def _remote(kind: str, config: Mapping[str, object]) -> Remote:
    package = _PACKAGES[kind]
    bucket = str(config.get("bucket") or config.get("container") or "")
    root = posixpath.join(bucket, str(config.get("prefix") or "").strip("/")).rstrip("/")
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise StorageError(
            f'checkpoints in {kind} need the package {package}: run "pip install muster[{kind}]", or install {package}'
        ) from error
    with _translated(root):
        return Remote(_file_system(kind, config), root)


def _file_system(kind: str, config: Mapping[str, object]) -> _FileSystem:
    if kind == "azure":
        return azure_blobs.Blobs(azure_blobs.connection_string(config))
    names = {"access_key": "key", "secret_key": "secret", "endpoint_url": "endpoint_url"}
    options = {ours: config[theirs] for theirs, ours in names.items() if config.get(theirs)}
    return cast(_FileSystem, importlib.import_module("fsspec").filesystem(kind, **options))


@contextlib.contextmanager
def _translated(root: str) -> Iterator[None]:
    """Whatever a library of some vendor raises, whoever asked wants to know that the storage has failed, and how."""
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        # Often all that it says is a name.
        raise StorageError(f"checkpoint_storage {root}: {type(error).__name__}: {error}") from error


def _walk(root: str) -> Iterator[str]:
    """All files, and directories that are empty, with a slash at the end; in order."""
    for place, directories, files in os.walk(root):
        directories.sort()
        inside = os.path.relpath(place, root)
        prefix = "" if inside == "." else inside.replace(os.sep, "/") + "/"
        for name in sorted(files):
            yield prefix + name
        if prefix and not files and not directories:
            yield prefix


def _size(path: str) -> int:
    return 0 if path.endswith("/") else os.path.getsize(path)


def _inside(path: str) -> str:
    """Raises StorageError where it leads elsewhere."""
    if os.path.isabs(path) or ".." in path.split("/") or "\0" in path:
        raise StorageError(f'{path[:200]!r} is not a relative path without ".."')
    return path


def _copy(source: IO[bytes], copy: IO[bytes], path: str, told: Told | None) -> int:
    total = 0
    while True:
        chunk = source.read(_CHUNK_BYTES)
        if not chunk:
            return total
        copy.write(chunk)
        total += len(chunk)
        if told is not None:
            told(path, len(chunk))


def _expression(pattern: str) -> str:
    """`*` and `?` stop at slashes, `**` does not."""
    found, place = "", 0
    for match in re.finditer(r"\*\*/|\*\*|\*|\?", pattern):
        found += re.escape(pattern[place : match.start()])
        found += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}[match.group()]
        place = match.end()
    return found + re.escape(pattern[place:].rstrip("/")) + r"(?:/.*)?\Z"
