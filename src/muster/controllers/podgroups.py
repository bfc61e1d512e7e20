"""Keeps the status of pod groups: their phase, the counts of their pods, and whether they could be scheduled.

Phases and conditions are Volcano's, so that its clients read them; they follow from the pods alone, but that the group
of a job which waits for quota is pending. Pods that are to be scheduled as Volcano does but come without a group get
one, together with the other pods of their owner.
"""

import contextlib
from collections.abc import Mapping, Sequence

from muster.api import conditions, core, errors, timestamps, volcano
from muster.api.everything import REGISTRY
from muster.api.kueue import sizing
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.api.volcano import grouping
from muster.cluster.pods import GROUP_ANNOTATION
from muster.jobs.grouping import make_group
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.runtime.keeping import keep
from muster.runtime.reconciling import Reconciler
from muster.runtime.recording import EventRecorder
from muster.store.protocol import Change, Create, Event, Options, Patch, Refused, Revision, Selection, Store, write_one

GATHER_SECONDS = 0.02
"""Pods of a gang change together: their changes are gathered for so long before the group is written, and longer where
there are many to count."""
GATHER_SECONDS_PER_POD = 100e-6

_OPTIONS = Options(manager="muster-podgroups")
_WORKERS = 32  # they mostly wait for their writes, and those that wait together share a commit
_FINISHED = ("Succeeded", "Failed")
_SCHEDULED, _UNSCHEDULABLE = "Scheduled", "Unschedulable"


def status_of(group: Object, pods: Sequence[core.Pod], now_text: str) -> Document:
    """The status that the group should have, given its pods. Equal to the present one when nothing is new."""
    view = group.read(volcano.PodGroup)
    minimum = max(1, view.spec.min_member or 0)
    scheduled = [pod for pod in pods if pod.spec.node_name]
    phases = [pod.status.phase for pod in pods]
    is_held = sizing.is_held(view.metadata.annotations)
    refusal = None if is_held or len(scheduled) >= minimum else _refusal(pods, len(scheduled), minimum)
    phase = _phase(view.status.phase, scheduled, minimum, is_refused=refusal is not None)
    wanted: Document = {
        "phase": phase if not is_held else "Pending",
        "running": phases.count("Running"),
        "succeeded": phases.count("Succeeded"),
        "failed": phases.count("Failed"),
    }
    listed = _conditions(group, refusal, now_text, is_scheduled=not is_held and len(scheduled) >= minimum)
    if listed:
        wanted["conditions"] = [_document(condition) for condition in listed]
    return wanted


def _conditions(
    group: Object, refusal: tuple[str, str] | None, now_text: str, *, is_scheduled: bool
) -> Sequence[volcano.PodGroupCondition]:
    listed = {condition.type: condition for condition in group.read(volcano.PodGroup).status.conditions}
    told: dict[str, tuple[str, str, str]] = {}  # status, reason, message
    if is_scheduled:
        told[_SCHEDULED] = ("True", "tasks in gang are ready to be scheduled", "")
    elif refusal is not None:
        told[_UNSCHEDULABLE] = ("True", *refusal)
    if told:
        # The two contradict each other: one that held before no longer does.
        told |= {
            type: ("False", "", "") for type in (_SCHEDULED, _UNSCHEDULABLE) if type in listed and type not in told
        }
    for type, (status, reason, message) in told.items():
        before = listed.get(type)
        if before is None or (before.status, before.reason or "", before.message or "") != (status, reason, message):
            listed[type] = volcano.PodGroupCondition(
                type=type,
                status=status,
                transition_id=f"{group.uid}-{group.revision}",
                last_transition_time=now_text,
                reason=reason,
                message=message,
            )
    return list(listed.values())


def _phase(before: str | None, scheduled: Sequence[core.Pod], minimum: int, *, is_refused: bool) -> str:
    if len(scheduled) >= minimum:
        return "Completed" if all(pod.status.phase in _FINISHED for pod in scheduled) else "Running"
    if is_refused and any(pod.status.phase == "Running" for pod in scheduled):
        return "Unknown"  # part of the gang runs, and the rest cannot
    if before == "Completed" and not scheduled:
        return "Completed"  # its pods were cleaned up
    return "Inqueue"


def _refusal(pods: Sequence[core.Pod], scheduled: int, minimum: int) -> tuple[str, str] | None:
    """Reason and message, once the scheduler has said of a pod that it cannot be placed."""
    waiting = [pod for pod in pods if not pod.spec.node_name and pod.status.phase not in _FINISHED]
    told = [conditions.find(pod.status.conditions, "PodScheduled") for pod in waiting]
    refused = [condition for condition in told if condition is not None and condition.status == "False"]
    if not refused:
        return None
    reason = "NotEnoughResources" if len(waiting) + scheduled >= minimum else "NotEnoughTasks"
    message = (
        f"{minimum - scheduled}/{len(pods)} tasks in gang unschedulable: pod group is not ready, "
        f"{len(waiting)} Pending, {minimum} minAvailable; {refused[0].message}"
    )
    return reason, message


def _document(condition: volcano.PodGroupCondition) -> Document:
    fields: Document = {
        "type": condition.type,
        "status": condition.status,
        "transitionID": condition.transition_id,
        "lastTransitionTime": condition.last_transition_time,
        "reason": condition.reason,
        "message": condition.message,
    }
    return {name: value for name, value in fields.items() if value is not None}


class PodGroupController:
    """`makes_groups`: for pods that ask for Volcano's scheduler and are in none, where nobody else does."""

    def __init__(self, store: Store, clock: Clock, *, makes_groups: bool = True) -> None:
        self._store = store
        self._clock = clock
        self._makes_groups = makes_groups

    async def run(self) -> None:
        await _Keeper(self._store, self._clock, self._makes_groups).run()


class _Keeper:
    """The state of one run."""

    def __init__(self, store: Store, clock: Clock, makes_groups: bool) -> None:
        self._store = store
        self._clock = clock
        self._makes_groups = makes_groups
        self._events = EventRecorder(store, clock, "muster-podgroups")
        self._reconciler = Reconciler("podgroups", self._reconcile, clock=clock, workers=_WORKERS)
        self._groups = Informer(store, Selection(volcano.POD_GROUP), clock=clock)
        self._pods = Informer(store, Selection(core.POD), clock=clock)
        self._pods.index_by("group", lambda pod: [str(key)] if (key := _group_of(pod)) else [])
        self._groups.on_event(self._group_changed)
        self._pods.on_event(self._pod_changed)
        self._making = Reconciler("groups of pods", self._make, clock=clock, workers=2)

    async def run(self) -> None:
        await keep("podgroups", [self._groups, self._pods], self._events.run, self._reconciler.run, self._making.run)

    def _group_changed(self, event: Event) -> None:
        assert event.object is not None
        self._reconciler.queue.add(event.object.key)

    def _pod_changed(self, event: Event) -> None:
        pod = event.object
        assert pod is not None
        key = _group_of(pod)
        if key is not None:
            delay = GATHER_SECONDS + GATHER_SECONDS_PER_POD * len(self._pods.by_index("group", str(key)))
            self._reconciler.queue.add_after(key, delay)
        if self._makes_groups and event.change is not Change.DELETED and _may_lack_group(pod, key):
            self._making.queue.add(pod.key)

    async def _reconcile(self, key: Key) -> float | None:
        group = self._groups.get(key)
        if group is None or group.is_terminating:
            return None
        members = self._pods.by_index("group", str(key))
        pods = [pod.read(core.Pod) for pod in sorted(members, key=lambda pod: pod.key)]
        wanted = status_of(group, pods, timestamps.to_text(self._clock.now()))
        present = group.document().get("status") or {}
        if {**present, **wanted} == present:
            return None
        body, based_on = {"status": wanted}, Revision(group.revision)
        patch = Patch(volcano.POD_GROUP, key, body, subresource="status", based_on=based_on, options=_OPTIONS)
        with contextlib.suppress(errors.NotFound):  # deleted meanwhile: its job is done
            await write_one(self._store, patch)
            self._tell(group, wanted)
        return None

    async def _make(self, key: Key) -> float | None:
        """The group that the pod is to be in, and the pod's mark that it is."""
        pod = self._pods.get(key)
        if pod is None or pod.is_terminating:
            return None
        view = pod.read(core.Pod)
        name = grouping.group_name(pod.meta)
        if self._groups.get(Key(key.namespace, name)) is None:
            document = make_group(view, await self._owner_annotations(pod))
            (result,) = await self._store.write([Create(volcano.POD_GROUP, document, _OPTIONS)])
            if isinstance(result, Refused) and not isinstance(result.error, errors.AlreadyExists):
                self._events.record(pod, "Warning", "FailedCreatePodGroup", result.error.message)
                raise errors.Unavailable(result.error.message) from result.error
        if grouping.needs_group(view):
            body = {"metadata": {"uid": pod.uid, "annotations": {GROUP_ANNOTATION: name}}}
            with contextlib.suppress(errors.NotFound):
                await write_one(self._store, Patch(core.POD, key, body, options=_OPTIONS))
        return None

    async def _owner_annotations(self, pod: Object) -> Mapping[str, str]:
        """Of what controls the pod, where it is a kind that we know."""
        owner = grouping.controller_of(pod.meta)
        if owner is None:
            return {}
        try:
            kind = REGISTRY.by_document(owner.api_version, owner.kind)
            found = await self._store.get(kind, Key(pod.key.namespace if kind.namespaced else "", owner.name))
        except errors.NotFound:
            return {}
        return (found.meta.annotations or {}) if found.uid == owner.uid else {}

    def _tell(self, group: Object, wanted: Document) -> None:
        before = {condition.message for condition in group.read(volcano.PodGroup).status.conditions}
        for condition in wanted.get("conditions", ()):
            is_refusal = condition["type"] == _UNSCHEDULABLE and condition["status"] == "True"
            if is_refusal and condition.get("message") not in before:
                self._events.record(group, "Warning", _UNSCHEDULABLE, condition["message"])


def _may_lack_group(pod: Object, group: Key | None) -> bool:
    """Named or not: a group that is made for pods is made when the first of them is seen."""
    if pod.is_terminating or (group is not None and group.name != grouping.group_name(pod.meta)):
        return False
    view = pod.read(core.Pod)
    if view.status.phase in _FINISHED:
        return False
    return group is not None or grouping.needs_group(view)


def _group_of(pod: Object) -> Key | None:
    name = (pod.meta.annotations or {}).get(GROUP_ANNOTATION)
    return Key(pod.key.namespace, name) if name else None
