"""Which job another one is part of, through whatever stands between them: a job's pod may make jobs of its own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from muster.api import errors
from muster.api.everything import REGISTRY
from muster.api.kinds import Kind
from muster.api.meta import ObjectMeta, OwnerReference
from muster.api.objects import Key, Object
from muster.runtime.informers import Informer
from muster.store.protocol import Store

MOST_HOPS: Final = 10
Ref: TypeAlias = tuple[Kind, Key]


@dataclass(frozen=True, slots=True)
class Above:
    """What stands above a job. `top`: the topmost job that queues; None where it stands for itself."""

    top: Object | None = None
    is_orphan: bool = False
    """Its owner is gone, or not yet seen: it will go too, or it will be seen."""
    problem: str = ""


class Ancestry:
    """Remembers who was found to be part of whom, since nothing in the store leads from the top down."""

    def __init__(self, store: Store, jobs: Mapping[Kind, Informer]) -> None:
        """`jobs`: the kinds that queue, followed."""
        self._store = store
        self._jobs = jobs
        self._parts: dict[Ref, set[Ref]] = {}
        self._tops: dict[Ref, Ref] = {}

    def parts_of(self, job: Ref) -> Iterable[Ref]:
        return tuple(self._parts.get(job, ()))

    def forget(self, job: Ref) -> None:
        top = self._tops.pop(job, None)
        if top is not None:
            parts = self._parts[top]
            parts.discard(job)
            if not parts:
                del self._parts[top]

    async def above(self, job: Object) -> Above:
        found = await self._climb(job)
        ref = job.kind, job.key
        self.forget(ref)
        if found.top is not None:
            top = self._tops[ref] = found.top.kind, found.top.key
            self._parts.setdefault(top, set()).add(ref)
        return found

    async def _climb(self, job: Object) -> Above:
        top: Object | None = None
        current, seen = job, {job.uid}
        for _ in range(MOST_HOPS):
            owner = controller_of(current.meta)
            kind = _kind_of(owner) if owner is not None else None
            if owner is None or kind is None:
                return Above(top)
            above = await self._get(kind, Key(job.key.namespace if kind.namespaced else "", owner.name))
            if above is None or above.uid != owner.uid:
                return Above(top, is_orphan=True)
            if above.uid in seen:
                return Above(problem="its owner references form a cycle: it is left alone")
            seen.add(above.uid)
            if kind in self._jobs:
                top = above
            current = above
        if controller_of(current.meta) is None:
            return Above(top)
        return Above(top, problem=f"more than {MOST_HOPS} owners stand above it: those beyond are not looked at")

    async def _get(self, kind: Kind, key: Key) -> Object | None:
        known = self._jobs.get(kind)
        found = known.get(key) if known is not None else None
        if found is not None:
            return found
        try:
            return await self._store.get(kind, key)
        except errors.NotFound:
            return None


def controller_of(meta: ObjectMeta) -> OwnerReference | None:
    return next((owner for owner in meta.owner_references if owner.controller), None)


def _kind_of(owner: OwnerReference) -> Kind | None:
    """None for a kind that is not known here: what stands above it is no job of ours."""
    try:
        return REGISTRY.by_document(owner.api_version, owner.kind)
    except errors.NotFound:
        return None
