"""Checkpoints of a trial: kept in its experiment's storage, and known to the server once they are there as a whole.

A checkpoint that was interrupted is never seen. In a file system it is written where it stays and read where it is;
from a bucket it is fetched once for all processes of a node.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from uuid import uuid4

from muster.api import errors, timestamps
from muster.api.meta import Instant
from muster.api.raw import JSON, Document
from muster.sdk import experiments_downloads, training_calls
from muster.sdk.determined import Determined
from muster.sdk.training_facts import Facts
from muster.tasks.glue import storages
from muster.tasks.glue.storages import SHARED_PATH, CheckpointStorage, Files, StorageError

PATIENCE_SECONDS: Final = 900.0
"""For how long a server may be away before training is told."""


class Checkpoints:
    """`scratch`: a directory that all processes of this run on this node share, and no others."""

    def __init__(self, server: Determined, facts: Facts, scratch: Path) -> None:
        self._server = server
        self._facts = facts
        self._scratch = scratch
        self._latest = facts.checkpoint
        self._opened: CheckpointStorage | None = None
        self._storage_id: int | None = None

    @contextlib.contextmanager
    def saving(self, step: int, metadata: Mapping[str, JSON]) -> Iterator[Path]:
        """What is in the directory at the end is the checkpoint. Where the block raises there is none. Raises
        StorageError, ApiError."""
        storage, uuid = self._storage(), str(uuid4())
        if isinstance(storage, Files):
            directory = Path(storage.directory(uuid))
            directory.mkdir(parents=True)
            try:
                yield directory
            except BaseException:
                shutil.rmtree(directory, ignore_errors=True)
                raise
            _persist(directory)
            self._report(uuid, step, metadata, storage.list(uuid))
            return
        with tempfile.TemporaryDirectory(prefix="checkpoint-") as temporary:
            yield Path(temporary)
            self._report(uuid, step, metadata, storage.put(uuid, temporary))

    def latest(self) -> Path | None:
        """To be read, not to be changed. Raises StorageError, ApiError."""
        if self._latest is None:
            return None
        storage = self._storage()
        with contextlib.suppress(StorageError):  # it may be another experiment's, and kept elsewhere
            if isinstance(storage, Files) and storage.list(self._latest):
                return Path(storage.directory(self._latest))
        return self._fetched(storage, self._latest)

    def _storage(self) -> CheckpointStorage:
        if self._opened is None:
            config = self._config()
            is_shared = config.get("type") == "shared_fs"
            if is_shared and not self._facts.allocation:
                _check_here(str(config["host_path"]))
            self._opened = storages.opened(config, SHARED_PATH if is_shared and self._facts.allocation else None)
        return self._opened

    def _config(self) -> Document:
        config = self._facts.config.get("checkpoint_storage")
        if not isinstance(config, dict):
            raise StorageError("checkpoint_storage: the experiment has none")
        return config

    def _report(self, uuid: str, step: int, metadata: Mapping[str, JSON], sizes: Mapping[str, int]) -> None:
        """It can be told twice."""
        if self._storage_id is None:
            started = {"runId": self._facts.trial, "checkpointStorage": self._config()}
            answer = self._insist("/runs/start", started)
            self._storage_id = answer.get("storageId")
        document: Document = {
            "uuid": uuid,
            "taskId": self._facts.task,
            "allocationId": self._facts.allocation or None,
            "reportTime": timestamps.to_micro_text(Instant(time.time())),
            "state": "STATE_COMPLETED",
            "resources": {path: str(size) for path, size in sizes.items()},
            "metadata": {**metadata, "steps_completed": step},
            "training": {},
            "storageId": self._storage_id,
        }
        self._insist("/checkpoints", document)
        self._latest = uuid

    def _insist(self, path: str, body: Document) -> Document:
        return training_calls.insist(
            lambda: self._server.send("POST", path, body), "reporting a checkpoint", PATIENCE_SECONDS
        )

    # Fetched, where it cannot be read in its place

    def _fetched(self, storage: CheckpointStorage, uuid: str) -> Path:
        place, part = self._scratch / uuid, self._scratch / f"{uuid}.part"
        self._scratch.mkdir(parents=True, exist_ok=True)
        with (self._scratch / f"{uuid}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # one process of a node fetches it, the others wait
            if not place.exists():
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir()
                self._fetch(storage, uuid, part)
                part.rename(place)
        return place

    def _fetch(self, storage: CheckpointStorage, uuid: str, into: Path) -> None:
        try:
            storages.get(storage, uuid, str(into))
        except StorageError as here:
            # The server knows in which storage it is.
            try:
                experiments_downloads.unpack(experiments_downloads.checkpoint(self._server, uuid), into)
            except errors.NotFound as error:
                raise StorageError(f"checkpoint {uuid} is not there any more: {error.message}") from here


def _check_here(path: str) -> None:
    """Elsewhere than on a node, what is shared by the nodes may not be there, and nobody would find what is kept in a
    directory that only has its name."""
    if not os.path.isdir(os.path.dirname(path)):
        raise StorageError(
            f"checkpoint_storage: {path} of the platform's nodes is not on this machine; name a storage that both "
            'reach in `config={"checkpoint_storage": ...}` of `training.run`'
        )


def _persist(directory: Path) -> None:
    """What is reported must outlive a crash of the machine."""
    for place, _, names in os.walk(directory):
        for path in (*(os.path.join(place, name) for name in names), place):
            number = os.open(path, os.O_RDONLY)
            try:
                os.fsync(number)
            finally:
                os.close(number)
