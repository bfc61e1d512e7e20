"""Takes an installation out of a cluster: what carries its label, and nothing else.

Definitions of kinds go last, and take all objects of their kind with them: those that have any stay unless their user
wants them gone. Jobs that run go on, as pods.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from muster.api import coordination, core, errors, policy, scheduling, selectors
from muster.api.kinds import Kind
from muster.api.kueue import names as kueue_names
from muster.api.objects import Key, Object
from muster.deploying import kinds, names, surroundings, waiting
from muster.deploying.installing import MANAGER, Outcome, Step
from muster.runtime.clock import Clock
from muster.store.protocol import Delete, Options, Patch, PatchType, Refused, Selection, Store, write_one

_OPTIONS: Final = Options(manager=MANAGER)
_PAGE: Final = 500

# Before who answers: others could make no object of those kinds in between, and delete no namespace.
_EVERYWHERE: Final = (kinds.VALIDATING_WEBHOOKS, kinds.MUTATING_WEBHOOKS, kinds.API_SERVICE)
_INSIDE: Final = (
    kinds.SERVICE_MONITOR,
    kinds.DEPLOYMENT,
    policy.POD_DISRUPTION_BUDGET,
    core.SERVICE,
    core.CONFIG_MAP,
    core.SECRET,
    coordination.LEASE,
    kinds.ROLE_BINDING,
    kinds.ROLE,
    kinds.SERVICE_ACCOUNT,
)
_AFTER: Final = (kinds.CLUSTER_ROLE_BINDING, kinds.CLUSTER_ROLE, scheduling.PRIORITY_CLASS)
_OURS: Final = selectors.parse_labels(f"{names.PART_OF}={names.LABELS[names.PART_OF]}")


@dataclass(frozen=True, slots=True)
class Defined:
    """A definition of ours, and how many objects of its kind there are."""

    kind: Kind
    objects: int


@dataclass(frozen=True, slots=True)
class Removal:
    """What would go, in this order: the parts, then `home` and the definitions. `data`: volumes of the server, which
    would go with their namespace."""

    parts: Sequence[Object]
    data: Sequence[Object]
    home: Sequence[Object]
    definitions: Sequence[Defined]

    @property
    def is_empty(self) -> bool:
        return not (self.parts or self.data or self.home or self.definitions)

    @property
    def lost(self) -> Sequence[str]:
        """What users have put into what would go."""
        kinds = [f"{each.objects} {each.kind.resource}" for each in self.definitions if each.objects]
        return [*kinds, *(f"the data in volume {each.key.name}" for each in self.data)]


async def plan(store: Store, namespace: str) -> Removal:
    parts = [
        *[found for kind in _EVERYWHERE for found in await _ours(store, kind)],
        *[found for kind in _INSIDE for found in await _ours(store, kind, namespace)],
        *[found for kind in _AFTER for found in await _ours(store, kind)],
    ]
    data = await _ours(store, core.PERSISTENT_VOLUME_CLAIM, namespace)
    home = [found for found in await _ours(store, core.NAMESPACE) if found.key.name == namespace]
    known = await surroundings.known_definitions(store)
    ours = [found for found in known.values() if found.is_ours]
    return Removal(parts, data, home, [Defined(found.kind, await _count(store, found)) for found in ours])


async def remove(store: Store, clock: Clock, removal: Removal, *, everything: bool) -> AsyncIterator[Step]:
    """Ends when all is gone: an installation that comes right after it would go as well."""
    gone: list[tuple[Kind, Key]] = []
    stays = bool(removal.data) and not everything
    for part in removal.parts if stays else (*removal.parts, *removal.data, *removal.home):
        yield await _delete(store, part.kind, part.key)
        gone.append((part.kind, part.key))
    if stays:
        for part in (*removal.data, *removal.home):
            yield Step(_label(part.kind, part.key), Outcome.KEPT, "the server's data; --all removes it")
    released = await _release_pods(store)
    if released:
        yield Step("pods that queued", Outcome.CONFIGURED, f"{released} no longer held by a finalizer")
    for defined in removal.definitions:
        key = Key("", defined.kind.resource)
        if defined.objects and not everything:
            label, note = (
                _label(kinds.CUSTOM_RESOURCE_DEFINITION, key),
                f"{defined.objects} objects; --all removes them",
            )
            yield Step(label, Outcome.KEPT, note)
            continue
        await _let_go(store, defined.kind)
        yield await _delete(store, kinds.CUSTOM_RESOURCE_DEFINITION, key)
        gone.append((kinds.CUSTOM_RESOURCE_DEFINITION, key))
    for kind, key in gone:
        await waiting.until_gone(store, clock, kind, key)


async def _ours(store: Store, kind: Kind, namespace: str | None = None) -> Sequence[Object]:
    """Without what goes already."""
    try:
        page = await store.list(Selection(kind, namespace, _OURS))
    except errors.NotFound:
        return ()  # a kind that this cluster does not have
    return [found for found in page.items if not found.is_terminating]


async def _count(store: Store, found: surroundings.Definition) -> int:
    if not found.is_usable:
        return 0
    page = await store.list(Selection(found.kind), limit=1)
    return len(page.items) + page.remaining


async def _release_pods(store: Store) -> int:
    """How many were held by the finalizer of pods that queue: nobody would take it off, and they could never go. Where
    Kueue runs too it is left to that."""
    if any(each.project == surroundings.KUEUE for each in await surroundings.neighbours(store)):
        return 0
    page = await store.list(Selection(core.POD, labels=selectors.parse_labels(kueue_names.MANAGED)))
    held = [found for found in page.items if kueue_names.MANAGED in found.meta.finalizers]
    free = {"metadata": {"$deleteFromPrimitiveList/finalizers": [kueue_names.MANAGED]}}
    patches = [Patch(core.POD, found.key, free, PatchType.STRATEGIC, options=_OPTIONS) for found in held]
    for result in await store.write(patches) if patches else ():
        if isinstance(result, Refused) and not isinstance(result.error, errors.NotFound):
            raise result.error
    return len(held)


async def _let_go(store: Store, kind: Kind) -> None:
    """Takes off the finalizers by which our controllers hold objects: there is nobody left to do it, and what is held
    would keep its definition for ever."""
    token = ""
    while True:
        try:
            page = await store.list(Selection(kind), limit=_PAGE, token=token)
        except errors.NotFound:
            return
        held = [found for found in page.items if found.meta.finalizers]
        free = {"metadata": {"finalizers": None}}
        await store.write([Patch(kind, found.key, free, options=_OPTIONS) for found in held])
        token = page.token
        if not token:
            return


async def _delete(store: Store, kind: Kind, key: Key) -> Step:
    try:
        await write_one(store, Delete(kind, key, "Background", options=_OPTIONS))
    except errors.NotFound:
        return Step(_label(kind, key), Outcome.UNCHANGED, "was gone already")
    except errors.Forbidden as error:
        error.message += "; grant that, or use the kubeconfig of an administrator (--kubeconfig, --context)"
        raise
    return Step(_label(kind, key), Outcome.DELETED)


def _label(kind: Kind, key: Key) -> str:
    return f"{kind.name.lower()}/{key.name}"
