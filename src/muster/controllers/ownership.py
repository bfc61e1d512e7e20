"""Who owns whom: a graph of all objects by uid, kept up to date change by change. Pure."""

from collections import OrderedDict
from collections.abc import Collection, Iterator

from muster.api.meta import OwnerReference
from muster.api.objects import Object

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_MOST_REMEMBERED_GONE = 100_000


class OwnershipGraph:
    def __init__(self) -> None:
        self._objects: dict[str, Object] = {}
        self._dependents: dict[str, dict[str, None]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()

    def find(self, uid: str) -> Object | None:
        return self._objects.get(uid)

    def dependents(self, uid: str) -> list[Object]:
        return [self._objects[dependent] for dependent in self._dependents.get(uid, ())]

    def put(self, found: Object) -> None:
        self._unlink(found.uid)
        self._objects[found.uid] = found
        for owner in found.meta.owner_references:
            self._dependents.setdefault(owner.uid, {})[found.uid] = None

    def remove(self, uid: str) -> None:
        self._unlink(uid)
        self._objects.pop(uid, None)
        self.mark_gone(uid)

    def mark_gone(self, uid: str) -> None:
        """A uid is never used again: once gone, gone for good."""
        self._gone[uid] = None
        if len(self._gone) > _MOST_REMEMBERED_GONE:
            self._gone.popitem(last=False)

    def is_gone(self, uid: str) -> bool:
        return uid in self._gone

    def _unlink(self, uid: str) -> None:
        known = self._objects.get(uid)
        for owner in known.meta.owner_references if known is not None else ():
            filed = self._dependents.get(owner.uid, {})
            filed.pop(uid, None)
            if not filed:
                self._dependents.pop(owner.uid, None)


def is_deleting_dependents(found: Object) -> bool:
    """Being deleted in the foreground: it waits until its dependents are gone."""
    return found.is_terminating and FOREGROUND in found.meta.finalizers


def is_orphaning(found: Object) -> bool:
    return found.is_terminating and ORPHAN in found.meta.finalizers


def blocks(dependent: Object, owner_uid: str) -> bool:
    """Whether the owner's foreground deletion must wait for this dependent."""
    return any(owner.uid == owner_uid and owner.block_owner_deletion for owner in dependent.meta.owner_references)


def without_owners(found: Object, uids: Collection[str]) -> list[object]:
    """The object's owner references, as in its document, less those to `uids`."""
    listed = found.document()["metadata"].get("ownerReferences") or []
    return [reference for reference in listed if reference.get("uid") not in uids]


def lost_owners(before: Object | None, after: Object | None) -> Iterator[OwnerReference]:
    """References that a change took away."""
    kept = {owner.uid for owner in after.meta.owner_references} if after is not None else set()
    for owner in before.meta.owner_references if before is not None else ():
        if owner.uid not in kept:
            yield owner
