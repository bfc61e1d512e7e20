"""What happens to the trials of an experiment, kept in order until its search has taken it in.

Whoever writes what happened (a metric, an exit) posts it in the same change, and wakes the experiment after:

    await database.write(lambda connection: (_record(connection, …), inbox.post(connection, experiment, Validated(…))))
    waker.wake(experiment)

Who takes it in writes what it decides in one change with `taken`. So a crash at any point loses and doubles nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec
from sqlalchemy import Connection, delete, insert, select

from muster.experiments.states import ExperimentId, TrialId
from muster.records.tables_experiments import EXPERIMENT_EVENTS


class EarlyExit(StrEnum):
    """A trial says itself that it is not worth going on."""

    INVALID_HP = "EXITED_REASON_INVALID_HP"
    USER_REQUESTED_STOP = "EXITED_REASON_USER_REQUESTED_STOP"


class _Happened(msgspec.Struct, frozen=True, tag=True):
    trial: TrialId


class Validated(_Happened, frozen=True):
    """A new value of the searcher's metric. `length`: how far the training had come, in the unit of the search; NaN
    and infinities are values like others."""

    metric: float
    length: float


class Gave(_Happened, frozen=True):
    """It gave up early, and said why. Its program ends after that."""

    reason: EarlyExit


Happened: TypeAlias = Validated | Gave

_decoder = msgspec.msgpack.Decoder(Happened)


@dataclass(frozen=True, slots=True)
class Entry:
    id: int
    happened: Happened


class Waker(Protocol):
    def wake(self, experiment: ExperimentId) -> None:
        """There is something in its inbox. Of one that does not run: nothing happens."""
        ...


def post(connection: Connection, experiment: ExperimentId, *happened: Happened) -> None:
    if happened:
        rows = [{"experiment_id": experiment, "event": _encoded(event)} for event in happened]
        connection.execute(insert(EXPERIMENT_EVENTS), rows)


def waiting(connection: Connection, experiment: ExperimentId) -> Sequence[Entry]:
    """All that was not taken in, in order."""
    table = EXPERIMENT_EVENTS
    query = select(table.c.id, table.c.event).where(table.c.experiment_id == experiment).order_by(table.c.id)
    return [Entry(row.id, _decoder.decode(row.event)) for row in connection.execute(query)]


def taken(connection: Connection, experiment: ExperimentId, last: int) -> None:
    """Up to this one."""
    table = EXPERIMENT_EVENTS
    connection.execute(delete(table).where(table.c.experiment_id == experiment, table.c.id <= last))


def _encoded(event: Happened) -> bytes:
    return msgspec.msgpack.encode(event)  # JSON has no NaN
