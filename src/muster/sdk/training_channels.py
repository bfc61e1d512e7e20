"""Where what training code says goes to: a server, or, outside of a platform, the terminal."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from muster.api.raw import JSON
from muster.sdk import training_calls
from muster.sdk.determined import Determined
from muster.sdk.training_checkpoints import PATIENCE_SECONDS, Checkpoints
from muster.sdk.training_facts import Facts
from muster.sdk.training_reports import Report, Reporter
from muster.sdk.training_signals import StopSignal

USER_STOP: Final = "EXITED_REASON_USER_REQUESTED_STOP"
INVALID_HPARAMS: Final = "EXITED_REASON_INVALID_HP"
_HURRIED_SECONDS: Final = 30.0
"""For what a run that has failed still has to say."""


class Channel(Protocol):
    """Everything raises ApiError."""

    def report(self, report: Report) -> None: ...
    def progress(self, share: float) -> None: ...

    def flush(self) -> None:
        """Returns when all that was reported has arrived."""
        ...

    def should_stop(self) -> bool: ...
    def give_up(self, reason: str) -> None: ...
    def saving(self, step: int, metadata: Mapping[str, JSON]) -> contextlib.AbstractContextManager[Path]: ...
    def latest_checkpoint(self) -> Path | None: ...
    def close(self, *, has_failed: bool) -> None: ...


class ServerChannel:
    """A trial's. `speaks`: whether this process is the one that speaks for all. `scratch`: as of `Checkpoints`."""

    def __init__(self, server: Determined, facts: Facts, scratch: Path, *, speaks: bool) -> None:
        self._server = server
        self._facts = facts
        self._reporter = Reporter(server, facts.trial, facts.run)
        self._checkpoints = Checkpoints(server, facts, scratch)
        self._signal = StopSignal(server, facts.allocation, speaks=speaks) if facts.allocation else None

    def report(self, report: Report) -> None:
        self._reporter.put(report)

    def progress(self, share: float) -> None:
        self._reporter.progress(share)

    def flush(self) -> None:
        self._reporter.flush(PATIENCE_SECONDS)

    def should_stop(self) -> bool:
        if self._signal is None or not self._signal.has_come():
            return False
        self._signal.acknowledge()
        return True

    def give_up(self, reason: str) -> None:
        path = f"/trials/{self._facts.trial}/early_exit"
        training_calls.insist(
            lambda: self._server.send("POST", path, {"reason": reason}), "giving up", PATIENCE_SECONDS
        )

    @contextlib.contextmanager
    def saving(self, step: int, metadata: Mapping[str, JSON]) -> Iterator[Path]:
        with self._checkpoints.saving(step, metadata) as directory:
            yield directory
            # First: a run that goes on from the checkpoint does not report again what came before it.
            self.flush()

    def latest_checkpoint(self) -> Path | None:
        return self._checkpoints.latest()

    def close(self, *, has_failed: bool) -> None:
        try:
            self._reporter.close(_HURRIED_SECONDS if has_failed else PATIENCE_SECONDS)
        finally:
            if self._signal is not None:
                self._signal.close()


class DryRun:
    """Nobody listens. `say` prints what would have been told."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._room = Path(tempfile.mkdtemp(prefix="muster-dry-run-"))
        self._latest: Path | None = None

    def report(self, report: Report) -> None:
        values = "  ".join(f"{name}={_short(value)}" for name, value in report.metrics.items())
        self._say(f"step {report.step}  {report.group}  {values}")

    def progress(self, share: float) -> None:
        self._say(f"progress {share:.0%}")

    def flush(self) -> None:
        return

    def should_stop(self) -> bool:
        return False

    def give_up(self, reason: str) -> None:
        self._say("gives up: its hyperparameters are invalid" if reason == INVALID_HPARAMS else "stops early")

    @contextlib.contextmanager
    def saving(self, step: int, metadata: Mapping[str, JSON]) -> Iterator[Path]:  # noqa: ARG002
        directory = Path(tempfile.mkdtemp(dir=self._room))
        yield directory
        files = [path for path in directory.rglob("*") if path.is_file()]
        self._say(f"step {step}  checkpoint of {len(files)} files, {sum(path.stat().st_size for path in files)} bytes")
        if self._latest is not None:
            shutil.rmtree(self._latest)
        self._latest = directory

    def latest_checkpoint(self) -> Path | None:
        return self._latest

    def close(self, *, has_failed: bool) -> None:  # noqa: ARG002
        shutil.rmtree(self._room, ignore_errors=True)


def _short(value: JSON) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
