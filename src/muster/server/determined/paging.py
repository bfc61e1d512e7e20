"""Lists in pages, as Determined's client wants them told; and numbers from outside, which records can hold."""

from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

from muster.records.paging import Page, Window
from muster.server.determined.routing import Message

T = TypeVar("T")
_HIGHEST: Final = 2**31 - 1
Id: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=_HIGHEST)]
Ids: TypeAlias = Annotated[Sequence[Id], msgspec.Meta(max_length=10_000)]
"""As many as one query of a database can name."""
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=-_HIGHEST, le=_HIGHEST)]


class Pagination(Message, frozen=True):
    """The client reads on until `end_index` is `total`."""

    offset: int = 0
    limit: int = 0
    start_index: int = 0
    end_index: int = 0
    total: int = 0


class Paged(Message, frozen=True):
    """What every list can be asked."""

    offset: Count = 0
    limit: Count = 0

    @property
    def window(self) -> Window:
        return Window(self.offset, self.limit)


def told(page: Page[T], asked: Paged) -> Pagination:
    return Pagination(
        offset=asked.offset, limit=asked.limit, start_index=page.start, end_index=page.end, total=page.total
    )


def cut(items: Sequence[T], asked: Paged) -> Page[T]:
    """A page of what is in memory anyway."""
    start, end = asked.window.within(len(items))
    return Page(tuple(items[start:end]), start, len(items))
