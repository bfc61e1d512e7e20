"""Traces from CSV: one job a line, with a header that names the columns, in any order.

| column | what |
| --- | --- |
| `timestamp` | when it was submitted: seconds since 1970, or a date and time; without a zone it is UTC |
| `duration` | seconds that it ran |
| `num_gpus` | how many GPUs it had, 1 or more |
| `cluster` | the queue it was submitted to; all are in one queue where there is no such column |

Other columns are ignored. Lines need not be sorted. Whatever is wrong is told with its line and column.
"""

import csv
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from muster.api import errors
from muster.sim.traces.jobs import Job, Trace

ARRIVES: Final = "timestamp"
SECONDS: Final = "duration"
GPUS: Final = "num_gpus"
QUEUE: Final = "cluster"
ONLY_QUEUE: Final = "all"
MOST_GPUS: Final = 1_000_000
_REQUIRED: Final = (ARRIVES, SECONDS, GPUS)


def read(path: Path, most: int | None = None) -> Trace:
    """`most`: how many jobs, the earliest; None for all. Raises BadRequest."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            return parse(lines, str(path), most)
    except OSError as error:
        raise errors.BadRequest(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise errors.BadRequest(f"{path} is not UTF-8 text: {error.reason}") from error


def parse(lines: Iterable[str], name: str = "trace", most: int | None = None) -> Trace:
    """`name`: of the file, for errors. Raises BadRequest."""
    table = csv.DictReader(lines)
    try:
        _check_header(table.fieldnames or (), name)
        rows = [_job(row, f"{name}, line {table.line_num}") for row in table]
    except csv.Error as error:
        raise errors.BadRequest(f"{name}, line {table.line_num}: {error}") from error
    if not rows:
        raise errors.BadRequest(f"{name}: there are no jobs in it")
    # Sorting is stable: what comes in the same instant comes in the order of the file.
    rows.sort(key=lambda row: row[0])
    return Trace([Job(number, *row) for number, row in enumerate(rows[:most])])


def _check_header(columns: Iterable[str], name: str) -> None:
    missing = [column for column in _REQUIRED if column not in columns]
    if missing:
        raise errors.BadRequest(
            f"{name}, line 1: there is no column {', '.join(missing)};"
            f" expected {', '.join(_REQUIRED)} and, for queues, {QUEUE}"
        )


def _job(row: Mapping[str, str | None], where: str) -> tuple[float, float, int, str]:
    if None in row:  # the reader's key for what goes beyond the header
        raise errors.BadRequest(f"{where}: there are more fields than the header has columns")
    return (
        _instant(_field(row, ARRIVES, where), where),
        _seconds(_field(row, SECONDS, where), where),
        _gpus(_field(row, GPUS, where), where),
        _field(row, QUEUE, where) if QUEUE in row else ONLY_QUEUE,
    )


def _field(row: Mapping[str, str | None], column: str, where: str) -> str:
    text = (row[column] or "").strip()
    if not text:
        raise errors.BadRequest(f"{where}, column {column}: there is nothing")
    return text


def _instant(text: str, where: str) -> float:
    number = _number(text)
    if number is not None:
        return number
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise _bad(where, ARRIVES, text, "a date and time, or seconds since 1970") from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def _seconds(text: str, where: str) -> float:
    number = _number(text)
    if number is None or number < 0:
        raise _bad(where, SECONDS, text, "a number of seconds")
    return number


def _gpus(text: str, where: str) -> int:
    number = _number(text)
    if number is None or not number.is_integer() or not 1 <= number <= MOST_GPUS:
        raise _bad(where, GPUS, text, f"a whole number from 1 to {MOST_GPUS}")
    return int(number)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _bad(where: str, column: str, text: str, expected: str) -> errors.BadRequest:
    return errors.BadRequest(f"{where}, column {column}: {text[:80]!r} is not {expected}")
