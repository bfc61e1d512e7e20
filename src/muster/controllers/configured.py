"""The scheduler's configuration file: read once, when the program starts, and made into an engine for every run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.api import errors, raw
from muster.controllers import plugins
from muster.controllers.extenders import ExtenderClient
from muster.placement.configured import configured_engine
from muster.placement.engine import Engine

_KIND = "KubeSchedulerConfiguration"


@dataclass(frozen=True, slots=True)
class SchedulerConfiguration:
    document: raw.JSON
    source: str
    warnings: Sequence[str] = ()

    @classmethod
    def read(cls, path: Path) -> "SchedulerConfiguration":
        """Blocks: for the start of the program. Raises ApiError that names every field that is wrong."""
        try:
            text = path.read_bytes()
        except OSError as error:
            raise errors.BadRequest(f"cannot read the scheduler's configuration {path}: {error.strerror}") from error
        try:
            documents = raw.decode_yaml(text)
        except errors.BadRequest as error:
            raise errors.BadRequest(f"{path}: {error.message}") from error
        if len(documents) != 1:
            raise errors.BadRequest(f"{path}: expected one {_KIND}, found {len(documents)} documents")
        engine, warnings = _made(documents[0], str(path))
        client = ExtenderClient.of(engine.extending.extenders)
        if isinstance(client, list):
            raise errors.invalid(_KIND, str(path), client)
        return cls(documents[0], str(path), warnings)

    def make_engine(self) -> Engine:
        return _made(self.document, self.source)[0]


def _made(document: raw.JSON, source: str) -> tuple[Engine, Sequence[str]]:
    found = configured_engine(document, plugins.load)
    if isinstance(found, list):
        raise errors.invalid(_KIND, source, found)
    return found
