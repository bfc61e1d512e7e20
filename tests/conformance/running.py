"""Runs the adapter of a suite over its cases. Whatever is wrong with a case, its file or its adapter is an outcome."""

import json
from collections.abc import Iterator

from tests.conformance import cases
from tests.conformance.adapters import ADAPTERS, WITHOUT
from tests.conformance.cases import Adapter, Case, Failed, NotApplicable, Outcome, Passed
from tests.conformance.reading import Lacking, Recorded, left_out


def outcomes(system: str, suite: str) -> list[tuple[str, Outcome]]:
    """What became of each case of the suite, by its title."""
    found = list(_read(system, suite))
    adapter = ADAPTERS[system].get(suite)
    if adapter is None:
        why = WITHOUT.get(system, {}).get(suite)
        missing = NotApplicable(why) if why else Failed("the suite has no adapter, and no reason why")
        return [(name, case if isinstance(case, Failed) else missing) for name, case in found]
    return _judged(system, adapter, found)


def _read(system: str, suite: str) -> Iterator[tuple[str, Case | Failed]]:
    number = 0
    try:
        for number, line in cases.lines(system, suite):
            yield _decoded(number, line)
    except (OSError, UnicodeError) as error:
        yield f"after line {number}", Failed(f"the file cannot be read: {error}")


def _decoded(number: int, line: str) -> tuple[str, Case | Failed]:
    try:
        case = json.loads(line)
    except ValueError as error:
        return f"line {number}", Failed(f"no JSON: {error}")
    if not isinstance(case, dict):
        return f"line {number}", Failed(f"no case, but {type(case).__name__}")
    return cases.title(case) or f"line {number}", case


def _judged(system: str, adapter: Adapter, found: list[tuple[str, Case | Failed]]) -> list[tuple[str, Outcome]]:
    seen: set[str] = set()
    first = [case if isinstance(case, Failed) else run(adapter, Recorded(case, seen)) for _, case in found]
    return [
        (name, _unless_left_out(case, seen, system) if isinstance(outcome, Passed) else outcome)
        for (name, case), outcome in zip(found, first, strict=True)
    ]


def run(adapter: Adapter, case: Case) -> Outcome:
    """An adapter that raises has failed the case: what the engine raises on valid input is a bug of ours."""
    try:
        return adapter(case)
    except Lacking as error:
        return Failed(str(error))
    except Exception as error:
        return Failed(f"{type(error).__name__}: {error}")


def _unless_left_out(case: Case | Failed, seen: set[str], system: str) -> Outcome:
    ignored = [] if isinstance(case, Failed) else left_out(case, seen, system)
    return Failed(f"passed, but the adapter does not look at {', '.join(ignored)}") if ignored else Passed()
