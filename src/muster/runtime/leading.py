"""A store that only a leader may write to: who has lost the lease stops at once, even before it has noticed."""

from collections.abc import AsyncIterator, Callable, Sequence

from muster.api import errors
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.store.protocol import Event, Page, Result, Revision, Selection, Store, Write


class LeadersStore:
    """`is_leading`: asked before each batch of writes."""

    def __init__(self, inner: Store, is_leading: Callable[[], bool]) -> None:
        self._inner = inner
        self._is_leading = is_leading

    async def get(self, kind: Kind, key: Key) -> Object:
        return await self._inner.get(kind, key)

    async def list(self, selection: Selection, *, limit: int = 0, token: str = "") -> Page:
        return await self._inner.list(selection, limit=limit, token=token)

    def watch(
        self, selection: Selection, *, since: Revision | None = None, bookmarks: bool = False
    ) -> AsyncIterator[Sequence[Event]]:
        return self._inner.watch(selection, since=since, bookmarks=bookmarks)

    async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
        if not self._is_leading():
            raise errors.Unavailable("another replica may lead by now: this one does not write any more")
        return await self._inner.write(writes)
