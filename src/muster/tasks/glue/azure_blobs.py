"""Azure's blobs, as `storages` wants them of a file system.

Determined's library marks directories by empty blobs whose names end with a slash. adlfs cuts that slash off, so that a
directory looks like a file, and cannot remove it: names are listed and removed here, what is in blobs goes through
adlfs.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Protocol, cast
from urllib.parse import parse_qs, urlsplit


class _Blob(Protocol):
    name: str
    size: int
    metadata: Mapping[str, str] | None


class _Container(Protocol):
    def list_blobs(self, *, name_starts_with: str, include: list[str]) -> Iterable[_Blob]: ...
    def delete_blob(self, blob: str) -> None: ...


class _Service(Protocol):
    def get_container_client(self, container: str) -> _Container: ...


class _Content(Protocol):
    """What we use of adlfs."""

    def open(self, path: str, mode: str) -> contextlib.AbstractContextManager[IO[bytes]]: ...
    def pipe_file(self, path: str, value: bytes) -> None: ...
    def invalidate_cache(self) -> None: ...


def connection_string(config: Mapping[str, object]) -> str:
    """`config`: as `checkpoint_storage` of an experiment; an `account_url` with its `credential`, which is a key or a
    shared access signature, can be told as a connection string too."""
    given, account = str(config.get("connection_string") or ""), str(config.get("account_url") or "")
    if given:
        return given
    endpoint, credential = f"BlobEndpoint={account}", str(config.get("credential") or "").lstrip("?")
    if not credential:
        return endpoint
    if "sig" in parse_qs(credential):
        return f"{endpoint};SharedAccessSignature={credential}"
    return f"{endpoint};AccountName={_account_name(account)};AccountKey={credential}"


def _account_name(url: str) -> str:
    """Azure has it in the host's name, others in the path."""
    parts = urlsplit(url)
    name, dot, _ = parts.netloc.partition(".blob.")
    return name if dot else parts.path.strip("/").partition("/")[0]


class Blobs:
    """`connection`: a connection string. Paths begin with the container's name. Raises ImportError, and whatever the
    libraries do."""

    def __init__(self, connection: str) -> None:
        blob = importlib.import_module("azure.storage.blob")
        files = importlib.import_module("fsspec").filesystem("abfs", connection_string=connection)
        self._service = cast(_Service, blob.BlobServiceClient.from_connection_string(connection))
        self._content = cast(_Content, files)
        self._absent = cast("type[Exception]", importlib.import_module("azure.core.exceptions").ResourceNotFoundError)

    def open(self, path: str, mode: str) -> contextlib.AbstractContextManager[IO[bytes]]:
        return self._content.open(path, mode)

    def pipe_file(self, path: str, value: bytes) -> None:
        self._content.pipe_file(path, value)

    def invalidate_cache(self) -> None:
        self._content.invalidate_cache()

    def find(self, path: str, *, withdirs: bool, detail: bool) -> dict[str, dict[str, object]]:  # noqa: ARG002
        container, _, start = path.partition("/")
        found = self._listed(container, start)
        return {f"{container}/{blob.name}": {"size": blob.size} for blob in found if not _is_folder(blob)}

    def rm(self, path: str | list[str], recursive: bool = False) -> None:
        if isinstance(path, list):
            for each in path:
                self.rm_file(each)
        elif recursive:
            container, _, start = path.partition("/")
            # Names that are longer come later: a folder is empty when its turn comes.
            for blob in sorted(self._listed(container, f"{start}/"), key=lambda found: found.name, reverse=True):
                self.rm_file(f"{container}/{blob.name}")

    def rm_file(self, path: str) -> None:
        container, _, name = path.partition("/")
        with contextlib.suppress(self._absent):  # somebody else has removed it
            self._service.get_container_client(container).delete_blob(name)

    def _listed(self, container: str, start: str) -> Iterator[_Blob]:
        client = self._service.get_container_client(container)
        return iter(client.list_blobs(name_starts_with=start, include=["metadata"]))


def _is_folder(blob: _Blob) -> bool:
    """Accounts with a hierarchical namespace list what they have themselves for a directory."""
    metadata = {name.lower(): value for name, value in (blob.metadata or {}).items()}
    return metadata.get("hdi_isfolder") == "true"
