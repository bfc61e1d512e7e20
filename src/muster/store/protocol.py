"""The `Store` protocol: where components meet, and the only thing they share.

Semantics are Kubernetes': a global growing revision, optimistic concurrency, watches that resume.
A batch of writes is not a transaction (Kubernetes has none): each write names the version it was
based on and is accepted or refused alone. Embedded, a batch is one disk commit.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from enum import StrEnum
from typing import Literal, NewType, Protocol, TypeAlias

import msgspec

from muster.api.errors import ApiError
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.raw import JSON, Document
from muster.api.selectors import EVERYTHING, FieldSelector, LabelSelector

Revision = NewType("Revision", int)
Subresource: TypeAlias = Literal["", "status", "scale"]
Propagation: TypeAlias = Literal["Background", "Foreground", "Orphan"]


class Selection(msgspec.Struct, frozen=True, cache_hash=True):
    """Which objects of one kind. Hashable: watchers of equal selections share their work."""

    kind: Kind
    namespace: str | None = None  # None: all namespaces
    labels: LabelSelector = EVERYTHING.labels
    fields: FieldSelector = EVERYTHING.fields

    @property
    def is_everything(self) -> bool:
        return self.namespace is None and not self.is_picky

    @property
    def is_picky(self) -> bool:
        """Whether one has to look at an object, and not only at its namespace."""
        return bool(self.labels.requirements or self.labels.nothing or self.fields.requirements)

    def matches(self, found: Object) -> bool:
        return (
            (self.namespace is None or found.key.namespace == self.namespace)
            and self.labels.matches(found.meta.labels or {})
            and self.fields.matches(found)
        )


class Page(msgspec.Struct, frozen=True, gc=False):
    """What a list found: consistent at `revision`. `token` continues where `limit` cut it off."""

    items: Sequence[Object]
    revision: Revision
    token: str = ""
    remaining: int = 0


class Change(StrEnum):
    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"  # nothing changed; `revision` is a point to resume from


class Event(msgspec.Struct, frozen=True, gc=False):
    """One change as a watcher sees it. `object` is None only for a bookmark; for DELETED it is the last state,
    with the revision of the deletion."""

    change: Change
    object: Object | None
    revision: Revision


class Options(msgspec.Struct, frozen=True, gc=False):
    """What any write may carry."""

    manager: str = "muster"
    dry_run: bool = False
    unknown_fields: Literal["Ignore", "Warn", "Strict"] = "Ignore"


DEFAULT_OPTIONS = Options()


class Create(msgspec.Struct, frozen=True, gc=False):
    """`document.metadata` carries namespace and name, or generateName. Refused: AlreadyExists, Invalid."""

    kind: Kind
    document: Document
    options: Options = DEFAULT_OPTIONS


class Replace(msgspec.Struct, frozen=True, gc=False):
    """The whole object (or its status). `metadata.resourceVersion`, where present, must be current."""

    kind: Kind
    key: Key
    document: Document
    subresource: Subresource = ""
    options: Options = DEFAULT_OPTIONS


class PatchType(StrEnum):
    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class Patch(msgspec.Struct, frozen=True, gc=False):
    """`based_on`: the revision the caller planned with; refused with Conflict if it is no longer current.
    None where the patch is right whatever the object says by now."""

    kind: Kind
    key: Key
    body: JSON
    type: PatchType = PatchType.MERGE
    subresource: Subresource = ""
    based_on: Revision | None = None
    options: Options = DEFAULT_OPTIONS


class Apply(msgspec.Struct, frozen=True, gc=False):
    """Server-side apply: the fields in `document` become the manager's, created if need be."""

    kind: Kind
    key: Key
    document: Document
    force: bool = False
    subresource: Subresource = ""
    options: Options = DEFAULT_OPTIONS


class Delete(msgspec.Struct, frozen=True, gc=False):
    """Deletes at once, or marks as terminating: finalizers, dependants in foreground, a pod that still runs.
    `within_budgets`: of a pod, its eviction: refused with TooManyRequests while a PodDisruptionBudget needs it."""

    kind: Kind
    key: Key
    propagation: Propagation | None = None
    grace_seconds: int | None = None
    uid: str | None = None
    based_on: Revision | None = None
    options: Options = DEFAULT_OPTIONS
    within_budgets: bool = False


class Bind(msgspec.Struct, frozen=True, gc=False):
    """Commits a placement: sets the pod's node once. Refused with Conflict if it has one, or its uid changed."""

    kind: Kind
    key: Key
    node: str
    uid: str | None = None
    annotations: Mapping[str, str] = {}
    options: Options = DEFAULT_OPTIONS


Write: TypeAlias = Create | Replace | Patch | Apply | Delete | Bind


class Written(msgspec.Struct, frozen=True, gc=False):
    """The object as the write left it; with `is_gone`, the last state of what no longer exists."""

    object: Object
    is_gone: bool = False
    is_new: bool = False
    warnings: tuple[str, ...] = ()


class Refused(msgspec.Struct, frozen=True):
    error: ApiError


Result: TypeAlias = Written | Refused


class Store(Protocol):
    """Four verbs. Implementations pass `muster.testing.stores.StoreSuite`."""

    async def get(self, kind: Kind, key: Key) -> Object:
        """Raises NotFound."""
        ...

    async def list(self, selection: Selection, *, limit: int = 0, token: str = "") -> Page:
        """Ordered by namespace and name. Raises Expired for a token whose revision is forgotten."""
        ...

    def watch(
        self, selection: Selection, *, since: Revision | None = None, bookmarks: bool = False
    ) -> AsyncIterator[Sequence[Event]]:
        """Changes after `since` (None: from now on), in order, none lost, in batches as they come; ends only by
        closing it or an error. Raises Expired when `since`, or a reader too slow, has fallen out of memory."""
        ...

    async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
        """One result per write, in order, once all that were accepted are durable."""
        ...


async def write_one(store: Store, write: Write) -> Object:
    """The object as the write left it. Raises what the write was refused with."""
    (result,) = await store.write([write])
    if isinstance(result, Refused):
        raise result.error
    return result.object
