"""Lines that tasks write: what is known of one, how it is shown, and how many of them are packed for keeping."""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from hashlib import blake2b
from typing import Final

import msgspec

from muster.api import errors

MOST_LINES: Final = 1000
"""In one chunk."""
LONGEST: Final = 256 * 1024
"""Characters of a line; what is longer is cut, and says so."""
_MOST_CHARACTERS: Final = 1024 * 1024
_SHOWN_OF_CONTAINER: Final = 8
_PACKED_FROM_BYTES: Final = 512
_PLAIN, _ZLIB = b"\x00", b"\x01"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Level(IntEnum):
    UNSPECIFIED = 0
    TRACE = 1
    DEBUG = 2
    INFO = 3
    WARNING = 4
    ERROR = 5
    CRITICAL = 6


_HEADS: Final = tuple("|| " if level is Level.UNSPECIFIED else f"|| {level.name}: " for level in Level)


class Line(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`at`: microseconds since 1970. `rank`: None where the sender did not say."""

    at: int
    text: str
    level: int = Level.UNSPECIFIED
    rank: int | None = None
    stdtype: str = ""

    @property
    def bare(self) -> str:
        """Without its end: what a pattern's `$` means by the end of a line."""
        return self.text.removesuffix("\n")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where lines come from. `source`: what kind of thing wrote them, as `task`, `agent`, `master`."""

    allocation: str = ""
    container: str = ""
    agent: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines of one origin. `is_timed`: their sender gave each its time, so that the same piece, when it comes again,
    can only be the same lines."""

    origin: Origin
    lines: Sequence[Line]
    is_timed: bool = True


@dataclass(frozen=True, slots=True)
class Stored:
    """A line with the number under which it is kept: growing, never given twice."""

    id: int
    task: str
    origin: Origin
    line: Line


@dataclass(frozen=True, slots=True)
class Chunk:
    """Ready to be kept."""

    task: str
    origin: Origin
    digest: bytes | None
    ranks: str
    stdtypes: str
    levels: int
    """One bit for each level that is in it."""
    oldest: int
    newest: int
    lines: int
    body: bytes


def shown(origin: Origin, line: Line) -> str:
    """As people read it: when, where, which rank, how grave, what; with its newline."""
    text = line.text if line.text.endswith("\n") else f"{line.text}\n"
    container = f"{origin.container[:_SHOWN_OF_CONTAINER]} " if origin.container else ""
    rank = "" if line.rank is None else f"[rank={line.rank}] "
    return f"[{time_text(line.at)}] {container}{rank}{_HEADS[line.level]}{text}"


def time_text(at: int) -> str:
    return f"{(_EPOCH + timedelta(microseconds=at)).isoformat(timespec='microseconds')[:-6]}Z"


def micros(text: str) -> int:
    """Raises ValueError. Without a zone it is UTC."""
    found = datetime.fromisoformat(text)
    try:
        return ((found if found.tzinfo else found.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
    except OverflowError as error:
        raise ValueError(f"{text!r} is out of range") from error


def level_of(name: str) -> Level:
    """`LOG_LEVEL_INFO`, or `INFO`. Raises ValueError."""
    bare = name.upper().removeprefix("LOG_LEVEL_")
    if bare not in Level.__members__:
        raise ValueError(f"expected one of {', '.join(Level.__members__)}, found {name[:40]!r}")
    return Level[bare]


def cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]} [{len(text) - LONGEST} more characters were cut]\n"


def chunks(task: str, piece: Piece) -> Iterator[Chunk]:
    for lines in _slices(piece.lines):
        plain = _ENCODER.encode(lines)
        digest = _digest(task, piece.origin, plain) if piece.is_timed else None
        levels = 0
        for level in {line.level for line in lines}:
            levels |= 1 << level
        yield Chunk(
            task,
            piece.origin,
            digest,
            ",".join(sorted({"" if line.rank is None else str(line.rank) for line in lines})),
            ",".join(sorted({line.stdtype for line in lines})),
            levels,
            min(line.at for line in lines),
            max(line.at for line in lines),
            len(lines),
            _ZLIB + zlib.compress(plain, 1) if len(plain) >= _PACKED_FROM_BYTES else _PLAIN + plain,
        )


def unpacked(body: bytes) -> list[Line]:
    return _DECODER.decode(zlib.decompress(body[1:]) if body[:1] == _ZLIB else body[1:])


def _slices(lines: Iterable[Line]) -> Iterator[list[Line]]:
    collected: list[Line] = []
    characters = 0
    for line in lines:
        collected.append(line)
        characters += len(line.text)
        if len(collected) == MOST_LINES or characters >= _MOST_CHARACTERS:
            yield collected
            collected, characters = [], 0
    if collected:
        yield collected


def _digest(task: str, origin: Origin, plain: bytes) -> bytes:
    where = _ENCODER.encode((task, origin.allocation, origin.container, origin.agent, origin.source))
    return blake2b(plain, digest_size=16, key=blake2b(where, digest_size=32).digest()).digest()


def checked_name(field: str, name: str) -> str:
    """What is kept beside lines, to be filtered by. Raises BadRequest."""
    if len(name) > 254 or "\x00" in name:
        raise errors.BadRequest(f"{field}: at most 254 characters, none of them NUL; found {name[:40]!r}")
    return name


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(list[Line])
