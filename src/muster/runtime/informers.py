"""A live copy of one selection of objects: listed once, then kept up to date by a watch.

Reads are plain dictionary lookups; handlers hear each add, update and delete exactly once and in order,
also across a relist. The copy may lag behind the store but never goes back in time. Over a store that is `Shared`, all
informers of the same selection have one copy: most controllers follow all pods.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from muster.api.errors import ApiError, Expired
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.runtime.clock import Clock
from muster.store.protocol import Change, Event, Page, Result, Revision, Selection, Store, Write

_log = logging.getLogger(__name__)

IndexFunction: TypeAlias = Callable[[Object], Iterable[str]]
Handler: TypeAlias = Callable[[Event], None]

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 10.0
_EVENTS_A_TURN = 64


def by_owner(found: Object) -> Iterable[str]:
    """An index function: the uids of an object's owners."""
    return (owner.uid for owner in found.meta.owner_references)


class Informer:
    """`resync`: seconds after which handlers are told of every object again, as MODIFIED, to heal what they missed."""

    def __init__(self, store: Store, selection: Selection, *, clock: Clock, resync: float | None = None) -> None:
        self.selection = selection
        self._clock = clock
        self._resync = resync
        self._copy = store.copy_of(selection, clock) if isinstance(store, Shared) else Copy(store, selection, clock)
        self._indices: dict[str, _Index] = {}
        self._handlers: list[Handler] = []
        self._has_begun = False
        self._synced = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._failure: Exception | None = None

    def index_by(self, name: str, function: IndexFunction) -> None:
        """Register an index. Objects are filed under each value that `function` yields."""
        index = self._indices[name] = _Index(function)
        for found in self.items() if self._has_begun else ():
            index.add(found)

    def on_event(self, handler: Handler) -> None:
        """Call `handler` after each change of the copy. It must not raise: that would end the informer."""
        self._handlers.append(handler)

    def get(self, key: Key) -> Object | None:
        return self._copy.objects.get(key)

    def items(self) -> Collection[Object]:
        return self._copy.objects.values()

    def by_index(self, name: str, value: str) -> Collection[Object]:
        return self._indices[name].find(value)

    @property
    def is_synced(self) -> bool:
        return self._synced.is_set()

    @property
    def revision(self) -> Revision:
        """The copy shows every change up to here: what one has written later is not in it yet."""
        return self._copy.revision

    async def synced(self) -> None:
        """Returns once the first list is in."""
        await self._synced.wait()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            name = self.selection.kind.plural
            self._following = group.create_task(self._follow(), name=f"informer-{name}")
            if self._resync is not None:
                group.create_task(self._repeat(self._resync), name=f"resync-{name}")

    async def _follow(self) -> None:
        try:
            await self._copy.follow(self)
        except asyncio.CancelledError:
            if self._failure is not None:
                raise self._failure from None
            raise

    async def _repeat(self, period: float) -> None:
        while True:
            await self._clock.sleep(period)
            for found in list(self.items()):
                event = Event(Change.MODIFIED, found, Revision(found.revision))
                for handler in self._handlers:
                    handler(event)

    # From the copy

    def begin(self, objects: Iterable[Object]) -> None:
        """These are there already."""
        self._has_begun = True
        for found in objects:
            self.hear(None, Event(Change.ADDED, found, Revision(found.revision)))

    def hear(self, known: Object | None, event: Event) -> None:
        """The copy has changed. A handler that raises ends this informer, and no other that has the same copy."""
        try:
            if self._indices:
                found = None if event.change is Change.DELETED else event.object
                for index in self._indices.values():
                    index.change(known, found)
            for handler in self._handlers:
                handler(event)
        except Exception as error:
            self._failure = error
            if self._following is not None:
                self._following.cancel()

    def be_synced(self) -> None:
        self._synced.set()


class Copy:
    """What informers of one selection know. One of those who follow keeps it up to date for all; when that one goes,
    the next does."""

    def __init__(self, store: Store, selection: Selection, clock: Clock) -> None:
        self.objects: dict[Key, Object] = {}
        self.revision = Revision(0)
        self.is_synced = False
        self.is_abandoned = False
        """The last of those who followed has gone: it shows the past."""
        self._store = store
        self._selection = selection
        self._clock = clock
        self._followers: dict[Informer, None] = {}
        self._turn = asyncio.Lock()

    async def follow(self, informer: Informer) -> None:
        self._followers[informer] = None
        self.is_abandoned = False
        informer.begin([self.objects[key] for key in sorted(self.objects)] if self.is_synced else ())
        if self.is_synced:
            informer.be_synced()
        try:
            async with self._turn:
                await self._keep_up()
        finally:
            del self._followers[informer]
            self.is_abandoned = not self._followers

    async def _keep_up(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            heard = self.revision
            try:
                if self._take_list(await self._store.list(self._selection)):
                    await self._take_watch()
            except Expired:
                _log.info("watch of %s fell behind; listing again", self._selection.kind.plural)
            except (ApiError, OSError) as error:
                _log.warning("watch of %s broke; listing again: %s", self._selection.kind.plural, error)
            if self.revision > heard:
                pause = FIRST_PAUSE_SECONDS
            await self._clock.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _take_watch(self) -> None:
        """Until the watch breaks; one that simply ends (a proxy's time limit) is taken up again without a list."""
        while True:
            before = self.revision
            async for events in self._store.watch(self._selection, since=self.revision, bookmarks=True):
                for number, event in enumerate(events, 1):
                    self._take(event)
                    if number % _EVENTS_A_TURN == 0:
                        await asyncio.sleep(0)  # others get their turn
            if self.revision == before:
                await self._clock.sleep(FIRST_PAUSE_SECONDS)

    def _take_list(self, page: Page) -> bool:
        """Turn the list into the changes that lead to it. False where it is older than what was already shown."""
        if page.revision < self.revision:
            _log.warning("list of %s is older than its watch; ignored", self._selection.kind.plural)
            return False
        listed = {found.key: found for found in page.items}
        for key in [key for key in self.objects if key not in listed]:
            self._take(Event(Change.DELETED, self.objects[key], page.revision))
        for found in listed.values():
            self._take(Event(Change.ADDED, found, Revision(found.revision)))
        self.revision = page.revision
        self.is_synced = True
        for informer in self._followers:
            informer.be_synced()
        return True

    def _take(self, event: Event) -> None:
        found = event.object
        self.revision = max(self.revision, event.revision)
        if found is None:
            return
        known = self.objects.get(found.key)
        if event.change is Change.DELETED:
            if known is None or event.revision < known.revision:
                return
            del self.objects[found.key]
        else:
            if known is not None and found.revision <= known.revision:
                return
            if known is not None and known.uid != found.uid:
                # Deleted and made again while nobody listened: handlers must see the first one go.
                self._take(Event(Change.DELETED, known, event.revision))
                known = None
            self.objects[found.key] = found
            change = Change.ADDED if known is None else Change.MODIFIED
            if event.change is not change:
                event = replace(event, change=change)
        for informer in self._followers:
            informer.hear(known, event)


class Shared:
    """A `Store` over another, whose informers of the same selection share their copy."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._copies: dict[Selection, Copy] = {}

    def copy_of(self, selection: Selection, clock: Clock) -> Copy:
        found = self._copies.get(selection)
        if found is None or found.is_abandoned:
            found = self._copies[selection] = Copy(self._inner, selection, clock)
        return found

    async def get(self, kind: Kind, key: Key) -> Object:
        return await self._inner.get(kind, key)

    async def list(self, selection: Selection, *, limit: int = 0, token: str = "") -> Page:
        return await self._inner.list(selection, limit=limit, token=token)

    def watch(
        self, selection: Selection, *, since: Revision | None = None, bookmarks: bool = False
    ) -> AsyncIterator[Sequence[Event]]:
        return self._inner.watch(selection, since=since, bookmarks=bookmarks)

    async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
        return await self._inner.write(writes)


class _Index:
    def __init__(self, function: IndexFunction) -> None:
        self._function = function
        self._filed: dict[str, dict[Key, Object]] = {}
        self._under: dict[Key, tuple[str, ...]] = {}
        """By object: the values that it is filed under. To ask the function for those again would double its cost."""

    def find(self, value: str) -> Collection[Object]:
        return self._filed.get(value, _NOTHING).values()

    def change(self, old: Object | None, new: Object | None) -> None:
        if old is not None:
            for value in self._under.pop(old.key, ()):
                filed = self._filed.get(value, {})
                filed.pop(old.key, None)
                if not filed:
                    self._filed.pop(value, None)  # it may be there no more: a function may say the same twice
        if new is not None:
            self.add(new)

    def add(self, found: Object) -> None:
        values = tuple(self._function(found))
        if values:
            self._under[found.key] = values
        for value in values:
            self._filed.setdefault(value, {})[found.key] = found


_NOTHING: Mapping[Key, Object] = {}


async def all_synced(informers: Sequence[Informer]) -> None:
    for informer in informers:
        await informer.synced()
