"""Reading the logs of a container: the files that keepers write, across rotation, while they are written.

A record is one line of a file in CRI form, with a head of fixed width:
`2026-01-02T03:04:05.123456789Z stdout F text`. F ends a line of output; P is a piece of one that goes on (or the
end of output that had no newline). Readers take no locks: a file is renamed but never rewritten, so an open one stays
right.
"""

import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from muster.api import errors
from muster.api.errors import FieldError
from muster.api.meta import Instant
from muster.runtime.clock import Clock

_STAMP_BYTES = 30
_TAG_AT = 38
_TEXT_AT = 40
_BLOCK_BYTES = 256 * 1024
# Quick at first, so that the first lines and the end of a short run are seen at once; then calm.
_PAUSES = (0.005, 0.01, 0.02, 0.05)


@dataclass(frozen=True, slots=True)
class LogOptions:
    follow: bool = False
    tail: int | None = None
    since: Instant | None = None
    timestamps: bool = False
    previous: bool = False
    limit_bytes: int | None = None


def parse_query(query: Mapping[str, str], now: Instant) -> LogOptions:
    """Options from the query of a log request, as kubectl spells them. Raises Invalid with all mistakes."""
    problems: list[FieldError] = []

    def flag(name: str) -> bool:
        text = query.get(name, "false").lower()
        if text not in ("true", "false", "1", "0", ""):
            problems.append(FieldError(name, "FieldValueInvalid", f'"{text}" is not true or false'))
        return text in ("true", "1", "")

    def number(name: str, least: int) -> int | None:
        text = query.get(name, "")
        if not text:
            return None
        if not text.lstrip("-").isdecimal() or len(text) > 18:
            problems.append(FieldError(name, "FieldValueInvalid", f'"{text[:40]}" is not a whole number'))
            return None
        if int(text) < least:
            problems.append(FieldError(name, "FieldValueInvalid", f"{text}: must be greater than or equal to {least}"))
        return int(text)

    # kubectl sends tailLines=-1 to mean all.
    tail = None if query.get("tailLines") == "-1" else number("tailLines", 0)
    options = LogOptions(
        follow=flag("follow"),
        tail=tail,
        since=_parse_since(query, number("sinceSeconds", 1), now, problems),
        timestamps=flag("timestamps"),
        previous=flag("previous"),
        limit_bytes=number("limitBytes", 1),
    )
    if problems:
        raise errors.invalid("PodLogOptions", "", problems)
    return options


def _parse_since(
    query: Mapping[str, str], seconds: int | None, now: Instant, problems: list[FieldError]
) -> Instant | None:
    text = query.get("sinceTime", "")
    if not text:
        return None if seconds is None else Instant(now - seconds)
    if seconds is not None:
        problems.append(
            FieldError("sinceTime", "FieldValueForbidden", "at most one of sinceTime or sinceSeconds may be given")
        )
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        problems.append(FieldError("sinceTime", "FieldValueInvalid", f'"{text[:40]}" is not a time as in RFC 3339'))
        return None
    return Instant((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())


def attempts(directory: Path) -> list[int]:
    """Numbers of the attempts that have a log in this container's directory, in order."""
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    return sorted(int(name[:-4]) for name in names if name.endswith(".log") and name[:-4].isdecimal())


def read(directory: Path, container: str, options: LogOptions, clock: Clock) -> AsyncIterator[bytes]:
    """Output of a container's last attempt, or the one before it, below the pod's own directory. Raises BadRequest."""
    home = directory / "containers" / container
    found = attempts(home)
    if not found:
        raise errors.BadRequest(f'container "{container}" is waiting to start: it has written no log yet')
    if options.previous:
        if len(found) < 2:
            raise errors.BadRequest(f'previous terminated container "{container}" not found')
        return read_attempt(home, found[-2], options, clock)
    return read_attempt(home, found[-1], options, clock)


async def read_attempt(directory: Path, number: int, options: LogOptions, clock: Clock) -> AsyncIterator[bytes]:
    """Output of one attempt; with `follow`, until it has ended and all of it was given out."""
    path = directory / f"{number}.log"
    formatter = _Formatter(options)
    reader = _Reader(path)
    try:
        reader.start(options)
        if options.follow:
            yield b""  # it is there: a reader need not wait for the first line to know
        pause = 0
        while True:
            # Looked at before reading: what is written before the end mark is read after it was seen.
            is_last = not options.follow or _has_ended(directory, number)
            got_any = False
            while block := reader.read():
                got_any = True
                if text := formatter.feed(block):
                    yield text
                if formatter.is_full:
                    return
            if is_last:
                return
            pause = 0 if got_any else min(pause + 1, len(_PAUSES) - 1)
            await clock.sleep(_PAUSES[pause])
    finally:
        reader.close()


def _has_ended(directory: Path, number: int) -> bool:
    """Whether nobody will write more: the attempt is over, or the pod is gone and its directory with it."""
    return (directory / f"{number}.exit.json").exists() or not directory.exists()


class _Reader:
    """Whole records from all files of one log, oldest first, and from those that come after."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: list[int] = []  # open descriptors, the one being read first
        self._rest = b""

    def start(self, options: LogOptions) -> None:
        self._files = list(reversed(self._open_newer_than(None)))
        if options.since is not None:
            # A rotated file that was last written before then cannot hold what is asked for.
            while len(self._files) > 1 and os.fstat(self._files[0]).st_mtime < options.since:
                os.close(self._files.pop(0))
        if options.tail is not None:
            self._seek_tail(options.tail)

    def _open_newer_than(self, inode: int | None) -> list[int]:
        """Open files, newest first, down to and without `inode`. In this order a rotation that happens meanwhile shows
        a file twice but never hides one."""
        opened: list[int] = []
        seen: set[int] = set()
        number = 0
        while True:
            try:
                fd = os.open(f"{self._path}.{number}" if number else self._path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                if number == 0:
                    # Between the two renames of a rotation there is no newest file; the older ones are there.
                    number += 1
                    continue
                return opened
            number += 1
            found = os.fstat(fd).st_ino
            if found == inode or found in seen:
                os.close(fd)
                if found == inode:
                    return opened
                continue
            seen.add(found)
            opened.append(fd)

    def _seek_tail(self, lines: int) -> None:
        """Move to where the last `lines` lines begin, dropping files before it."""
        ends = 0
        is_newest = True
        for index in range(len(self._files) - 1, -1, -1):
            for end, tag in _records_backwards(self._files[index]):
                if is_newest or tag == b"F":
                    ends += 1
                is_newest = False
                if ends > lines:
                    os.lseek(self._files[index], end, os.SEEK_SET)
                    for fd in self._files[:index]:
                        os.close(fd)
                    del self._files[:index]
                    return

    def read(self) -> bytes:
        """Some whole records; empty when there are no more for now."""
        while True:
            if not self._files:
                self._files = list(reversed(self._open_newer_than(None)))
                if not self._files:
                    return b""
            data = os.read(self._files[0], _BLOCK_BYTES)
            if data:
                whole, newline, self._rest = (self._rest + data).rpartition(b"\n")
                if whole:
                    return whole + newline
                continue
            if len(self._files) == 1:
                newer = self._open_newer_than(os.fstat(self._files[0]).st_ino)
                # Read the old file once more: its last records may have come before it was rotated and after our read.
                if newer and (late := os.read(self._files[0], _BLOCK_BYTES)):
                    for fd in newer:
                        os.close(fd)
                    self._rest += late
                    continue
                self._files.extend(reversed(newer))
            if len(self._files) == 1:
                return b""
            os.close(self._files.pop(0))

    def close(self) -> None:
        for fd in self._files:
            os.close(fd)
        self._files = []


def _records_backwards(fd: int) -> Iterator[tuple[int, bytes]]:
    """(offset after the record, its tag), the last record first. Reads only as far back as it is asked."""
    position = os.fstat(fd).st_size
    rest = b""
    while position > 0:
        start = max(0, position - _BLOCK_BYTES)
        data = os.pread(fd, position - start, start) + rest
        lines = data.split(b"\n")
        # The first piece may be the end of a record whose head lies before this block.
        rest = lines.pop(0) + b"\n" if start > 0 else b""
        offset = start + len(data)
        offset -= len(lines.pop()) if lines else 0
        for line in reversed(lines):
            yield offset, line[_TAG_AT : _TAG_AT + 1]
            offset -= len(line) + 1
        position = start


class _Formatter:
    """Turns records into what the reader asked for."""

    def __init__(self, options: LogOptions) -> None:
        self._timestamps = options.timestamps
        self._left = options.limit_bytes
        self._since = b"" if options.since is None else _stamp(options.since)
        self._starts_line = True

    @property
    def is_full(self) -> bool:
        return self._left is not None and self._left <= 0

    def feed(self, records: bytes) -> bytes:
        out: list[bytes] = []
        for record in records.split(b"\n"):
            if len(record) < _TEXT_AT or (self._since and record[:_STAMP_BYTES] < self._since):
                continue
            if self._timestamps and self._starts_line:
                out.append(record[:_STAMP_BYTES] + b" ")
            out.append(record[_TEXT_AT:])
            self._starts_line = record[_TAG_AT : _TAG_AT + 1] == b"F"
            if self._starts_line:
                out.append(b"\n")
        text = b"".join(out)
        if self._left is not None:
            text = text[: self._left]
            self._left -= len(text)
        return text


def _stamp(instant: Instant) -> bytes:
    """As records begin, so that bytes compare as times do."""
    try:
        moment = datetime.fromtimestamp(max(0.0, instant), UTC)
    except (OverflowError, ValueError):
        return b""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f").encode() + b"000Z"


def last_lines(directory: Path, number: int, *, lines: int, limit_bytes: int) -> Sequence[bytes]:
    """The end of an attempt's output, for a termination message."""
    reader = _Reader(directory / f"{number}.log")
    formatter = _Formatter(LogOptions())
    try:
        reader.start(LogOptions(tail=lines))
        text = b""
        while block := reader.read():
            text = (text + formatter.feed(block))[-limit_bytes:]
    finally:
        reader.close()
    return text.splitlines(keepends=True)
