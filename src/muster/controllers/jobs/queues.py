"""Keeps Volcano's queues: opens and closes them, with those below them, and says what is in them.

A command is carried out and then deleted. Both can be done again without harm, so a crash in between loses nothing.
"""

from collections.abc import Iterable, Sequence

from muster.api import core, errors, volcano
from muster.api.core.requests import pod_requests
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.api.volcano.defaults import DEFAULT_QUEUE, ROOT_QUEUE
from muster.api.volcano.grouping import GROUP_ANNOTATION
from muster.api.volcano.policy_validation import QUEUE_ACTIONS
from muster.api.volcano.queue_tree import parent_of
from muster.jobs import queues
from muster.jobs.queues.planning import Told
from muster.jobs.volcano.vocabulary import Action, action_of
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.runtime.recording import EventRecorder
from muster.store.protocol import (
    Change,
    Create,
    Delete,
    Event,
    Options,
    Patch,
    Refused,
    Revision,
    Selection,
    Store,
    Write,
)

GATHER_SECONDS = 1.0
"""What pods hold changes with every one of them: it is written so often at the most."""

_OPTIONS = Options(manager="queue-controller")
_FINISHED = ("Succeeded", "Failed")


class QueueController:
    """Makes the queues `root` and `default` where they are missing: everything that names no other hangs on them."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run(self) -> None:
        await _make_own(self._store)
        await _Keeper(self._store, self._clock).run()


async def _make_own(store: Store) -> None:
    documents: Sequence[Document] = (
        {"metadata": {"name": ROOT_QUEUE}, "spec": {}},
        {"metadata": {"name": DEFAULT_QUEUE}, "spec": {"parent": ROOT_QUEUE}},
    )
    for result in await store.write([Create(volcano.QUEUE, document, _OPTIONS) for document in documents]):
        if isinstance(result, Refused) and not isinstance(result.error, errors.AlreadyExists):
            raise result.error


class _Keeper:
    """The state of one run."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._events = EventRecorder(store, clock, "queue-controller")
        self._reconciler = Reconciler("queues", self._reconcile, clock=clock)
        self._ledger = queues.Ledger()
        self._states: dict[str, str | None] = {}  # as last seen: only a change concerns the queues below
        self._asked: dict[str, tuple[object, ...]] = {}  # what else of a queue decides, as last seen
        self._queues = Informer(store, Selection(volcano.QUEUE), clock=clock)
        self._commands = Informer(store, Selection(volcano.COMMAND), clock=clock)
        self._groups = Informer(store, Selection(volcano.POD_GROUP), clock=clock)
        self._pods = Informer(store, Selection(core.POD), clock=clock)
        self._queues.index_by("parent", lambda queue: [parent_of(queue.read(volcano.Queue))])
        self._commands.index_by("queue", lambda command: [name] if (name := _target(command)) else [])
        self._queues.on_event(self._queue_changed)
        self._commands.on_event(self._command_changed)
        self._groups.on_event(self._group_changed)
        self._pods.on_event(self._pod_changed)

    async def run(self) -> None:
        informers = (self._queues, self._commands, self._groups, self._pods)
        await keep("queues", informers, self._events.run, self._reconciler.run)

    # What happens

    def _queue_changed(self, event: Event) -> None:
        assert event.object is not None
        name = event.object.key.name
        if self._is_asked_anew(event):
            self._reconciler.queue.add(name)
        else:
            self._reconciler.queue.add_after(name, GATHER_SECONDS)
        state = None if event.change is Change.DELETED else event.object.read(volcano.Queue).status.state
        if self._states.get(name) != state:
            self._states[name] = state
            for child in self._queues.by_index("parent", name):
                self._reconciler.queue.add(child.key.name)

    def _is_asked_anew(self, event: Event) -> bool:
        """Or else only its status has changed, most likely because we wrote it: to look again at once would be to write
        again at once, as long as pods come and go."""
        assert event.object is not None
        name, meta = event.object.key.name, event.object.meta
        if event.change is Change.DELETED:
            return self._asked.pop(name, None) is not None
        asked = (meta.uid, meta.generation, meta.annotations, event.object.read(volcano.Queue).status.state)
        before, self._asked[name] = self._asked.get(name), asked
        return asked != before

    def _command_changed(self, event: Event) -> None:
        assert event.object is not None
        name = _target(event.object)
        if name:
            self._reconciler.queue.add(name)

    def _group_changed(self, event: Event) -> None:
        found = event.object
        assert found is not None
        group = str(found.key)
        concerned = {self._ledger.queue_of(group)}
        if event.change is Change.DELETED:
            self._ledger.remove_group(group)
        else:
            view = found.read(volcano.PodGroup)
            self._ledger.set_group(group, view.spec.queue or DEFAULT_QUEUE, view.status.phase)
            concerned.add(self._ledger.queue_of(group))
        self._concern(name for name in concerned if name)

    def _pod_changed(self, event: Event) -> None:
        found = event.object
        assert found is not None
        name = (found.meta.annotations or {}).get(GROUP_ANNOTATION)
        if not name:
            return
        pod = found.read(core.Pod)
        is_holding = (
            event.change is not Change.DELETED and bool(pod.spec.node_name) and pod.status.phase not in _FINISHED
        )
        if is_holding == self._ledger.holds(found.uid):
            return
        group = str(Key(found.key.namespace, name))
        if is_holding:
            self._ledger.set_pod(found.uid, group, {**pod_requests(pod.spec), "pods": 1})
        else:
            self._ledger.remove_pod(found.uid)
        queue = self._ledger.queue_of(group)
        self._concern([queue] if queue else [])

    def _concern(self, names: Iterable[str]) -> None:
        """What a queue holds, those above it hold."""
        for name in names:
            for concerned in (name, *self._above(name)):
                self._reconciler.queue.add_after(concerned, GATHER_SECONDS)

    def _above(self, name: str) -> Iterable[str]:
        seen = {name}
        while (found := self._queues.get(Key("", name))) is not None:
            name = parent_of(found.read(volcano.Queue))
            if name in seen:
                return
            seen.add(name)
            yield name

    def _below(self, name: str) -> Iterable[str]:
        seen = {name}
        pending = [name]
        while pending:
            for child in self._queues.by_index("parent", pending.pop()):
                if child.key.name not in seen:
                    seen.add(child.key.name)
                    pending.append(child.key.name)
                    yield child.key.name

    # What is done about it

    async def _reconcile(self, name: str) -> float | None:
        found = self._queues.get(Key("", name))
        commands = sorted(self._commands.by_index("queue", name), key=_by_age)
        if found is None:
            await self._write([_delete(command) for command in commands])
            return None
        view = found.read(volcano.Queue)
        action = _action(commands[0]) if commands else Action.SYNC_QUEUE
        above = self._queues.get(Key("", parent_of(view))) if name != ROOT_QUEUE else None
        parent = above.read(volcano.Queue) if above is not None else None
        has_groups = self._ledger.has_groups(name)
        plan = queues.plan(view, parent, action or Action.SYNC_QUEUE, has_groups=has_groups)
        await self._write(self._changes(found, plan))
        await self._write([_delete(command) for command in commands[:1]])  # done is done: not before
        told = list(plan.told)
        if action is None:
            message = f"a queue can be opened and closed; {_said(commands[0])} is ignored"
            told.append(Told("Warning", "UnknownAction", message))
        for saying in told:
            self._events.record(found, saying.type, saying.reason, saying.message)
        return None

    def _changes(self, found: Object, plan: queues.Plan) -> Sequence[Write]:
        body: Document = {}
        if plan.mark is not None:
            body["metadata"] = {"annotations": {queues.CLOSED_BY_PARENT: plan.mark}}
        if plan.parent is not None:
            body["spec"] = {"parent": plan.parent}
        marks = [Patch(volcano.QUEUE, found.key, body, options=_OPTIONS)] if body else []
        # Marked before it is closed, and open before the mark goes: where only the first is done, the next look sees
        # what is left to do.
        is_marked_first = plan.mark == "true"
        states = self._status(found, plan, is_current=not is_marked_first)
        return [*marks, *states] if is_marked_first else [*states, *marks]

    def _status(self, found: Object, plan: queues.Plan, *, is_current: bool) -> Sequence[Write]:
        name = found.key.name
        allocated: Document = dict(self._ledger.allocated([name, *self._below(name)]))
        status: Document = {"state": str(plan.state), **self._ledger.counts(name), "allocated": allocated}
        present = found.document().get("status") or {}
        if {**present, **status} == present:
            return ()
        status["allocated"] = {**dict.fromkeys(present.get("allocated") or ()), **allocated}
        based_on = Revision(found.revision) if is_current else None
        body = {"status": status}
        return [Patch(volcano.QUEUE, found.key, body, subresource="status", based_on=based_on, options=_OPTIONS)]

    async def _write(self, writes: Sequence[Write]) -> None:
        if not writes:
            return
        for result in await self._store.write(writes):
            if isinstance(result, Refused) and not isinstance(result.error, errors.NotFound):
                raise result.error


def _target(command: Object) -> str | None:
    target = command.read(volcano.Command).target
    return target.name if target is not None and target.kind == volcano.QUEUE.name else None


def _action(command: Object) -> Action | None:
    said = _said(command)
    return action_of(said) if said in QUEUE_ACTIONS else None


def _said(command: Object) -> str:
    return command.read(volcano.Command).action or ""


def _by_age(command: Object) -> tuple[str, int]:
    return command.meta.creation_timestamp or "", command.revision


def _delete(command: Object) -> Delete:
    return Delete(volcano.COMMAND, command.key, uid=command.uid, options=_OPTIONS)
