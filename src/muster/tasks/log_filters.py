"""Which lines of a task's log are asked for."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from muster.tasks import patterns
from muster.tasks.log_lines import Level, Line

NO_RANK: Final = -1
"""Asks for lines that have no rank."""
Matches: TypeAlias = Callable[[Line], bool]
_ANY: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Filter:
    """Empty sets let all pass. Equal filters give equal pages, which is how readers share them. `after` is not included
    and `before` is. `text`: is somewhere in the line, in whatever case; or, with `is_regex`, matches as written."""

    allocations: frozenset[str] = _ANY
    containers: frozenset[str] = _ANY
    agents: frozenset[str] = _ANY
    sources: frozenset[str] = _ANY
    stdtypes: frozenset[str] = _ANY
    ranks: frozenset[int] = field(default_factory=frozenset)
    levels: frozenset[Level] = field(default_factory=frozenset)
    after: int | None = None
    before: int | None = None
    text: str = ""
    is_regex: bool = False

    def matches(self) -> Matches | None:
        """For what a chunk cannot tell of all its lines at once; None where all pass. Raises BadRequest."""
        tests: list[Matches] = []
        if self.levels:
            levels = self.levels
            tests.append(lambda line: line.level in levels)
        if self.ranks:
            ranks = self.ranks
            tests.append(lambda line: (NO_RANK if line.rank is None else line.rank) in ranks)
        if self.stdtypes:
            stdtypes = self.stdtypes
            tests.append(lambda line: line.stdtype in stdtypes)
        if self.after is not None or self.before is not None:
            tests.append(self._in_time)
        if self.text:
            tests.append(self._text())
        if len(tests) < 2:
            return tests[0] if tests else None
        return lambda line: all(test(line) for test in tests)

    def _in_time(self, line: Line) -> bool:
        return (self.after is None or line.at > self.after) and (self.before is None or line.at <= self.before)

    def _text(self) -> Matches:
        if self.is_regex:
            search = patterns.search(self.text, "searchText")
            return lambda line: search(line.bare)
        wanted = self.text.casefold()
        return lambda line: wanted in line.text.casefold()


EVERYTHING: Final = Filter()
