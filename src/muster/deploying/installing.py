"""Makes an installation, or brings one up to date: by server-side apply, in the order in which parts need each other.

Nothing that somebody else has made is changed. Running it again changes only what has changed.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from muster.api import core, errors, policy, scheduling
from muster.api.errors import ApiError
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.ownership import Unlabelled
from muster.api.raw import Document
from muster.api.registry import Registry
from muster.deploying import definitions, kinds, manifests, names, surroundings, waiting
from muster.deploying.slots import Chosen
from muster.deploying.surroundings import Definition, Neighbour
from muster.runtime.clock import Clock
from muster.store.protocol import Apply, Create, Options, Store, write_one

MANAGER: Final = "muster-install"
_HELM: Final = ("app.kubernetes.io/managed-by", "Helm")

PARTS: Final = Registry(
    (
        scheduling.PRIORITY_CLASS,
        kinds.SERVICE_ACCOUNT,
        kinds.CLUSTER_ROLE,
        kinds.CLUSTER_ROLE_BINDING,
        kinds.ROLE,
        kinds.ROLE_BINDING,
        core.CONFIG_MAP,
        core.PERSISTENT_VOLUME_CLAIM,
        kinds.DEPLOYMENT,
        core.SERVICE,
        policy.POD_DISRUPTION_BUDGET,
        kinds.SERVICE_MONITOR,
    )
)
"""The kinds of what `manifests` makes."""


class Outcome(StrEnum):
    CREATED = "created"
    CONFIGURED = "configured"
    UNCHANGED = "unchanged"
    KEPT = "kept"  # somebody else's, and used as it is
    READY = "ready"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Step:
    """What was done to one object. `note`: what its reader should know; `is_warning`: and do something about."""

    label: str
    outcome: Outcome
    note: str = ""
    is_warning: bool = False


def whose_unlabelled(neighbours: Sequence[Neighbour]) -> Unlabelled:
    """What suits a cluster where nobody has said: objects that others look after by now stay theirs."""
    return Unlabelled.THEIRS if neighbours else Unlabelled.OURS


class Installer:
    """`dry_run`: the server checks everything, and nothing is changed."""

    def __init__(self, store: Store, clock: Clock, *, dry_run: bool = False) -> None:
        self._store = store
        self._clock = clock
        self._options = Options(manager=MANAGER, dry_run=dry_run)

    async def install(self, chosen: Chosen) -> AsyncIterator[Step]:
        await self._refuse_another_owner(chosen)
        async for step in self._define():
            yield step
        namespace = await self._make_namespace(chosen)
        yield namespace
        is_pretended = self._options.dry_run and namespace.outcome is Outcome.CREATED
        for document in manifests.documents(chosen):
            kind = PARTS.by_document(document["apiVersion"], document["kind"])
            if is_pretended and kind.namespaced:
                yield Step(_label(kind, document["metadata"]["name"]), Outcome.CREATED)  # nobody could check it
            else:
                yield await self._apply(kind, document)

    async def _refuse_another_owner(self, chosen: Chosen) -> None:
        """Two programs that each keep the same objects as they want them would go on for ever."""
        key = Key(chosen.namespace, names.CONTROLLER)
        try:
            found = await self._store.get(kinds.DEPLOYMENT, key)
        except errors.NotFound:
            return
        label, value = _HELM
        if (found.meta.labels or {}).get(label) == value:
            raise errors.Conflict(f"deployment {key} was installed by Helm: use `helm upgrade`, or uninstall it first")

    async def _define(self) -> AsyncIterator[Step]:
        known = await surroundings.known_definitions(self._store)
        made: list[Kind] = []
        for kind in definitions.kinds():
            there = known.get(kind)
            if there is not None and not there.is_ours:
                yield _kept(there)
                continue
            await waiting.until_gone(self._store, self._clock, kinds.CUSTOM_RESOURCE_DEFINITION, Key("", kind.resource))
            document = definitions.definition(kind)
            if kind.conversions and there is not None and there.conversion.get("strategy") == "Webhook":
                document["spec"]["conversion"] = there.conversion  # the controllers have put it right
            made.append(kind)
            yield await self._apply(kinds.CUSTOM_RESOURCE_DEFINITION, document)
        if not self._options.dry_run:
            for kind in made:
                await self._wait_until_established(kind)
            yield Step("definitions of kinds", Outcome.READY, f"{len(made)} established")

    async def _wait_until_established(self, kind: Kind) -> None:
        key = Key("", kind.resource)

        async def is_established() -> bool:
            found = surroundings.definition(kind, await self._store.get(kinds.CUSTOM_RESOURCE_DEFINITION, key))
            if found.trouble:
                raise errors.Conflict(f"{key.name}: the API server does not take its names: {found.trouble}")
            return found.is_established

        await waiting.until(self._clock, is_established, f"{key.name}: not established")

    async def _make_namespace(self, chosen: Chosen) -> Step:
        """One that is there already stays as it is, and will not be removed with us."""
        label = _label(core.NAMESPACE, chosen.namespace)
        try:
            await waiting.until_gone(self._store, self._clock, core.NAMESPACE, Key("", chosen.namespace))
            await write_one(self._store, Create(core.NAMESPACE, manifests.namespace(chosen), self._options))
        except errors.AlreadyExists:
            return Step(label, Outcome.UNCHANGED)
        except ApiError as error:
            raise _told(error, label) from error
        return Step(label, Outcome.CREATED)

    async def _apply(self, kind: Kind, document: Document) -> Step:
        metadata = document["metadata"]
        key = Key(metadata.get("namespace", ""), metadata["name"])
        label = _label(kind, key.name)
        try:
            before = await self._wish(kind, key)
            write = Apply(kind, key, document, force=True, options=self._options)
            after = _wish_of(await write_one(self._store, write))
        except ApiError as error:
            raise _told(error, label) from error
        if before is None:
            return Step(label, Outcome.CREATED)
        return Step(label, Outcome.UNCHANGED if before == after else Outcome.CONFIGURED)

    async def _wish(self, kind: Kind, key: Key) -> Document | None:
        try:
            return _wish_of(await self._store.get(kind, key))
        except errors.NotFound:
            return None


def _wish_of(found: Object) -> Document:
    """What is wanted of an object. Its status, and with it its version, others change all the time."""
    document = found.document()
    document.pop("status", None)
    for name in ("resourceVersion", "managedFields", "generation"):
        document["metadata"].pop(name, None)
    return document


def _kept(there: Definition) -> Step:
    label = _label(kinds.CUSTOM_RESOURCE_DEFINITION, there.kind.resource)
    if there.kind.version in there.served:
        return Step(label, Outcome.KEPT, "of another installation, used as it is")
    served = ", ".join(sorted(there.served)) or "no version"
    note = f"serves {served}, and Muster reads {there.kind.version}: these objects are left alone until it serves that"
    return Step(label, Outcome.KEPT, note, is_warning=True)


def _label(kind: Kind, name: str) -> str:
    return f"{kind.name.lower()}/{name}"


def _told(error: ApiError, label: str) -> ApiError:
    """The same error, which also says about what it is and what to do."""
    error.message = f"{label}: {error.message}"
    if isinstance(error, errors.Forbidden):
        error.message += "; grant that, or use the kubeconfig of an administrator (--kubeconfig, --context)"
    return error
