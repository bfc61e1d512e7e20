"""The server itself, which Determined's clients call the master: what it is, its settings, its log, its message."""

import logging
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from muster.accounts.permissions import Permission
from muster.api import errors, timestamps
from muster.api.meta import Instant
from muster.api.raw import JSON, Document
from muster.api.timestamps import BadTimestamp
from muster.api.volcano import durations
from muster.runtime.log_ring import LogLine, LogRing
from muster.server.determined import acting
from muster.server.determined.cluster_facts import ClusterFacts
from muster.server.determined.cluster_facts import ClusterMessage as Told
from muster.server.determined.paging import Count
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, known, public, route, stream
from muster.settings.sections import LogLevel as Level

SPOKEN_VERSION: Final = "0.38.1"
"""The release of Determined whose API this is. Clients compare it with their own."""


class SsoProvider(Message, frozen=True):
    """As `/api/v1/master` tells it; `/info` tells the same in snake_case."""

    name: str
    sso_url: str
    type: str
    always_redirect: bool


class Live(Protocol):
    """The settings of the running server."""

    def shown(self) -> Document:
        """Without secrets."""
        ...

    def set_log(self, level: Level | None, color: bool | None) -> None:
        """Until the server stops. None leaves it as it is."""
        ...


@dataclass(frozen=True, slots=True)
class About:
    """`master`: of this run of the server. `version`: our own. `providers`: through whom users may log in."""

    cluster: str
    master: str
    cluster_name: str
    version: str
    providers: Sequence[SsoProvider] = ()


class LogLevel(StrEnum):
    UNSPECIFIED = "LOG_LEVEL_UNSPECIFIED"
    TRACE = "LOG_LEVEL_TRACE"
    DEBUG = "LOG_LEVEL_DEBUG"
    INFO = "LOG_LEVEL_INFO"
    WARNING = "LOG_LEVEL_WARNING"
    ERROR = "LOG_LEVEL_ERROR"
    CRITICAL = "LOG_LEVEL_CRITICAL"


_LEVELS: Final[Mapping[LogLevel, Level]] = {
    LogLevel.TRACE: Level.TRACE,
    LogLevel.DEBUG: Level.DEBUG,
    LogLevel.INFO: Level.INFO,
    LogLevel.WARNING: Level.WARNING,
    LogLevel.ERROR: Level.ERROR,
    LogLevel.CRITICAL: Level.CRITICAL,
}
_BY_NUMBER: Final = (
    (logging.CRITICAL, LogLevel.CRITICAL),
    (logging.ERROR, LogLevel.ERROR),
    (logging.WARNING, LogLevel.WARNING),
    (logging.INFO, LogLevel.INFO),
    (logging.DEBUG, LogLevel.DEBUG),
)


class Product(StrEnum):
    COMMUNITY = "PRODUCT_COMMUNITY"


class Telemetry(Message, frozen=True):
    enabled: bool = False


class InfoProvider(Message, frozen=True, rename="lower"):
    name: str
    sso_url: str
    type: str
    always_redirect: bool


class Info(Message, frozen=True, rename="lower"):
    """Its names are in snake_case: it is older than the rest of the API."""

    cluster_id: str
    master_id: str
    version: str
    muster_version: str
    sso_providers: Sequence[InfoProvider] = ()
    telemetry: Telemetry = Telemetry()


class Health(Message, frozen=True):
    status: str = "up"
    database: str = "up"


class ClusterMessage(Message, frozen=True):
    message: str
    start_time: str
    end_time: str | None
    created_time: str


class GetMasterReply(Message, frozen=True):
    """Everything is for everybody, so `rbac_enabled`: clients hide what needs it otherwise."""

    version: str
    master_id: str
    cluster_id: str
    cluster_name: str
    cluster_message: ClusterMessage | None
    branding: str = "muster"
    external_login_uri: str = ""
    external_logout_uri: str = ""
    sso_providers: Sequence[SsoProvider] = ()
    telemetry_enabled: bool = False
    rbac_enabled: bool = True
    strict_job_queue_control: bool = True
    user_management_enabled: bool = True
    has_custom_logo: bool = False
    feature_switches: Sequence[str] = ()
    product: Product = Product.COMMUNITY


class GetConfigReply(Message, frozen=True):
    config: Mapping[str, JSON]


class LogPatch(Message, frozen=True):
    level: LogLevel | None = None
    color: bool | None = None


class ConfigPatch(Message, frozen=True):
    log: LogPatch | None = None


class FieldMask(Message, frozen=True):
    paths: Sequence[str] = ()


class PatchConfig(Message, frozen=True):
    """`field_mask`: what of `config` is meant; all that is in it where nothing is named."""

    config: ConfigPatch | None = None
    field_mask: FieldMask | None = None


class GetLogs(Message, frozen=True):
    """`offset`: how many to leave out, counted from the newest where it is negative. `limit`: 0 for all."""

    offset: Count = 0
    limit: Count = 0
    follow: bool = False


class LogEntry(Message, frozen=True):
    id: int
    message: str
    timestamp: str
    level: LogLevel


class LogsReply(Message, frozen=True):
    log_entry: LogEntry


class SetClusterMessage(Message, frozen=True):
    message: str = ""
    start_time: str | None = None
    end_time: str | None = None
    duration: str | None = None


class ClusterMessageReply(Message, frozen=True):
    cluster_message: ClusterMessage | None


class _Master:
    def __init__(self, about: About, facts: ClusterFacts, live: Live, log: LogRing) -> None:
        self._about = about
        self._facts = facts
        self._live = live
        self._log = log

    async def info(self, call: Call, asked: Nothing) -> Info:
        about = self._about
        return Info(
            cluster_id=about.cluster,
            master_id=about.master,
            version=SPOKEN_VERSION,
            muster_version=about.version,
            sso_providers=[
                InfoProvider(name=each.name, sso_url=each.sso_url, type=each.type, always_redirect=each.always_redirect)
                for each in about.providers
            ],
        )

    async def health(self, call: Call, asked: Nothing) -> Health:
        """For probes: an answer is good news, and without the database there is none."""
        await self._facts.check()
        return Health()

    async def get(self, call: Call, asked: Nothing) -> GetMasterReply:
        return GetMasterReply(
            version=SPOKEN_VERSION,
            master_id=self._about.master,
            cluster_id=self._about.cluster,
            cluster_name=self._about.cluster_name,
            cluster_message=_told(await self._facts.shown()),
            sso_providers=self._about.providers,
        )

    async def config(self, call: Call, asked: Nothing) -> GetConfigReply:
        return GetConfigReply(config=self._live.shown())

    async def patch_config(self, call: Call, asked: PatchConfig) -> Nothing:
        log = (asked.config and asked.config.log) or LogPatch()
        wanted = frozenset(asked.field_mask.paths) if asked.field_mask else frozenset({"log"})
        unknown = sorted(wanted - {"log", "log.level", "log.color"})
        if unknown:
            raise errors.BadRequest(
                f"fieldMask: {', '.join(unknown)} cannot be changed while the server runs; log.level and log.color can"
            )
        level = log.level if wanted & {"log", "log.level"} else None
        color = log.color if wanted & {"log", "log.color"} else None
        if level is LogLevel.UNSPECIFIED:
            raise errors.BadRequest("config.log.level: name a level, such as LOG_LEVEL_INFO")
        self._live.set_log(_LEVELS[level] if level else None, color)
        return Nothing()

    async def logs(self, call: Call, asked: GetLogs) -> AsyncIterator[LogsReply]:
        lines = self._log.lines()
        last = lines[-1].id if lines else 0
        chosen = lines[asked.offset :]
        left = asked.limit if asked.limit > 0 else None
        for line in chosen[:left]:
            yield _line(line)
        if not asked.follow or (left is not None and len(chosen) >= left):
            return
        left = None if left is None else left - len(chosen)
        async with aclosing(self._log.follow(last)) as following:
            async for news in following:
                for line in news[:left]:
                    yield _line(line)
                if left is not None:
                    left -= len(news)
                    if left <= 0:
                        return

    async def message(self, call: Call, asked: Nothing) -> ClusterMessageReply:
        return ClusterMessageReply(cluster_message=_told(await self._facts.message()))

    async def set_message(self, call: Call, asked: SetClusterMessage) -> Nothing:
        if not asked.message.strip():
            raise errors.BadRequest("message: required")
        if len(asked.message) > _LONGEST_MESSAGE:
            raise errors.BadRequest(f"message: must not be longer than {_LONGEST_MESSAGE} characters")
        if asked.end_time and asked.duration:
            raise errors.BadRequest("duration: not together with endTime")
        if not asked.start_time:
            raise errors.BadRequest("startTime: required")
        starts = _instant("startTime", asked.start_time)
        ends = _instant("endTime", asked.end_time) if asked.end_time else None
        if asked.duration:
            ends = Instant(starts + _seconds(asked.duration))
        if ends is not None and ends <= starts:
            raise errors.BadRequest("endTime: must be after startTime")
        await self._facts.set_message(acting.by(call), asked.message, starts, ends)
        return Nothing()

    async def clear_message(self, call: Call, asked: Nothing) -> Nothing:
        await self._facts.clear_message(acting.by(call))
        return Nothing()


_LONGEST_MESSAGE: Final = 250
_LONG_UNITS: Final = re.compile(r"(?:(\d{1,6})w)?(?:(\d{1,6})d)?(.*)", re.DOTALL)


def _seconds(text: str) -> float:
    """As Go writes durations, and with days and weeks before."""
    match = _LONG_UNITS.fullmatch(text)
    weeks, days, rest = match.groups() if match else (None, None, text)
    whole = int(weeks or 0) * 7 + int(days or 0)
    try:
        found = whole * 86_400.0 + (durations.parse(rest) if rest or not whole else 0.0)
    except durations.BadDuration as error:
        raise errors.BadRequest(f"duration: {error}") from error
    if found <= 0:
        raise errors.BadRequest(f"duration: must be longer than nothing, found {text!r}")
    return found


def _instant(name: str, text: str) -> Instant:
    try:
        return timestamps.parse(text)
    except BadTimestamp as error:
        raise errors.BadRequest(f"{name}: {error}") from error


def _told(message: Told | None) -> ClusterMessage | None:
    if message is None:
        return None
    return ClusterMessage(
        message=message.text,
        start_time=timestamps.to_micro_text(message.starts),
        end_time=acting.time(message.ends),
        created_time=timestamps.to_micro_text(message.created),
    )


def _line(line: LogLine) -> LogsReply:
    level = next((level for number, level in _BY_NUMBER if line.level >= number), LogLevel.TRACE)
    entry = LogEntry(id=line.id, message=line.message, timestamp=timestamps.to_micro_text(line.at), level=level)
    return LogsReply(log_entry=entry)


def routes(about: About, facts: ClusterFacts, live: Live, log: LogRing) -> Sequence[Route]:
    master, here = _Master(about, facts, live, log), "/api/v1/master"
    config, shown = f"{here}/config", f"{here}/cluster_message"
    nothing: Rule[Nothing] = Rule(Permission.ADMINISTRATE_CLUSTER)
    logs: Rule[GetLogs] = Rule(Permission.ADMINISTRATE_CLUSTER)
    patch: Rule[PatchConfig] = Rule(Permission.ADMINISTRATE_CLUSTER)
    message: Rule[SetClusterMessage] = Rule(Permission.ADMINISTRATE_CLUSTER)
    return (
        route("GET", "/info", Nothing, Info, public(), master.info),
        route("GET", "/health", Nothing, Health, public(), master.health),
        route("GET", here, Nothing, GetMasterReply, public(), master.get),
        route("GET", config, Nothing, GetConfigReply, nothing, master.config),
        route("PATCH", config, PatchConfig, Nothing, patch, master.patch_config),
        stream(f"{here}/logs", GetLogs, LogsReply, logs, master.logs),
        route("GET", shown, Nothing, ClusterMessageReply, known(), master.message),
        route("PUT", shown, SetClusterMessage, Nothing, message, master.set_message),
        route("DELETE", shown, Nothing, Nothing, nothing, master.clear_message),
    )
