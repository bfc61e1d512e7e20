"""What the parts of a platform are told when they are put together."""

import logging
from dataclasses import dataclass, field
from pathlib import Path

from muster.api import errors, managing, raw
from muster.api.kinds import Kind
from muster.api.managing import Find, TakeIn
from muster.api.volcano import resource_groups, taking_in
from muster.controllers.configured import SchedulerConfiguration, read_quota
from muster.controllers.scheduling import MakeEngine
from muster.placement.engine import default_engine
from muster.quota.settings import Settings
from muster.settings.sections import PlatformSettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """An API server with its controllers. `data`: where it keeps everything."""

    data: Path
    platform: PlatformSettings = field(default_factory=PlatformSettings)


@dataclass(frozen=True, slots=True)
class Policies:
    """What those who decide are told, and what is filled in for new objects, whoever makes them."""

    make_engine: MakeEngine
    quota: Settings
    take_in: TakeIn


def policies(platform: PlatformSettings) -> Policies:
    """Raises what is wrong with the files that the settings name, before anything has started."""
    quota = _quota_settings(platform.quota)
    return Policies(_make_engine(platform.scheduler), quota, _take_in(platform.admission, quota))


def _make_engine(file: str) -> MakeEngine:
    if not file:
        return default_engine
    configuration = SchedulerConfiguration.read(_path(file))
    for warning in configuration.warnings:
        _log.warning("%s: %s", file, warning)
    return configuration.make_engine


def _quota_settings(file: str) -> Settings:
    if not file:
        return Settings()
    configuration = read_quota(_path(file))
    for warning in configuration.warnings:
        _log.warning("%s: %s", file, warning)
    return configuration.settings


def _take_in(file: str, quota: Settings) -> TakeIn:
    documents = raw.decode_yaml(_read(_path(file))) if file else []
    groups = resource_groups.read(documents[0]) if documents else ()

    def fill_in(kind: Kind, document: raw.Document, find: Find) -> None:
        taking_in.take_in(kind, document, find, groups)
        managing.take_in(kind, document, find, quota.managed_namespaces)

    return fill_in


def _path(file: str) -> Path:
    return Path(file).expanduser()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise errors.BadRequest(f"cannot read {path}: {error.strerror}") from error
