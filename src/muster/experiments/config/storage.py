"""Where checkpoints are kept, and which of them: the section `checkpoint_storage`. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from muster.api import fields as field_errors
from muster.api.raw import Document
from muster.tasks.config_fields import Fields
from muster.tasks.config_sections import PROPAGATIONS, is_clean

SAVED: Final = ("save_experiment_best", "save_trial_best", "save_trial_latest")
CREDENTIALS: Final = ("connection_string", "account_url", "credential")
"""Of Azure: they belong together."""


@dataclass(frozen=True, slots=True)
class SharedFs:
    """A path of every node, where all see the same."""

    host_path: str
    storage_path: str | None = None
    """Below the host path."""
    propagation: str = "rprivate"

    def document(self) -> Document:
        return {
            "type": "shared_fs",
            "host_path": self.host_path,
            "storage_path": self.storage_path,
            "propagation": self.propagation,
        }


@dataclass(frozen=True, slots=True)
class Directory:
    """One that trials see by themselves."""

    container_path: str

    def document(self) -> Document:
        return {"type": "directory", "container_path": self.container_path}


@dataclass(frozen=True, slots=True)
class S3:
    bucket: str
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    endpoint_url: str | None = None
    prefix: str | None = None

    def document(self) -> Document:
        return {
            "type": "s3",
            "bucket": self.bucket,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
            "endpoint_url": self.endpoint_url,
            "prefix": self.prefix,
        }


@dataclass(frozen=True, slots=True)
class Gcs:
    bucket: str
    prefix: str | None = None

    def document(self) -> Document:
        return {"type": "gcs", "bucket": self.bucket, "prefix": self.prefix}


@dataclass(frozen=True, slots=True)
class Azure:
    container: str
    connection_string: str | None = field(default=None, repr=False)
    account_url: str | None = None
    credential: str | None = field(default=None, repr=False)

    def document(self) -> Document:
        """Without what is not set: the harness asks which of its ways in is there."""
        ways = {name: getattr(self, name) for name in CREDENTIALS}
        return {"type": "azure", "container": self.container, **{name: way for name, way in ways.items() if way}}


Place: TypeAlias = SharedFs | Directory | S3 | Gcs | Azure


@dataclass(frozen=True, slots=True)
class CheckpointStorage:
    """The numbers: how many checkpoints stay once the experiment has ended; those of each kind are added up."""

    place: Place
    experiment_best: int = 0
    trial_best: int = 1
    trial_latest: int = 1

    def document(self) -> Document:
        kept = (self.experiment_best, self.trial_best, self.trial_latest)
        return {**self.place.document(), **dict(zip(SAVED, kept, strict=True))}


def read(fields: Fields) -> CheckpointStorage | None:
    """None where nothing is said."""
    if fields.raw("checkpoint_storage") is None:
        return None
    return _read(fields.inside("checkpoint_storage"))


def _read(fields: Fields) -> CheckpointStorage:
    place = _place(fields)
    best, trial_best, latest = (fields.integer(name, usual) for name, usual in zip(SAVED, (0, 1, 1), strict=True))
    if place is not None:
        fields.finish()
    return CheckpointStorage(place or Directory(""), best or 0, trial_best or 0, latest or 0)


def _place(fields: Fields) -> Place | None:
    """None where it is not known which, and so not which keys it has."""
    name = fields.text("type")
    if name in _PLACES:
        return _PLACES[name](fields)
    if fields.raw("type") is None:
        fields.problem("type", f"must be given: one of {', '.join(_PLACES)}")
    elif name == "hdfs":
        fields.problem("type", f"there is no hdfs any more: use one of {', '.join(_PLACES)}")
    elif name:
        hint = field_errors.nearest(name, _PLACES) or f"; there are {', '.join(_PLACES)}"
        fields.problem("type", f"no such storage{hint}")
    return None


def _shared_fs(fields: Fields) -> SharedFs:
    host = _required(fields, "host_path")
    if host and not (is_clean(host) and host.startswith("/")):
        fields.problem("host_path", f'must be an absolute path without "..", found {host!r}')
    inside = fields.text("storage_path")
    if inside and not _is_below(inside, host):
        fields.problem("storage_path", f"must be a path below host_path, which is {host!r}, found {inside!r}")
    fields.raw("container_path")  # of old, when there was a choice; the harness does not look at it either
    return SharedFs(host, inside or None, fields.text("propagation", "rprivate", choices=PROPAGATIONS))


def _is_below(path: str, host: str) -> bool:
    return ".." not in PurePosixPath(path).parts and PurePosixPath(host, path).is_relative_to(host)


def _directory(fields: Fields) -> Directory:
    path = _required(fields, "container_path")
    if path and not PurePosixPath(path).is_absolute():
        fields.problem("container_path", f"must be an absolute path, found {path!r}")
    return Directory(path)


def _s3(fields: Fields) -> S3:
    endpoint = fields.text("endpoint_url")
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        fields.problem("endpoint_url", f"must begin with http:// or https://, found {endpoint!r}")
    return S3(
        bucket=_required(fields, "bucket"),
        access_key=fields.text("access_key") or None,
        secret_key=fields.text("secret_key") or None,
        endpoint_url=endpoint or None,
        prefix=_prefix(fields),
    )


def _gcs(fields: Fields) -> Gcs:
    return Gcs(_required(fields, "bucket"), _prefix(fields))


def _azure(fields: Fields) -> Azure:
    found = Azure(_required(fields, "container"), *(fields.text(name) or None for name in CREDENTIALS))
    if bool(found.connection_string) == bool(found.account_url):
        fields.problem("connection_string", "exactly one of connection_string and account_url must be given")
    if found.connection_string and found.credential:
        fields.problem("credential", "goes with account_url; a connection_string has its own")
    return found


def _required(fields: Fields, name: str) -> str:
    found = fields.text(name)
    if fields.raw(name) in (None, ""):
        fields.problem(name, "must be given")
    return found


def _prefix(fields: Fields) -> str | None:
    found = fields.text("prefix")
    if ".." in PurePosixPath(found).parts:
        fields.problem("prefix", f'must be a path without "..", found {found!r}')
    return found or None


_PLACES: Final[Mapping[str, Callable[[Fields], Place]]] = {
    "shared_fs": _shared_fs,
    "directory": _directory,
    "s3": _s3,
    "gcs": _gcs,
    "azure": _azure,
}
