"""A journal in memory that can fail, and whose end can be torn off: the disk of a simulated server.

It is a log of encoded commits. Whoever wants to know what became true listens to it: nothing is true that is not on it.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeAlias

import msgspec

from muster.api import errors
from muster.api.objects import Key
from muster.store.journal import Journal, Row

Tear: TypeAlias = Literal["kept", "lost", "torn"]
"""What a crash makes of the commit that is under way: it is there though nobody was told, or not, or in part."""


class Commit(msgspec.Struct, frozen=True, array_like=True, gc=False):
    revision: int
    rows: tuple[Row, ...]


MOST_RECORDS = 50_000
"""Then one takes the place of all: months would fill memory."""
Listener: TypeAlias = Callable[[Commit], None]

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Commit)


class Tape:
    def __init__(self, listener: Listener) -> None:
        self.records: list[bytes] = []
        self.is_full = False
        """Commits fail, and nothing of them is kept."""
        self._listener = listener
        self._hash = hashlib.sha256()
        self._fate: Tear | None = None

    is_slow = False

    def load(self) -> tuple[int, Iterable[Row]]:
        """Forgets a last record that is not whole, as any journal must."""
        self._fate = None
        if self.records and not _is_whole(self.records[-1]):
            self.records.pop()
        found = _summed(self.records)
        return found.revision, found.rows

    def commit(self, rows: Sequence[Row], revision: int) -> None:
        commit = Commit(revision, tuple(rows))
        if self._fate is not None:
            self._end(commit)
        if self.is_full:
            raise errors.Unavailable("the simulated disk is full")
        self._keep(commit)

    def crash(self, fate: Tear) -> None:
        """Whoever writes from now on is dead: the first commit has this fate, no other is taken."""
        self._fate = fate

    def close(self) -> None:
        """Nothing to do."""

    def digest(self) -> str:
        """Of all that ever became true, in order: equal for equal runs."""
        return self._hash.hexdigest()[:16]

    def _keep(self, commit: Commit) -> None:
        record = _encoder.encode(commit)
        if len(self.records) == MOST_RECORDS:
            self.records = [_encoder.encode(_summed(self.records))]
        self.records.append(record)
        self._hash.update(record)
        self._listener(commit)

    def _end(self, commit: Commit) -> None:
        fate, self._fate = self._fate, "lost"
        if fate == "kept":
            self._keep(commit)
        elif fate == "torn":
            record = _encoder.encode(commit)
            self.records.append(record[: len(record) // 2])
        raise errors.Unavailable("the simulated server has crashed")


def _summed(records: Iterable[bytes]) -> Commit:
    """What all of them together come to."""
    latest: dict[tuple[str, Key], Row] = {}
    revision = 0
    for commit in commits_of(records):
        revision = commit.revision
        latest |= {(row.resource, row.key): row for row in commit.rows}
    return Commit(revision, tuple(row for row in latest.values() if row.data is not None))


def commits_of(records: Iterable[bytes]) -> Iterable[Commit]:
    return map(_decoder.decode, records)


def _is_whole(record: bytes) -> bool:
    try:
        _decoder.decode(record)
    except msgspec.MsgspecError:
        return False
    return True


def _conforms(tape: Tape) -> Journal:
    return tape
