"""Configuration files of the scheduler and of quota: read once, when the program starts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.api import errors, raw
from muster.controllers import plugins
from muster.controllers.extenders import ExtenderClient
from muster.placement.configured import configured_engine
from muster.placement.engine import Engine
from muster.quota import configuration as quota

_KIND = "KubeSchedulerConfiguration"


@dataclass(frozen=True, slots=True)
class SchedulerConfiguration:
    document: raw.JSON
    source: str
    warnings: Sequence[str] = ()

    @classmethod
    def read(cls, path: Path) -> "SchedulerConfiguration":
        """Blocks: for the start of the program. Raises ApiError that names every field that is wrong."""
        document = _read(path, _KIND, "the scheduler's configuration")
        engine, warnings = _made(document, str(path))
        client = ExtenderClient.of(engine.extending.extenders)
        if isinstance(client, list):
            raise errors.invalid(_KIND, str(path), client)
        return cls(document, str(path), warnings)

    def make_engine(self) -> Engine:
        return _made(self.document, self.source)[0]


def _made(document: raw.JSON, source: str) -> tuple[Engine, Sequence[str]]:
    found = configured_engine(document, plugins.load)
    if isinstance(found, list):
        raise errors.invalid(_KIND, source, found)
    return found


def read_quota(path: Path) -> quota.Configuration:
    """Blocks: for the start of the program. Raises ApiError that names every field that is wrong."""
    found = quota.parse(_read(path, quota.KIND, "the configuration of quota"))
    if isinstance(found, list):
        raise errors.invalid(quota.KIND, str(path), found)
    return found


def _read(path: Path, kind: str, what: str) -> raw.Document:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise errors.BadRequest(f"cannot read {what} {path}: {error.strerror}") from error
    try:
        documents = raw.decode_yaml(text)
    except errors.BadRequest as error:
        raise errors.BadRequest(f"{path}: {error.message}") from error
    if len(documents) != 1:
        raise errors.BadRequest(f"{path}: expected one {kind}, found {len(documents)} documents")
    return documents[0]
