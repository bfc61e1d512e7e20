"""A live copy of one selection of objects: listed once, then kept up to date by a watch.

Reads are plain dictionary lookups; handlers hear each add, update and delete exactly once and in order,
also across a relist. The copy may lag behind the store but never goes back in time.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from muster.api.errors import ApiError, Expired
from muster.api.objects import Key, Object
from muster.runtime.clock import Clock
from muster.store.protocol import Change, Event, Page, Revision, Selection, Store

_log = logging.getLogger(__name__)

IndexFunction: TypeAlias = Callable[[Object], Iterable[str]]
Handler: TypeAlias = Callable[[Event], None]

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 10.0


def by_owner(found: Object) -> Iterable[str]:
    """An index function: the uids of an object's owners."""
    return (owner.uid for owner in found.meta.owner_references)


class Informer:
    """`resync`: seconds after which handlers are told of every object again, as MODIFIED, to heal what they missed."""

    def __init__(self, store: Store, selection: Selection, *, clock: Clock, resync: float | None = None) -> None:
        self.selection = selection
        self._store = store
        self._clock = clock
        self._resync = resync
        self._objects: dict[Key, Object] = {}
        self._indices: dict[str, _Index] = {}
        self._handlers: list[Handler] = []
        self._synced = asyncio.Event()
        self._revision = Revision(0)

    def index_by(self, name: str, function: IndexFunction) -> None:
        """Register an index. Objects are filed under each value that `function` yields."""
        index = self._indices[name] = _Index(function)
        for found in self._objects.values():
            index.add(found)

    def on_event(self, handler: Handler) -> None:
        """Call `handler` after each change of the copy. It must not raise: that would end the informer."""
        self._handlers.append(handler)

    def get(self, key: Key) -> Object | None:
        return self._objects.get(key)

    def items(self) -> Collection[Object]:
        return self._objects.values()

    def by_index(self, name: str, value: str) -> Collection[Object]:
        return self._indices[name].find(value)

    @property
    def is_synced(self) -> bool:
        return self._synced.is_set()

    @property
    def revision(self) -> Revision:
        """The copy shows every change up to here: what one has written later is not in it yet."""
        return self._revision

    async def synced(self) -> None:
        """Returns once the first list is in."""
        await self._synced.wait()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            name = self.selection.kind.plural
            group.create_task(self._follow(), name=f"informer-{name}")
            if self._resync is not None:
                group.create_task(self._repeat(self._resync), name=f"resync-{name}")

    async def _follow(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            heard = self._revision
            try:
                if self._take_list(await self._store.list(self.selection)):
                    await self._take_watch()
            except Expired:
                _log.info("watch of %s fell behind; listing again", self.selection.kind.plural)
            except (ApiError, OSError) as error:
                _log.warning("watch of %s broke; listing again: %s", self.selection.kind.plural, error)
            if self._revision > heard:
                pause = FIRST_PAUSE_SECONDS
            await self._clock.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _take_watch(self) -> None:
        """Until the watch breaks; one that simply ends (a proxy's time limit) is taken up again without a list."""
        while True:
            before = self._revision
            async for events in self._store.watch(self.selection, since=self._revision, bookmarks=True):
                for event in events:
                    self._take(event)
            if self._revision == before:
                await self._clock.sleep(FIRST_PAUSE_SECONDS)

    def _take_list(self, page: Page) -> bool:
        """Turn the list into the changes that lead to it. False where it is older than what was already shown."""
        if page.revision < self._revision:
            _log.warning("list of %s is older than its watch; ignored", self.selection.kind.plural)
            return False
        listed = {found.key: found for found in page.items}
        for key in [key for key in self._objects if key not in listed]:
            self._take(Event(Change.DELETED, self._objects[key], page.revision))
        for found in listed.values():
            self._take(Event(Change.ADDED, found, Revision(found.revision)))
        self._revision = page.revision
        self._synced.set()
        return True

    def _take(self, event: Event) -> None:
        found = event.object
        self._revision = max(self._revision, event.revision)
        if found is None:
            return
        known = self._objects.get(found.key)
        if event.change is Change.DELETED:
            if known is None or event.revision < known.revision:
                return
            del self._objects[found.key]
        else:
            if known is not None and found.revision <= known.revision:
                return
            if known is not None and known.uid != found.uid:
                # Deleted and made again while nobody listened: handlers must see the first one go.
                self._take(Event(Change.DELETED, known, event.revision))
                known = None
            self._objects[found.key] = found
            change = Change.ADDED if known is None else Change.MODIFIED
            if event.change is not change:
                event = replace(event, change=change)
        for index in self._indices.values():
            index.change(known, None if event.change is Change.DELETED else found)
        self._tell(event)

    def _tell(self, event: Event) -> None:
        for handler in self._handlers:
            handler(event)

    async def _repeat(self, period: float) -> None:
        while True:
            await self._clock.sleep(period)
            for found in list(self._objects.values()):
                self._tell(Event(Change.MODIFIED, found, Revision(found.revision)))


class _Index:
    def __init__(self, function: IndexFunction) -> None:
        self._function = function
        self._filed: dict[str, dict[Key, Object]] = {}

    def find(self, value: str) -> Collection[Object]:
        return self._filed.get(value, _NOTHING).values()

    def change(self, old: Object | None, new: Object | None) -> None:
        if old is not None:
            for value in self._function(old):
                filed = self._filed.get(value, {})
                filed.pop(old.key, None)
                if not filed:
                    self._filed.pop(value, None)
        if new is not None:
            self.add(new)

    def add(self, found: Object) -> None:
        for value in self._function(found):
            self._filed.setdefault(value, {})[found.key] = found


_NOTHING: Mapping[Key, Object] = {}


async def all_synced(informers: Sequence[Informer]) -> None:
    for informer in informers:
        await informer.synced()
