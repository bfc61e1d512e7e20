"""Everything of one kind in memory: the objects as last committed, in order, and the recent changes.

Owned by the embedded store's event loop; nothing here waits or does I/O.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import msgspec

from muster.api import errors, raw
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.store.protocol import Change, Event, Revision, Selection

_VIEWS = 1000  # of the latest changes, all views are kept: watchers are about to read them


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One committed change. For DELETED, `object` is the last state with the revision of the deletion."""

    change: Change
    object: Object
    previous: Object | None


class Table:
    def __init__(self, kind: Kind, *, remembered: int) -> None:
        self.kind = kind
        self.objects: dict[Key, Object] = {}
        self._ordered: list[Key] | None = []
        self._remembered = remembered
        self._entries: list[Entry] = []
        self._revisions: list[int] = []  # of _entries, for bisection
        self.forgotten = 0
        """Changes up to this revision may be gone from memory: nobody can resume from before it."""
        self._shared: dict[tuple[Selection, int], Sequence[Event]] = {}

    def load(self, found: Object) -> None:
        self.objects[found.key] = found
        self._ordered = None

    def publish(self, entry: Entry) -> None:
        key = entry.object.key
        if entry.change is Change.DELETED:
            del self.objects[key]
            self._ordered = None
        else:
            if key not in self.objects:
                self._ordered = None
            self.objects[key] = entry.object
        self._entries.append(entry)
        self._revisions.append(entry.object.revision)
        self._shared.clear()
        self._forget_view()
        # Trim by halves: deleting from the front of a list one by one would cost a copy each time.
        if len(self._entries) > 2 * self._remembered:
            excess = len(self._entries) - self._remembered
            self.forgotten = self._revisions[excess - 1]
            del self._entries[:excess], self._revisions[:excess]

    def _forget_view(self) -> None:
        """Of what was superseded some time ago: whoever follows has seen that, and remembers only what came after."""
        if len(self._entries) > _VIEWS:
            past = self._entries[-_VIEWS].object
            if self.objects.get(past.key) is not past:
                past.forget_view()

    def ordered(self) -> list[Key]:
        if self._ordered is None:
            self._ordered = sorted(self.objects)
        return self._ordered

    def events_after(self, selection: Selection, revision: int) -> Sequence[Event]:
        """What a watcher of `selection` must see of the changes after `revision`. Watchers that stand at the same
        revision get the same tuple: whoever serves them can encode it once."""
        if revision < self.forgotten:
            raise errors.Expired(f"too old resource version: {revision} ({self.forgotten})")
        found = self._shared.get((selection, revision))
        if found is None:
            entries = self._entries[bisect_right(self._revisions, revision) :]
            if selection.is_everything:  # most watchers are controllers, and those follow all of a kind
                found = tuple(Event(entry.change, entry.object, Revision(entry.object.revision)) for entry in entries)
            else:
                seen = (_as_seen(entry, selection) for entry in entries)
                found = tuple(event for event in seen if event is not None)
            self._shared[selection, revision] = found
        return found

    def at(self, revision: Revision) -> tuple[dict[Key, Object], list[Key]]:
        """The objects as they were at a recent revision, and their keys in order. Raises Expired."""
        start = bisect_right(self._revisions, revision)
        if start == len(self._entries):
            return self.objects, self.ordered()
        if revision < self.forgotten:
            raise errors.Expired("the provided continue parameter is too old; list again without it")
        then: dict[Key, Object | None] = {}
        for entry in self._entries[start:]:
            then.setdefault(entry.object.key, entry.previous)
        objects = {key: found for key, found in {**self.objects, **then}.items() if found is not None}
        return objects, sorted(objects)


def in_namespace(ordered: list[Key], namespace: str | None, after: Key | None) -> Sequence[Key]:
    """The part of the ordered keys within a namespace (None: all) and behind `after`."""
    low = 0 if namespace is None else bisect_left(ordered, Key(namespace, ""))
    high = len(ordered) if namespace is None else bisect_left(ordered, Key(namespace + "\0", ""))
    if after is not None:
        low = max(low, bisect_right(ordered, after))
    return ordered[low:high]


def _as_seen(entry: Entry, selection: Selection) -> Event | None:
    """An object that changes so that it enters or leaves a selection appears to be added or deleted."""
    revision = Revision(entry.object.revision)
    was = entry.previous is not None and selection.matches(entry.previous)
    if entry.change is Change.DELETED:
        return Event(Change.DELETED, entry.object, revision) if was else None
    if selection.matches(entry.object):
        return Event(Change.MODIFIED if was else Change.ADDED, entry.object, revision)
    if was and entry.previous is not None:
        return Event(Change.DELETED, at_revision(entry.previous, revision), revision)
    return None


def at_revision(found: Object, revision: int) -> Object:
    """The same content under another revision."""
    document = found.document()
    document["metadata"]["resourceVersion"] = str(revision)
    return Object(found.kind, raw.encode(document))
