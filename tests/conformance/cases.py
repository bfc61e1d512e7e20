"""Cases of other systems' own test tables, read as data, and what an adapter says of one.

The folder is `$MUSTER_CONFORMANCE`, else `shared/conformance` beside the checkout; neither is part of the
project, and a user's clone has neither. An adapter knows suites and fields, never a case by its name.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

Case: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Passed:
    pass


@dataclass(frozen=True, slots=True)
class Failed:
    why: str


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """`why` stands, word for word, in docs/conformance.md: a reason that a maintainer of that system would accept."""

    why: str


Outcome: TypeAlias = Passed | Failed | NotApplicable
Adapter: TypeAlias = Callable[[Case], Outcome]
Adapters: TypeAlias = Mapping[str, Adapter]
"""By suite: the name of the file without `.jsonl`."""


def folder() -> Path:
    chosen = os.environ.get("MUSTER_CONFORMANCE")
    return Path(chosen) if chosen else Path(__file__).parents[3] / "shared" / "conformance"


def suites(system: str) -> list[str]:
    return sorted(path.stem for path in (folder() / system).glob("*.jsonl"))


def lines(system: str, suite: str) -> Iterator[tuple[int, str]]:
    """Each case of the suite with the number of its line, not yet decoded."""
    with (folder() / system / f"{suite}.jsonl").open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line


def compare(what: str, found: object, wanted: object) -> Failed | None:
    """None where they are equal: `return compare(...) or compare(...) or Passed()`."""
    return None if found == wanted else Failed(f"{what}: found {found!r}, wanted {wanted!r}")


def title(case: Case) -> str:
    """What the case calls itself; empty where it does not."""
    return str(case.get("goTestName") or case.get("name") or "")
