"""Checks at the API's edge that need other objects: whether nodes could hold a pod, whether a queue exists and is open,
whether a job must stay in one.

Only here: what controllers write to the store does not pass. Between the look and the write something may change; then
the controllers say what is wrong, as they do when it changes later.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from muster.api import batch, core, errors, kubeflow, kueue, muster, objects, raw, scheduling, volcano
from muster.api.errors import FieldError
from muster.api.kinds import Kind
from muster.api.kueue import labels, names
from muster.api.meta import Resource
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.api.volcano import admission
from muster.api.volcano.queue_tree import QueueTree, check_queue, check_queue_removal
from muster.server.fitting import Fitting
from muster.store.protocol import Apply, Create, Patch, Refused, Replace, Selection, Store

_BUILT_IN_PRIORITIES = ("system-cluster-critical", "system-node-critical")


class Admitting:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._fitting = Fitting(store)

    async def created(self, write: Create) -> None:
        """Raises Invalid with all that is wrong, the object's own mistakes included."""
        if write.kind is core.POD:
            await self._fitting.check(write.document)
        if write.kind not in _CHECKED:
            return
        problems = await self._problems_of(write.kind, write.document)
        if problems:
            raise await self._together(write, problems)

    async def changed(self, write: Replace | Patch | Apply) -> None:
        """What exists can go wrong as a queue, or by leaving one: what jobs and pod groups name else is fixed. But to
        apply may create."""
        if write.subresource:
            return
        queued = await self._queued(write) if write.kind in _QUEUED else None
        is_apply = isinstance(write, Apply)
        if queued is None and write.kind not in (_CHECKED if is_apply else _CHECKED_LATER):
            return
        (result,) = await self._store.write([replace(write, options=replace(write.options, dry_run=True))])
        if isinstance(result, Refused):
            raise await self._refusal(write, result.error)
        if queued is not None:
            problems = await self._label_problems(queued, result.object)
            if problems:
                raise _invalid(write.kind, write.key.name, problems)
        if not result.is_new and write.kind not in _CHECKED_LATER:
            return
        if write.kind is core.POD:
            await self._fitting.check(result.object.document())
        problems = await self._problems(result.object.view)
        if problems:
            raise _invalid(write.kind, write.key.name, problems)

    async def reviewed(self, old: Object | None, new: Object) -> Sequence[FieldError]:
        """What another server asks about before it stores the object: the same, but for whether nodes could hold it."""
        problems: list[FieldError] = []
        if old is not None and new.kind in _QUEUED and _is_queued(old):
            problems += await self._label_problems(old, new)
        if new.kind in (_CHECKED if old is None else _CHECKED_LATER):
            problems += await self._problems(new.view)
        return problems

    async def _queued(self, write: Replace | Patch | Apply) -> Object | None:
        """What is there now, where it is in a queue: most pods are not."""
        try:
            found = await self._store.get(write.kind, write.key)
        except errors.NotFound:
            return None
        return found if _is_queued(found) else None

    async def _label_problems(self, old: Object, new: Object) -> Sequence[FieldError]:
        problems: list[FieldError] = []
        if old.kind is core.POD:
            gates = [gate.name for gate in old.read(core.Pod).spec.scheduling_gates]
            problems += labels.validate_pod_label_update(old.meta, new.meta, is_gated=names.ADMISSION_GATE in gates)
        kept = list(labels.validate_queue_kept(old.meta, new.meta))
        if kept and await self._has_default_queue(old.key.namespace):
            problems += kept
        return problems

    async def _has_default_queue(self, namespace: str) -> bool:
        try:
            await self._store.get(kueue.LOCAL_QUEUE, Key(namespace, names.DEFAULT))
        except errors.NotFound:
            return False
        return True

    async def _refusal(self, write: Replace | Patch | Apply, error: errors.ApiError) -> errors.ApiError:
        """With the rest of what is wrong, where to apply would have created."""
        if not isinstance(write, Apply) or not isinstance(error, errors.Invalid):
            return error
        try:
            await self._store.get(write.kind, write.key)
        except errors.NotFound:
            problems = await self._problems_of(write.kind, write.document)
            return _invalid(write.kind, write.key.name, [*error.causes, *problems])
        return error

    async def deleted(self, kind: Kind, key: Key) -> None:
        """Raises Forbidden for a queue that others need."""
        if kind is not volcano.QUEUE:
            return
        why = check_queue_removal(key.name, await self._tree())
        if why is not None:
            raise errors.Forbidden(why, kind=kind.plural, name=key.name, group=kind.group)

    async def _problems_of(self, kind: Kind, document: Document) -> Sequence[FieldError]:
        """Of a new object. One whose shape is wrong has none here: the store has better words for that."""
        view = _view(kind, document)
        return await self._problems(view) if view is not None else []

    async def _problems(self, view: Resource) -> Sequence[FieldError]:
        match view:
            case core.Pod():
                return admission.check_pod(view)
            case volcano.PodGroup():
                return admission.check_pod_group(view, await self._tree()) if view.spec.queue else []
            case volcano.Queue():
                tree = await self._tree()
                return check_queue(view, tree.by_name.get(view.metadata.name), tree)
            case volcano.Job():
                return admission.check_job(view, await self._tree(), await self._priority_classes(view))
        raise AssertionError(f"{type(view)} is not checked here")

    async def _tree(self) -> QueueTree:
        return QueueTree.of(found.read(volcano.Queue) for found in (await self._store.list(_QUEUES)).items)

    async def _priority_classes(self, job: volcano.Job) -> list[str]:
        """Those that exist, of those that the job names."""
        found = list(_BUILT_IN_PRIORITIES)
        for name in set(admission.named_priority_classes(job).values()):
            try:
                await self._store.get(scheduling.PRIORITY_CLASS, Key("", name))
            except errors.NotFound:
                continue
            found.append(name)
        return found

    async def _together(self, write: Create, problems: Sequence[FieldError]) -> errors.ApiError:
        """With what the store itself would say against the object."""
        (result,) = await self._store.write([replace(write, options=replace(write.options, dry_run=True))])
        if not isinstance(result, Refused):
            own: Sequence[FieldError] = ()
        elif isinstance(result.error, errors.Invalid):
            own = result.error.causes
        else:
            return result.error
        name = raw.dig(write.document, "metadata", "name") or raw.dig(write.document, "metadata", "generateName")
        return _invalid(write.kind, str(name or ""), [*own, *problems])


_CHECKED = frozenset({core.POD, volcano.JOB, volcano.POD_GROUP, volcano.QUEUE})
_CHECKED_LATER = frozenset({volcano.QUEUE})
_QUEUED = frozenset({batch.JOB, kubeflow.PYTORCH_JOB, volcano.JOB, muster.ALLOCATION, core.POD})
_QUEUES = Selection(volcano.QUEUE)


def _is_queued(found: Object) -> bool:
    given = found.meta.labels or {}
    return names.QUEUE_LABEL in given or names.MANAGED in given


def _view(kind: Kind, document: Document) -> Resource | None:
    """As it will be stored, or None where its shape is wrong or there is nothing to look at."""
    if kind is core.POD and not raw.dig(document, "metadata", "annotations"):
        return None  # pods are many
    completed = raw.copy(document)
    try:
        kind.default(completed)
        return objects.view_of(kind, completed)
    except errors.Invalid:
        return None


def _invalid(kind: Kind, name: str, problems: Sequence[FieldError]) -> errors.ApiError:
    return errors.invalid(kind.name, name, problems, group=kind.group)
