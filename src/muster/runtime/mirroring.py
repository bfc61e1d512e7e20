"""One live copy of each kind for all who watch it: between controllers and a store that is far away.

Some thirty controllers share about as many kinds, and most of them watch all pods. Over a network each watch would be a
stream of its own, and every pod be there ten times. So lists and watches of whole kinds are answered from memory, fed
by one watch a kind. All else goes through: to read one object, or part of a kind, is to ask for what is true now.

A kind that the other side does not serve (its CustomResourceDefinition is missing) is empty until it does. That is said
once; meanwhile what would be written of it is refused, to be tried again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from muster.api import errors
from muster.api.errors import ApiError
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.runtime.clock import Clock
from muster.store.bell import Bell
from muster.store.protocol import Change, Event, Page, Refused, Result, Revision, Selection, Store, Write
from muster.store.tables import Entry, Table

_log = logging.getLogger(__name__)
_REMEMBERED = 2048  # changes of a kind: who falls further behind lists again, which costs no request
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 10.0
_ABSENT_PAUSE_SECONDS = 10.0


class Mirror:
    """A `Store` over another. `tasks`: where what keeps the copies up to date runs."""

    def __init__(self, inner: Store, clock: Clock, tasks: asyncio.TaskGroup) -> None:
        self._inner = inner
        self._clock = clock
        self._tasks = tasks
        self._copies: dict[Kind, _Copy] = {}
        self._following: list[asyncio.Task[None]] = []

    def follow(self, kinds: Iterable[Kind]) -> None:
        """Copies that will be needed: who starts later finds them ready."""
        for kind in kinds:
            self._copy(kind)

    def find(self, kind: Kind, key: Key) -> Object | None:
        """As last heard."""
        return self._copy(kind).table.objects.get(key)

    @property
    def is_ready(self) -> bool:
        return all(copy.is_loaded.is_set() for copy in self._copies.values())

    def close(self) -> None:
        for task in self._following:
            task.cancel()

    async def get(self, kind: Kind, key: Key) -> Object:
        return await self._inner.get(kind, key)

    async def list(self, selection: Selection, *, limit: int = 0, token: str = "") -> Page:
        if limit or token or not _is_whole(selection):
            return await self._inner.list(selection, limit=limit, token=token)
        return await self._copy(selection.kind).list(selection)

    def watch(
        self, selection: Selection, *, since: Revision | None = None, bookmarks: bool = False
    ) -> AsyncIterator[Sequence[Event]]:
        if since is None or not _is_whole(selection):
            return self._inner.watch(selection, since=since, bookmarks=bookmarks)
        return self._copy(selection.kind).watch(selection, since, bookmarks)

    async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
        absent = {write.kind for write in writes if (copy := self._copies.get(write.kind)) and copy.is_absent}
        if not absent:
            return await self._inner.write(writes)
        rest = iter(await self._inner.write([write for write in writes if write.kind not in absent]))
        return [_refused(write.kind) if write.kind in absent else next(rest) for write in writes]

    def _copy(self, kind: Kind) -> "_Copy":
        copy = self._copies.get(kind)
        if copy is None:
            copy = self._copies[kind] = _Copy(self._inner, kind, self._clock)
            self._following.append(self._tasks.create_task(copy.follow(), name=f"mirror: {kind.resource}"))
        return copy


@asynccontextmanager
async def mirrored(inner: Store, clock: Clock) -> AsyncIterator[Mirror]:
    async with asyncio.TaskGroup() as tasks:
        mirror = Mirror(inner, clock, tasks)
        try:
            yield mirror
        finally:
            mirror.close()


class _Copy:
    def __init__(self, inner: Store, kind: Kind, clock: Clock) -> None:
        self.table = Table(kind, remembered=_REMEMBERED)
        self.is_loaded = asyncio.Event()
        self.is_absent = False
        self._inner = inner
        self._selection = Selection(kind)
        self._clock = clock
        self._bell = Bell()
        self._revision = Revision(0)
        self._complaint = ""

    async def list(self, selection: Selection) -> Page:
        await self.is_loaded.wait()
        found = [self.table.objects[key] for key in self.table.ordered()]
        if selection != self._selection:
            found = [item for item in found if selection.matches(item)]
        return Page(found, self._revision)

    async def watch(self, selection: Selection, cursor: Revision, bookmarks: bool) -> AsyncIterator[Sequence[Event]]:
        with self._bell.followed():
            while True:
                rings = self._bell.rings
                events = self.table.events_after(selection, cursor)
                is_behind = cursor < self._revision
                cursor = max(cursor, self._revision)
                if events:
                    yield events
                elif bookmarks and is_behind:
                    yield (Event(Change.BOOKMARK, None, cursor),)
                await self._bell.heard_since(rings)

    # Keeping it

    async def follow(self) -> None:
        """For ever. A watch that breaks goes on where it was; only where that is forgotten is all listed again."""
        pause, must_list = _FIRST_PAUSE_SECONDS, True
        name = self._selection.kind.resource
        while True:
            heard = self._revision
            try:
                if must_list:
                    self._load(await self._inner.list(self._selection))
                    must_list = False
                async for events in self._inner.watch(self._selection, since=self._revision, bookmarks=True):
                    self._publish(events)
            except errors.Expired:
                _log.info("the watch of %s fell behind; listing again", name)
                must_list = True
            except errors.NotFound:
                self._miss()
                must_list, pause = True, _ABSENT_PAUSE_SECONDS
            except (ApiError, OSError) as error:
                self._complain(str(error))
            if self._revision > heard:
                pause = _FIRST_PAUSE_SECONDS
            await self._clock.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)

    def _complain(self, what: str) -> None:
        """Once of the same: a server that is away, or a permission that is missing, may be so for hours."""
        if what != self._complaint:
            self._complaint = what
            _log.warning("the watch of %s broke; it is taken up again: %s", self._selection.kind.resource, what)

    def _load(self, page: Page) -> None:
        if self.is_absent:
            _log.warning("%s are served now", self._selection.kind.resource)
            self.is_absent = False
        if page.revision >= self._revision:  # else from a server that lags behind the one asked before
            self._reset(page)

    def _miss(self) -> None:
        if not self.is_absent:
            _log.warning(
                "%s are not served by this cluster: their CustomResourceDefinition is missing. The rest works; they "
                "are looked for every %d s",
                self._selection.kind.resource,
                _ABSENT_PAUSE_SECONDS,
            )
            self.is_absent = True
            self._reset(Page([], Revision(self._revision + 1)))  # so that followers notice

    def _reset(self, page: Page) -> None:
        """Whoever follows must list again: what changed since they looked is not known one by one."""
        self.table = Table(self._selection.kind, remembered=_REMEMBERED)
        for found in page.items:
            self.table.load(found)
        self.table.forgotten = self._revision = page.revision
        self.is_loaded.set()
        self._bell.ring()

    def _publish(self, events: Sequence[Event]) -> None:
        self._complaint = ""
        for event in events:
            if event.revision <= self._revision:
                continue  # a bookmark of where we are, or heard before
            self._revision = event.revision
            if event.object is None:
                continue
            previous = self.table.objects.get(event.object.key)
            if event.change is not Change.DELETED:
                change = Change.ADDED if previous is None else Change.MODIFIED
                self.table.publish(Entry(change, event.object, previous))
            elif previous is not None:
                self.table.publish(Entry(Change.DELETED, event.object, previous))
        self._bell.ring()


def _is_whole(selection: Selection) -> bool:
    return selection.namespace is None and not selection.fields.requirements


def _refused(kind: Kind) -> Refused:
    return Refused(
        errors.Unavailable(f"{kind.resource} are not served by this cluster: their CustomResourceDefinition is missing")
    )
