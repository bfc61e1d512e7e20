"""What a search is told and what it wants: events in, actions out.

Small, frozen and serialisable. The same seed and the same events give the same actions, also when the search was put
away with `snapshot` and taken up again at any point. Late and repeated events are normal, and change nothing.
"""

from enum import StrEnum
from typing import NewType, Protocol, TypeAlias

import msgspec

from muster.api.raw import Document

RequestId = NewType("RequestId", str)
"""Of a trial, unique in its search: a UUID that follows from the seed."""


class ExitReason(StrEnum):
    """Why a trial ended otherwise than by training to its end."""

    ERRORED = "ERRORED"
    INVALID_HP = "INVALID_HP"
    USER_CANCELED = "USER_CANCELED"
    USER_REQUESTED_STOP = "USER_REQUESTED_STOP"


class TrialCreated(msgspec.Struct, frozen=True, tag=True, gc=False):
    request_id: RequestId


class ValidationReported(msgspec.Struct, frozen=True, tag=True, gc=False):
    request_id: RequestId
    metric: float
    """The searcher's metric, as it was reported."""
    length: float
    """How long the trial has trained: the value of `time_metric`, or the steps where none is named."""


class TrialProgress(msgspec.Struct, frozen=True, tag=True, gc=False):
    request_id: RequestId
    progress: float
    """From 0 to 1, by the trial's own account."""


class TrialExited(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Comes before `TrialClosed`. A trial that trained to its end, or that was told to stop, only closes."""

    request_id: RequestId
    reason: ExitReason


class TrialClosed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Nothing of the trial runs any more, nor will."""

    request_id: RequestId


class BudgetSpent(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The search has cost what it may: it makes no more trials, and stops those that run."""


Event: TypeAlias = TrialCreated | ValidationReported | TrialProgress | TrialExited | TrialClosed | BudgetSpent


class Create(msgspec.Struct, frozen=True, tag=True, gc=False):
    request_id: RequestId
    hparams: Document
    seed: int
    """Of the trial itself; from 0 to 2**31 - 1."""


class Stop(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The trial has trained for long enough: it is to be asked to stop. It still closes."""

    request_id: RequestId


class Shutdown(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The last action: every trial is closed, and none will be made."""

    is_failure: bool = False
    is_cancel: bool = False


Action: TypeAlias = Create | Stop | Shutdown


class Searcher(Protocol):
    def start(self) -> list[Action]:
        """The first trials."""
        ...

    def step(self, event: Event) -> list[Action]: ...

    def progress(self) -> float:
        """From 0 to 1."""
        ...

    def snapshot(self) -> bytes:
        """For `registry.restored`."""
        ...
