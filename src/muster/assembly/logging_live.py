"""The server's own log, and the settings that may change while it runs."""

import logging
import sys
from collections.abc import Mapping
from typing import Final, TextIO

import msgspec

from muster.api.raw import Document
from muster.runtime.log_ring import LogRing
from muster.settings import reading
from muster.settings.sections import LogLevel, PlatformSettings

_ROOT: Final = "muster"
_LEVELS: Final[Mapping[LogLevel, int]] = {
    LogLevel.TRACE: 5,
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
    LogLevel.CRITICAL: logging.CRITICAL,
}
_COLORS: Final[Mapping[int, str]] = {logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "1;31"}


class Console(logging.Formatter):
    """For people at a terminal. `color` only shows where the stream is one."""

    def __init__(self, stream: TextIO | None = None, *, color: bool = True) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._is_terminal = (stream or sys.stderr).isatty()
        self.color = color

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        code = _COLORS.get(record.levelno, "")
        return f"\x1b[{code}m{text}\x1b[0m" if code and self.color and self._is_terminal else text


class LiveSettings:
    """The one owner of what is set now. What was changed is lost with the process, as with Determined's."""

    def __init__(self, settings: PlatformSettings) -> None:
        self._settings = settings
        self.ring = LogRing()

    def open(self) -> None:
        logging.getLogger(_ROOT).addHandler(self.ring)
        self._apply()

    def close(self) -> None:
        logging.getLogger(_ROOT).removeHandler(self.ring)
        logging.getLogger(_ROOT).setLevel(logging.NOTSET)

    def shown(self) -> Document:
        return reading.shown(self._settings)

    def set_log(self, level: LogLevel | None, color: bool | None) -> None:
        log = self._settings.log
        log = msgspec.structs.replace(log, level=level or log.level, color=log.color if color is None else color)
        self._settings = msgspec.structs.replace(self._settings, log=log)
        self._apply()

    def _apply(self) -> None:
        logging.getLogger(_ROOT).setLevel(_LEVELS[self._settings.log.level])
        for handler in logging.getLogger().handlers:
            if isinstance(handler.formatter, Console):
                handler.formatter.color = self._settings.log.color
