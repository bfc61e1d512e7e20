"""Cases of other systems' own test tables, read as data, and what an adapter says of one.

The folder is `$MUSTER_CONFORMANCE`, else `shared/conformance` beside the checkout; neither is part of the
project, and a user's clone has neither. An adapter knows suites and fields, never a case by its name.
"""

import json
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


def read(system: str, suite: str) -> Iterator[Case]:
    with (folder() / system / f"{suite}.jsonl").open() as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def compare(what: str, found: object, wanted: object) -> Failed | None:
    """None where they are equal: `return compare(...) or compare(...) or Passed()`."""
    return None if found == wanted else Failed(f"{what}: found {found!r}, wanted {wanted!r}")


def run(adapter: Adapter, case: Case) -> Outcome:
    """An adapter that raises has failed the case: what the engine raises on valid input is a bug of ours."""
    try:
        return adapter(case)
    except Exception as error:
        return Failed(f"{type(error).__name__}: {error}")


def title(case: Case) -> str:
    return str(case.get("goTestName") or case.get("name") or case.get("case") or "?")
