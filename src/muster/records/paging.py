"""One page of a query, and how long the whole would be."""

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from sqlalchemy import Connection, Row, Select, func, select

R = TypeVar("R", bound=tuple[object, ...])
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Window:
    """As Determined's clients ask: no limit (0) or -1 is all, -2 is none, a negative offset counts from the end."""

    offset: int = 0
    limit: int = 0

    def within(self, total: int) -> tuple[int, int]:
        """Where the page begins and ends; both are inside of what there is."""
        start = max(0, total + self.offset) if self.offset < 0 else min(self.offset, total)
        if self.limit < -1:
            return start, start
        return start, total if self.limit <= 0 else min(start + self.limit, total)


WHOLE: Final = Window()


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: tuple[T, ...]
    start: int
    total: int

    @property
    def end(self) -> int:
        return self.start + len(self.items)


def select_page(connection: Connection, query: Select[R], window: Window) -> Page[Row[R]]:
    """The query must have an order in which no two rows are equal, else pages overlap."""
    total = connection.scalar(select(func.count()).select_from(query.order_by(None).subquery())) or 0
    start, end = window.within(total)
    rows = connection.execute(query.offset(start).limit(end - start)).all() if end > start else ()
    return Page(tuple(rows), start, total)
