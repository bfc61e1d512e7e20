"""Deciding one write against the committed objects and what the current group has staged on top of them."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.api import core, errors, policy, raw, scheduling
from muster.api.kinds import Kind
from muster.api.managing import TakeIn
from muster.api.meta import Instant
from muster.api.objects import Key, Object
from muster.api.policy import disrupting
from muster.api.raw import Document
from muster.store import completing, protocol, revising
from muster.store.protocol import Write
from muster.store.revising import Context, Revised
from muster.store.tables import Entry, Table


@dataclass(slots=True)
class Decider:
    """Lives for one group. `staged` is what the group has decided so far (None: deleted), not yet seen by readers."""

    tables: Mapping[Kind, Table]
    now: Instant
    now_text: str
    entropy: random.Random
    entries: list[Entry] = field(default_factory=list)
    staged: dict[tuple[Kind, Key], Object | None] = field(default_factory=dict)
    take_in: TakeIn | None = None

    def find(self, kind: Kind, key: Key) -> Object | None:
        if (kind, key) in self.staged:
            return self.staged[kind, key]
        return self.tables[kind].objects.get(key)

    def revise(self, write: Write, revision: int) -> tuple[Object | None, Revised]:
        """The current object and what the write makes of it. Raises ApiError."""
        context = Context(self.now, self.now_text, revision, self.entropy.getrandbits, self.find, self._complete)
        if isinstance(write, protocol.Create):
            return None, self._create(write, context)
        current = self.find(write.kind, write.key)
        if isinstance(write, protocol.Apply):
            if current is None:
                self._check_namespace(write.kind, write.key)
            return current, revising.apply(_named(write), current, context)
        if current is None:
            raise revising.not_found(write.kind, write.key)
        match write:
            case protocol.Replace():
                return current, revising.replace_object(write, current, context)
            case protocol.Patch():
                return current, revising.patch(write, current, context)
            case protocol.Delete():
                if write.within_budgets:
                    self._check_budgets(current)
                return current, revising.delete(write, current, context)
            case protocol.Bind():
                return current, revising.bind(write, current, context)

    def _create(self, write: protocol.Create, context: Context) -> Revised:
        kind = write.kind
        metadata = raw.dig(write.document, "metadata")
        named = Key(
            str(raw.dig(metadata, "namespace", default="")) if kind.namespaced else "",
            str(raw.dig(metadata, "name", default="")),
        )
        self._check_namespace(kind, named)
        if named.name and self.find(kind, named) is not None:
            raise errors.AlreadyExists(
                f'{kind.resource} "{named.name}" already exists', kind=kind.plural, name=named.name, group=kind.group
            )
        return revising.create(write, context)

    def _check_namespace(self, kind: Kind, key: Key) -> None:
        if not kind.namespaced:
            return
        if not key.namespace:
            raise errors.BadRequest(f"an empty namespace may not be set during creation of {kind.resource}")
        namespace = self.find(core.NAMESPACE, Key("", key.namespace))
        if namespace is None:
            raise errors.NotFound(f'namespaces "{key.namespace}" not found', kind="namespaces", name=key.namespace)
        if namespace.is_terminating:
            raise errors.Forbidden(
                f'{kind.resource} "{key.name}" is forbidden: unable to create new content in namespace '
                f"{key.namespace} because it is being terminated",
                kind=kind.plural, name=key.name, group=kind.group,
            )  # fmt: skip

    def _complete(self, kind: Kind, document: Document) -> None:
        if kind is core.POD:
            completing.complete_pod(document, self.find, self._default_priority_class(), self._limit_ranges(document))
        if self.take_in is not None:
            self.take_in(kind, document, self.find)

    def _check_budgets(self, pod: Object) -> None:
        """Raises TooManyRequests. What this group has evicted before counts: of two at once the second is refused."""
        if disrupting.is_free(pod):
            return
        namespace = pod.key.namespace
        budget = disrupting.covering(pod, self._all(policy.POD_DISRUPTION_BUDGET, namespace))
        if budget is None:
            return
        selector = disrupting.selector_of(budget)
        covered = [other for other in self._all(core.POD, namespace) if selector.matches(other.meta.labels or {})]
        refusal = disrupting.refusal(pod, budget, covered)
        if refusal is not None:
            raise refusal

    def _all(self, kind: Kind, namespace: str) -> list[Object]:
        known = self.tables[kind].objects
        changed = {key: found for (of, key), found in self.staged.items() if of is kind}
        found = (changed.get(key, known.get(key)) for key in {**known, **changed} if key.namespace == namespace)
        return [each for each in found if each is not None]

    def _limit_ranges(self, pod: Document) -> list[core.LimitRange]:
        """Of the pod's namespace, by name: of two that give a default the first counts."""
        known = self.tables[core.LIMIT_RANGE].objects
        if not known:
            return []
        namespace = str(raw.dig(pod, "metadata", "namespace", default=""))
        return [known[key].read(core.LimitRange) for key in sorted(known) if key.namespace == namespace]

    def _default_priority_class(self) -> Object | None:
        defaults = (
            found
            for found in self.tables[scheduling.PRIORITY_CLASS].objects.values()
            if found.read(scheduling.PriorityClass).global_default
        )
        return next(defaults, None)


def _named(write: protocol.Apply) -> protocol.Apply:
    """The applied document with the name and namespace it was sent to."""
    document = {**write.document, "metadata": {**(write.document.get("metadata") or {})}}
    document["metadata"]["name"] = write.key.name
    if write.key.namespace:
        document["metadata"]["namespace"] = write.key.namespace
    return protocol.Apply(write.kind, write.key, document, write.force, write.subresource, write.options)
