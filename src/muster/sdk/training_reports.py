"""Reports on their way to the server: taken at once, sent in batches by a thread of their own.

Training never waits for the network, unless so much is on its way that memory would run out. What the server refuses
is raised by the next call, where the user can see it; that it cannot be reached for a while is not.
"""

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from muster.api import errors, timestamps
from muster.api.meta import Instant
from muster.api.raw import JSON, Document
from muster.sdk import training_calls
from muster.sdk.determined import Determined, words

MOST_WAITING: Final = 100_000
_MOST_TOGETHER: Final = 1000
"""As many as the server takes in one request."""
_FAULTY: Final = (errors.BadRequest, errors.Invalid, errors.TooLarge)
"""It is the reports that are wrong, and not that we report."""
_LINGER_SECONDS: Final = 0.2
"""So that a loop of a thousand steps a second is five requests a second, and not a thousand."""


@dataclass(frozen=True, slots=True)
class Report:
    group: str
    step: int
    metrics: Mapping[str, JSON]
    at: Instant


@runtime_checkable
class _Scalar(Protocol):
    """Of numpy, of PyTorch."""

    def item(self) -> float | int | bool: ...


def made(step: object, metrics: Mapping[str, object], group: str, at: float) -> Report:
    """Raises TypeError, ValueError with the name that is wrong."""
    if isinstance(step, _Scalar):
        step = step.item()
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise ValueError(f"step: must be a whole number from 0 on, found {step!r}")
    if not group or "." in group:
        raise ValueError(f"group: must be a name without dots, found {group!r}")
    if not metrics:
        raise ValueError("metrics: there are none")
    return Report(
        group, step, {name: plain(value, f"metrics[{name!r}]") for name, value in metrics.items()}, Instant(at)
    )


def plain(value: object, where: str) -> JSON:
    """As JSON has it. Raises TypeError."""
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return words(value)
    if isinstance(value, Mapping):
        return {str(name): plain(member, f"{where}[{name!r}]") for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain(member, where) for member in value]
    if isinstance(value, _Scalar):
        try:
            return plain(value.item(), where)
        except (RuntimeError, ValueError) as error:  # an array of several
            raise TypeError(f"{where}: must be one number, found {type(value).__name__} of several") from error
    raise TypeError(f"{where}: must be a number, found {type(value).__name__}")


class Reporter:
    """Of one run of a trial. `pause`: seconds before the first further try where the server cannot be reached."""

    def __init__(
        self, server: Determined, trial: int, run: int, *, pause: float = training_calls.FIRST_PAUSE_SECONDS
    ) -> None:
        self._server = server
        self._trial = trial
        self._run = run
        self._pause = pause
        self._changed = threading.Condition()
        self._waiting: deque[Report] = deque()
        self._share: float | None = None
        self._unsent = 0  # waiting, or sent and not answered
        self._is_hurried = False
        self._is_closed = False
        self._error: errors.ApiError | None = None
        self._thread: threading.Thread | None = None

    def put(self, report: Report) -> None:
        """Raises ApiError, of earlier ones."""
        with self._changed:
            self._complain()
            if self._is_closed:
                raise RuntimeError("the run is over: nothing can be reported any more")
            while len(self._waiting) >= MOST_WAITING and self._error is None:
                self._changed.wait()
            self._complain()
            self._waiting.append(report)
            self._grown()

    def progress(self, share: float) -> None:
        """Raises ApiError, of earlier ones."""
        with self._changed:
            self._complain()
            is_new, self._share = self._share is None, share
            self._grown(is_new)

    def flush(self, seconds: float) -> None:
        """Returns when all is with the server. Raises ApiError: of what was refused, Timeout where it takes longer."""
        deadline = time.monotonic() + seconds
        with self._changed:
            self._is_hurried = True
            self._changed.notify_all()
            while self._unsent and self._error is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise errors.Timeout(
                        f"{self._unsent} reports of trial {self._trial} could not be sent within {seconds:g} s"
                    )
                self._changed.wait(left)
            self._is_hurried = False
            self._complain()

    def close(self, seconds: float) -> None:
        """As `flush`; nothing can be reported after it."""
        try:
            self.flush(seconds)
        finally:
            with self._changed:
                self._is_closed = True
                self._changed.notify_all()

    def _grown(self, is_new: bool = True) -> None:
        self._unsent += is_new
        if self._thread is None:
            self._thread = threading.Thread(target=self._send_all, name="muster-reports", daemon=True)
            self._thread.start()
        # Not each time: the thread would wake for every report, only to find that it may wait for more.
        if self._unsent == 1 or len(self._waiting) == _MOST_TOGETHER:
            self._changed.notify_all()

    def _complain(self) -> None:
        """What was refused is told once; that this run is not wanted any more, each time."""
        error = self._error
        if isinstance(error, _FAULTY):
            self._error = None
        if error is not None:
            raise error

    # In the thread

    def _send_all(self) -> None:
        while (taken := self._take()) is not None:
            reports, share = taken
            refused = self._sent(reports)
            if share is not None and not _is_final(refused):
                refused = self._sent_progress(share) or refused
            with self._changed:
                self._unsent -= len(reports) + (share is not None)
                self._error = refused or self._error
                if _is_final(refused):
                    self._waiting.clear()
                    self._share, self._unsent = None, 0
                self._changed.notify_all()

    def _take(self) -> tuple[Sequence[Report], float | None] | None:
        """None at the end."""
        with self._changed:
            while not self._unsent:
                if self._is_closed:
                    return None
                self._changed.wait()
            self._changed.wait_for(self._is_pressed, _LINGER_SECONDS)
            if self._is_closed:
                return None
            reports = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST_TOGETHER))]
            share, self._share = self._share, None
            return reports, share

    def _is_pressed(self) -> bool:
        return self._is_hurried or self._is_closed or len(self._waiting) >= _MOST_TOGETHER

    def _sent(self, reports: Sequence[Report]) -> errors.ApiError | None:
        """What the server says against them."""
        if not reports:
            return None
        body = {"trialId": self._trial, "reports": [self._document(report) for report in reports]}
        refused = self._posted(f"/trials/{self._trial}/metrics/batch", body)
        if len(reports) > 1 and isinstance(refused, _FAULTY):
            # One of them is wrong, or they are too much together: the others shall not be lost for it.
            middle = len(reports) // 2
            first = self._sent(reports[:middle])
            return self._sent(reports[middle:]) or first
        return refused

    def _sent_progress(self, share: float) -> errors.ApiError | None:
        return self._posted(f"/trials/{self._trial}/progress", {"progress": share, "is_raw": True})

    def _posted(self, path: str, body: Document) -> errors.ApiError | None:
        """Tries as long as it takes, or until we are closed."""
        pause = self._pause
        while True:
            try:
                self._server.send("POST", path, body)
                return None
            except errors.ApiError as error:
                if not training_calls.is_passing(error):
                    return error
                training_calls.LOG.warning("reports wait, training goes on: %s", error.message)
                with self._changed:
                    if self._changed.wait_for(lambda: self._is_closed, pause):
                        return error
            pause = min(2 * pause, training_calls.LONGEST_PAUSE_SECONDS)

    def _document(self, report: Report) -> Document:
        return {
            "group": report.group,
            "metrics": {
                "trialId": self._trial,
                "trialRunId": self._run,
                "stepsCompleted": report.step,
                "reportTime": timestamps.to_micro_text(report.at),
                "metrics": {"avgMetrics": report.metrics},
            },
        }


def _is_final(error: errors.ApiError | None) -> bool:
    """Whether there is no use in saying more: the run was followed by another, or the trial is gone."""
    return error is not None and not isinstance(error, _FAULTY)
