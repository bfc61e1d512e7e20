"""The embedded store: all objects in memory, one writer, a journal that makes them durable.

Writers queue; the writer task takes what has queued, decides each write in order against what the
group has staged so far, commits the group with one fsync, and only then publishes it to readers,
watchers and the waiting callers. A reader therefore never sees what a crash could take back.
"""

import asyncio
import base64
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, Self

import msgspec

from muster.api import core, errors, raw, timestamps
from muster.api.errors import ApiError
from muster.api.everything import REGISTRY
from muster.api.kinds import Kind
from muster.api.managing import TakeIn
from muster.api.meta import Instant
from muster.api.objects import Key, Object
from muster.api.registry import Registry
from muster.store import protocol, revising
from muster.store.bell import Bell
from muster.store.deciding import Decider
from muster.store.journal import Journal, NoJournal, Row
from muster.store.protocol import Change, Event, Page, Refused, Result, Revision, Selection, Write, Written
from muster.store.sqlite import SqliteJournal
from muster.store.tables import Entry, Table, in_namespace

_log = logging.getLogger(__name__)

_GROUP = 192  # writes to one commit: deciding them takes some 6 ms, and the event loop serves nobody meanwhile
REMEMBERED = 10_000
"""How many changes of one kind a watch can resume over, at least."""
_BOOKMARK_SECONDS = 60.0
_FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


class TellsTime(Protocol):
    """The part of a clock that a store needs."""

    def now(self) -> Instant: ...


@dataclass(slots=True)
class _Batch:
    """A caller's writes and the results so far."""

    writes: Sequence[Write]
    done: asyncio.Future[Sequence[Result]]
    results: list[Result] = field(default_factory=list)


@dataclass(slots=True)
class _Group:
    """What one commit will make true, and whom to tell: for each answer its batch and its place there."""

    decider: Decider
    answers: list[tuple[_Batch, int]] = field(default_factory=list)


class EmbeddedStore:
    """Use as an async context manager: entering loads the journal, leaving finishes what was accepted.

    `take_in` has the last word on what is created, before it is checked: a mutating webhook of a Kubernetes cluster.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        clock: TellsTime,
        registry: Registry = REGISTRY,
        entropy: random.Random | None = None,
        remembered: int = REMEMBERED,
        take_in: TakeIn | None = None,
    ) -> None:
        self._journal = journal
        self._take_in = take_in
        self._clock = clock
        self._entropy = entropy or random.SystemRandom()
        self._tables = {kind: Table(kind, remembered=remembered) for kind in registry}
        self._by_resource = {kind.resource: table for kind, table in self._tables.items()}
        self._bells = {kind: Bell() for kind in registry}
        self._queue: deque[_Batch] = deque()
        self._queued = asyncio.Event()
        self._is_open = False
        self._stack = AsyncExitStack()
        self.revision = Revision(0)

    @classmethod
    def in_memory(
        cls,
        *,
        clock: TellsTime,
        entropy: random.Random | None = None,
        remembered: int = REMEMBERED,
        take_in: TakeIn | None = None,
    ) -> Self:
        return cls(NoJournal(), clock=clock, entropy=entropy, remembered=remembered, take_in=take_in)

    @classmethod
    def on_disk(
        cls,
        path: Path,
        *,
        clock: TellsTime,
        entropy: random.Random | None = None,
        remembered: int = REMEMBERED,
        take_in: TakeIn | None = None,
    ) -> Self:
        return cls(SqliteJournal(path), clock=clock, entropy=entropy, remembered=remembered, take_in=take_in)

    async def __aenter__(self) -> Self:
        self._load()
        # One thread: commits must not overtake each other, and SQLite has one writer anyway.
        self._committer = self._stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="journal"))
        self._stack.callback(self._journal.close)
        tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._is_open = True
        bookmarks = tasks.create_task(self._ring_for_bookmarks(), name="store-bookmarks")
        tasks.create_task(self._write_groups(), name="store-writer")
        self._stack.callback(bookmarks.cancel)
        self._stack.callback(self._shut)
        await self._make_first_namespaces()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._stack.aclose()

    def _shut(self) -> None:
        self._is_open = False
        self._queued.set()
        for bell in self._bells.values():
            bell.close()

    def _load(self) -> None:
        revision, rows = self._journal.load()
        for row in rows:
            table = self._by_resource.get(row.resource)
            # A kind of a newer Muster stays in the journal untouched, and comes back with the upgrade.
            if table is not None and row.data is not None:
                table.load(Object(table.kind, row.data))
        self.revision = Revision(revision)
        for table in self._tables.values():
            table.forgotten = revision

    async def _make_first_namespaces(self) -> None:
        missing = [name for name in _FIRST_NAMESPACES if Key("", name) not in self._tables[core.NAMESPACE].objects]
        await self.write([protocol.Create(core.NAMESPACE, {"metadata": {"name": name}}) for name in missing])

    # Reading

    async def get(self, kind: Kind, key: Key) -> Object:
        found = self._tables[kind].objects.get(key)
        if found is None:
            raise revising.not_found(kind, key)
        return found

    async def list(self, selection: Selection, *, limit: int = 0, token: str = "") -> Page:
        table = self._tables[selection.kind]
        revision, after = _decode_token(token) if token else (self.revision, None)
        objects, ordered = table.at(revision)
        keys = in_namespace(ordered, selection.namespace, after)
        if selection.is_picky:
            keys = [key for key in keys if selection.matches(objects[key])]
        if not limit or len(keys) <= limit:
            return Page([objects[key] for key in keys], revision)
        page = [objects[key] for key in keys[:limit]]
        return Page(page, revision, _encode_token(revision, page[-1].key), len(keys) - limit)

    def watch(
        self, selection: Selection, *, since: Revision | None = None, bookmarks: bool = False
    ) -> AsyncIterator[Sequence[Event]]:
        # Not itself a generator: "from now on" means from this call, not from the first step of the iteration.
        return self._follow(selection, self.revision if since is None else since, bookmarks)

    async def _follow(self, selection: Selection, cursor: Revision, bookmarks: bool) -> AsyncIterator[Sequence[Event]]:
        table, bell = self._tables[selection.kind], self._bells[selection.kind]
        if cursor > self.revision:
            raise errors.Timeout(f"Too large resource version: {cursor}, current: {self.revision}")
        with bell.followed():
            while self._is_open:
                rings = bell.rings
                events = table.events_after(selection, cursor)
                is_behind = cursor < self.revision
                cursor = self.revision
                if events:
                    yield events
                elif bookmarks and is_behind:
                    yield (Event(Change.BOOKMARK, None, cursor),)
                await bell.heard_since(rings)
        raise errors.Unavailable("the store is shutting down")

    async def _ring_for_bookmarks(self) -> None:
        while True:
            await asyncio.sleep(_BOOKMARK_SECONDS)
            for bell in self._bells.values():
                bell.ring()

    # Writing

    async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
        if not self._is_open:
            raise errors.Unavailable("the store is not open")
        if not writes:
            return []
        batch = _Batch(writes, asyncio.get_running_loop().create_future())
        self._queue.append(batch)
        self._queued.set()
        # A caller that is cancelled only stops waiting: what it has queued is written like all else.
        return await batch.done

    async def _write_groups(self) -> None:
        while self._is_open or self._queue:
            await self._queued.wait()
            self._queued.clear()
            while self._queue:
                await self._commit(self._stage())

    def _stage(self) -> _Group:
        """Decide the next writes, in the order they came, up to a group's size."""
        now = self._clock.now()
        group = _Group(Decider(self._tables, now, timestamps.to_text(now), self._entropy, take_in=self._take_in))
        while self._queue and len(group.answers) < _GROUP:
            batch = self._queue[0]
            start = len(batch.results)
            for write in batch.writes[start : start + _GROUP - len(group.answers)]:
                group.answers.append((batch, len(batch.results)))
                batch.results.append(self._decide(write, group.decider))
            if len(batch.results) == len(batch.writes):
                self._queue.popleft()
        return group

    def _decide(self, write: Write, decider: Decider) -> Result:
        try:
            return self._accept(write, decider)
        except errors.Invalid as error:
            # Too large is the better answer where both are true: no field is to blame.
            return Refused(_too_large(write) or error)
        except ApiError as error:
            return Refused(error)
        except Exception as error:  # a bug in one kind's rules must not stop the writer for all others
            _log.exception("deciding %s of %s failed", type(write).__name__, write.kind.name)
            return Refused(errors.InternalError(f"the server failed on this {write.kind.name}: {error!r}"))

    def _accept(self, write: Write, decider: Decider) -> Written:
        previous, revised = decider.revise(write, self.revision + len(decider.entries) + 1)
        if not revised.is_changed:
            assert previous is not None
            return Written(previous, warnings=revised.warnings)
        encoded = raw.encode(revised.document)
        if len(encoded) > raw.MAX_OBJECT_BYTES:
            raise _oversize(write.kind, len(encoded))
        made = Object(write.kind, encoded, revised.view)
        if not write.options.dry_run:
            change = Change.DELETED if revised.is_gone else Change.ADDED if revised.is_new else Change.MODIFIED
            decider.entries.append(Entry(change, made, previous))
            decider.staged[write.kind, made.key] = None if revised.is_gone else made
        return Written(made, revised.is_gone, revised.is_new, revised.warnings)

    async def _commit(self, group: _Group) -> None:
        entries = group.decider.entries
        revision = self.revision + len(entries)
        try:
            await self._make_durable(entries, revision)
        except ApiError as error:
            for batch, place in group.answers:
                if isinstance(batch.results[place], Written):
                    batch.results[place] = Refused(error)
        else:
            self._publish(entries, revision)
        for batch, place in group.answers:
            if place == len(batch.writes) - 1 and not batch.done.done():
                batch.done.set_result(batch.results)

    async def _make_durable(self, entries: Sequence[Entry], revision: int) -> None:
        if not entries or not self._journal.is_slow:
            await asyncio.sleep(0)  # others get their turn
        if not entries:
            return
        rows = [
            Row(
                entry.object.kind.resource,
                entry.object.key,
                None if entry.change is Change.DELETED else entry.object.raw,
            )
            for entry in entries
        ]
        if self._journal.is_slow:
            await asyncio.get_running_loop().run_in_executor(self._committer, self._journal.commit, rows, revision)
        else:
            self._journal.commit(rows, revision)

    def _publish(self, entries: Sequence[Entry], revision: int) -> None:
        for entry in entries:
            self._tables[entry.object.kind].publish(entry)
        self.revision = Revision(revision)
        for kind in dict.fromkeys(entry.object.kind for entry in entries):  # in the order of the writes, not of a set
            self._bells[kind].ring()


def _too_large(write: Write) -> errors.TooLarge | None:
    size = len(raw.encode(write.document)) if isinstance(write, protocol.Create | protocol.Replace) else 0
    return _oversize(write.kind, size) if size > raw.MAX_OBJECT_BYTES else None


def _oversize(kind: Kind, size: int) -> errors.TooLarge:
    return errors.TooLarge(
        f"this {kind.name} has {size} bytes, the limit is {raw.MAX_OBJECT_BYTES}: "
        "keep large data in files, and name them here"
    )


class _Token(msgspec.Struct, frozen=True):
    """Where a list goes on: hidden from clients in base64, as Kubernetes does."""

    revision: int
    namespace: str
    name: str


def _encode_token(revision: int, last: Key) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(_Token(revision, *last))).decode()


def _decode_token(token: str) -> tuple[Revision, Key]:
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(token), type=_Token)
    except (ValueError, msgspec.DecodeError) as error:
        raise errors.BadRequest("the continue token is not valid; list again without it") from error
    return Revision(found.revision), Key(found.namespace, found.name)
