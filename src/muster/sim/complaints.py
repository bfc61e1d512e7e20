"""What components say went wrong with themselves: in a simulation that is a finding, unless a fault explains it."""

import logging
from types import TracebackType
from typing import Self

from muster.api.errors import ApiError
from muster.sim.ledger import Violation
from muster.sim.processes import Crashed

_EXPECTED = (Crashed, ApiError, OSError, TimeoutError)
_ROOT = "muster"


class Complaints(logging.Handler):
    """A context: while it lasts, nothing is logged elsewhere."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.first: Violation | None = None
        self._logger = logging.getLogger(_ROOT)
        self._before = (self._logger.level, self._logger.propagate)

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if self.first is None and error is not None and not _is_expected(error):
            self.first = Violation("complaint", f"{record.getMessage()}: {error!r}")

    def __enter__(self) -> Self:
        self._logger.addHandler(self)
        self._logger.setLevel(logging.ERROR)
        self._logger.propagate = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._logger.removeHandler(self)
        self._logger.level, self._logger.propagate = self._before


def _is_expected(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_expected, error.exceptions))
    return isinstance(error, _EXPECTED)
