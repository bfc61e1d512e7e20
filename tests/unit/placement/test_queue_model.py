"""The scheduling queue against a naive model of it: lists, loops over every pod, nothing remembered between steps.

Whatever the order in which pods come and go, attempts end and the cluster changes, both agree on where every pod is and
on what goes next; and nothing waits that a change since the start of its last attempt could have helped.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from muster.api import core
from muster.api.meta import Resource
from muster.cluster.groups import Group, GroupKey, PodGroups, group_key
from muster.cluster.pods import PodInfo, Shapes
from muster.cluster.state import ClusterState
from muster.placement.framework import Action, Hint, Wake
from muster.placement.plugins.gang_scheduling import GangScheduling
from muster.placement.profiles import DEFAULT_SCHEDULER, Profile
from muster.placement.queueing import ClusterChange, Place, Queued, SchedulingQueue
from muster.placement.queueing.entities import EntityKey
from muster.testing.builders import a_node, a_pod

SHAPES = Shapes()
KINDS = ("x", "y")
LEAST = 2
GANG = "GangScheduling"


class Listener:
    """Rejects pods of any kind; a node helps those whose kind it is labelled with."""

    def __init__(self, name: str, action: Action) -> None:
        self.name = name  # type: ignore[misc]  # one class for two plugins
        self._action = action

    name: ClassVar[str] = ""

    def wakes(self) -> Sequence[Wake]:
        return (Wake("Node", frozenset({self._action}), self.hint),)

    def hint(self, pod: PodInfo, _old: Resource | None, new: Resource | None, _cluster: ClusterState) -> Hint:
        assert new is not None
        return Hint.QUEUE if pod.labels["kind"] in (new.metadata.labels or {}) else Hint.SKIP


ACTIONS = {"A": Action.ADD, "B": Action.UPDATE_NODE_LABEL}
PLUGINS = [Listener(name, action) for name, action in ACTIONS.items()]


@dataclass
class Model:
    key: EntityKey
    number: int
    arrived: float
    place: Place
    pods: list[PodInfo] = field(default_factory=list)
    newcomers: list[PodInfo] = field(default_factory=list)
    plugins: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    rejections: int = 0
    errors: int = 0
    until: float | None = None
    since: float = 0.0
    departed: int = 0
    has_yielded: bool = False


def helps(plugin: str, pod: PodInfo, change: ClusterChange) -> bool:
    if change.resource == "Node":
        labels = change.new.metadata.labels or {} if change.new else {}
        return plugin in ACTIONS and ACTIONS[plugin] is change.action and pod.labels["kind"] in labels
    assert isinstance(change.new, core.Pod)
    return plugin == GANG and pod.group is not None and pod.group == SHAPES.info(change.new).group


class QueueAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.groups = PodGroups()
        for name in ("g", "h"):
            self.groups.put(Group(GroupKey("default", name), min_count=LEAST))
        profile = Profile.of([GangScheduling(self.groups), *PLUGINS])
        self.queue = SchedulingQueue({DEFAULT_SCHEDULER: profile}, ClusterState(SHAPES), self.groups)
        self.now = 0.0
        self.names = 0
        self.models: dict[EntityKey, Model] = {}
        self.numbers = 0
        self.placed: dict[str, PodInfo] = {}
        self.flying: list[Queued] = []
        self.changes: list[ClusterChange] = []
        self.next_flush = -math.inf

    # What the model makes of it

    def gated(self, model: Model) -> bool:
        if not isinstance(model.key, GroupKey):
            return False
        placed = sum(group_key(pod) == model.key for pod in self.placed.values())
        return len(model.pods) + len(model.newcomers) + placed < LEAST

    def enter(self, model: Model, place: Place) -> None:
        model.place = place
        model.since = self.now

    def line_up(self, model: Model, at_once: bool) -> None:
        if self.gated(model):
            self.enter(model, Place.GATED)
        elif not at_once and model.until is not None and model.until >= math.floor(self.now):
            self.enter(model, Place.BACKOFF)
        else:
            self.enter(model, Place.ACTIVE)

    def rest(self, model: Model) -> None:
        count = model.errors or model.rejections
        longest = 10.0 * math.sqrt(max(len(model.pods), 1))
        model.until = math.floor(self.now + min(2.0 ** (count - 1), longest)) if count else None

    def tell(self, change: ClusterChange) -> None:
        self.changes.append(change)
        for model in list(self.models.values()):
            if model.place is Place.GATED and any(helps(GANG, pod, change) for pod in model.pods):
                if not self.gated(model):
                    self.line_up(model, at_once=False)
            elif model.place is Place.UNSCHEDULABLE:
                helped = {p for p in model.plugins | model.pending if any(helps(p, pod, change) for pod in model.pods)}
                if helped:
                    self.line_up(model, at_once=bool(helped & model.pending))
        self.queue.changed(change, self.now)

    def leave(self, model: Model, uid: str) -> None:
        model.pods = [pod for pod in model.pods if pod.uid != uid]
        model.newcomers = [pod for pod in model.newcomers if pod.uid != uid]
        if not model.pods and not model.newcomers and model.place is not Place.IN_FLIGHT:
            del self.models[model.key]

    def land(self, attempt: Queued, gone: Sequence[str]) -> Model | None:
        self.flying.remove(attempt)
        model = self.models[attempt.key]
        for uid in gone:
            self.leave(model, uid)
        if not model.pods and not model.newcomers:
            del self.models[model.key]
            return None
        return model

    def home(self, model: Model, at_once: bool) -> None:
        model.pods += model.newcomers
        model.newcomers = []
        self.line_up(model, at_once)

    def order(self, model: Model) -> tuple[float, float, int]:
        return (-max(pod.priority for pod in model.pods), model.arrived, model.number)

    def due(self) -> None:
        for model in self.models.values():
            if model.place is Place.BACKOFF and model.until is not None and model.until < math.floor(self.now):
                self.enter(model, Place.ACTIVE)
        if self.now >= self.next_flush:
            self.next_flush = self.now + 30
            for model in self.models.values():
                if model.place in (Place.UNSCHEDULABLE, Place.GATED) and self.now - model.since >= 300:
                    self.line_up(model, at_once=False)

    def choose(self) -> Model | None:
        while True:
            active = [model for model in self.models.values() if model.place is Place.ACTIVE]
            resting = [m for m in self.models.values() if m.place is Place.BACKOFF and m.plugins | m.pending]
            if active:
                best = self.elder_of(min(active, key=self.order), resting)
            elif resting:
                best = self.elder_of(min(resting, key=lambda m: (m.until or 0, self.order(m))), resting)
            else:
                return None
            if not self.gated(best):
                return best
            self.enter(best, Place.GATED)

    def elder_of(self, best: Model, resting: Sequence[Model]) -> Model:
        """Once, one of its shape that rests and came before it goes first."""
        if best.has_yielded or isinstance(best.key, GroupKey):
            return best
        alike = [m for m in resting if not isinstance(m.key, GroupKey) and m.pods[0].shape is best.pods[0].shape]
        elder = min(alike, key=self.order, default=best)
        if self.order(elder)[:2] >= self.order(best)[:2]:
            return best
        best.has_yielded = True
        return elder

    # What happens

    @rule(seconds=st.sampled_from([0.0, 0.4, 1.0, 3.0, 20.0, 200.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(
        kind=st.sampled_from(KINDS),
        priority=st.sampled_from([0, 1]),
        group=st.sampled_from([None, "g", "h"]),
        errors=st.sampled_from([0, 0, 0, 2]),
    )
    def a_pod_comes(self, kind: str, priority: int, group: str | None, errors: int) -> None:
        self.names += 1
        name = f"p{self.names}"
        builder = a_pod(name).set(priority, "spec", "priority").set(name, "metadata", "uid").labels(kind=kind)
        view = msgspec.convert((builder.in_group(group) if group else builder).document(), core.Pod)
        pod = SHAPES.info(view)
        key: EntityKey = group_key(pod) or pod.uid
        self.groups.pending(pod)
        model = self.models.get(key)
        is_new = model is None
        if model is None:
            self.numbers += 1
            model = self.models[key] = Model(key, self.numbers, self.now, Place.GATED, since=self.now)
        if errors:
            model.errors = max(model.errors, errors)
            self.rest(model)
        if model.place is Place.IN_FLIGHT:
            model.newcomers.append(pod)
        else:
            is_unlike = (kind, priority) not in {(other.labels["kind"], other.priority) for other in model.pods}
            model.pods.append(pod)
            if model.place is Place.GATED:
                if not self.gated(model):
                    self.line_up(model, at_once=False)
                elif is_new:
                    self.enter(model, Place.GATED)
            elif self.gated(model):
                self.enter(model, Place.GATED)
            elif errors or (is_unlike and model.place is Place.UNSCHEDULABLE):
                self.line_up(model, at_once=False)
        self.queue.add(pod, self.now, errors=errors)
        self.tell(ClusterChange("UnscheduledPod", Action.ADD, None, view))

    @precondition(lambda self: any(model.pods for model in self.models.values()))
    @rule(data=st.data())
    def a_pod_goes(self, data: st.DataObject) -> None:
        everyone = sorted(pod.uid for model in self.models.values() for pod in [*model.pods, *model.newcomers])
        uid = data.draw(st.sampled_from(everyone))
        self.groups.remove(uid)
        model = next(m for m in self.models.values() if uid in [pod.uid for pod in [*m.pods, *m.newcomers]])
        self.leave(model, uid)
        self.queue.remove(uid)

    @precondition(lambda self: self.placed)
    @rule(data=st.data())
    def a_placed_pod_ends(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.placed)))
        del self.placed[uid]
        self.groups.remove(uid)

    @rule(action=st.sampled_from(list(ACTIONS.values())), kinds=st.sets(st.sampled_from(KINDS)))
    def a_node_changes(self, action: Action, kinds: set[str]) -> None:
        view = msgspec.convert(a_node("n").labels(**dict.fromkeys(kinds, "")).document(), core.Node)
        self.tell(ClusterChange("Node", action, None, view))

    @rule()
    def something_is_tried(self) -> None:
        self.due()
        model = self.choose()
        attempt = self.queue.pop(self.now)
        assert (attempt.key if attempt else None) == (model.key if model else None)
        if attempt is not None and model is not None:
            assert {pod.uid for pod in attempt.pods} == {pod.uid for pod in model.pods}
            self.enter(model, Place.IN_FLIGHT)
            model.has_yielded = False
            model.departed = len(self.changes)
            self.flying.append(attempt)

    @precondition(lambda self: self.flying)
    @rule(
        data=st.data(),
        plugins=st.frozensets(st.sampled_from(["A", "B", GANG]), min_size=1),
        pending=st.frozensets(st.sampled_from(["A", "B"])),
        some=st.booleans(),
    )
    def it_is_rejected(self, data: st.DataObject, plugins: frozenset[str], pending: frozenset[str], some: bool) -> None:
        attempt = data.draw(st.sampled_from(self.flying))
        placed = [pod.uid for pod in attempt.pods][:1] if some and len(attempt.pods) > 1 else []
        self.assume(attempt, placed)
        model = self.land(attempt, placed)
        if model is not None:
            model.rejections, model.errors = model.rejections + 1, 0
            model.plugins, model.pending = plugins, pending
            self.rest(model)
            missed = self.changes[model.departed :]
            helped = {p for p in plugins | pending for c in missed if any(helps(p, pod, c) for pod in model.pods)}
            if helped or model.newcomers:
                self.home(model, at_once=bool(helped & pending))
            else:
                self.enter(model, Place.UNSCHEDULABLE)
        self.queue.rejected(attempt, plugins, self.now, pending, placed)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def it_fails(self, data: st.DataObject) -> None:
        attempt = data.draw(st.sampled_from(self.flying))
        model = self.land(attempt, [])
        if model is not None:
            model.errors += 1
            model.plugins = model.pending = frozenset()
            self.rest(model)
            self.home(model, at_once=False)
        self.queue.failed(attempt, self.now)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def it_is_placed(self, data: st.DataObject) -> None:
        attempt = data.draw(st.sampled_from(self.flying))
        uids = [pod.uid for pod in attempt.pods]
        self.assume(attempt, uids)
        model = self.land(attempt, uids)
        if model is not None:
            model.rejections = model.errors = 0
            model.until = None
            self.home(model, at_once=True)
        self.queue.placed(attempt, uids, self.now)

    def assume(self, attempt: Queued, uids: Sequence[str]) -> None:
        still = {pod.uid for pod in self.models[attempt.key].pods}
        for pod in attempt.pods:
            if pod.uid in uids and pod.uid in still:
                self.placed[pod.uid] = pod
                self.groups.assumed(pod, "n")

    # What holds

    @invariant()
    def both_agree_on_where_everything_is(self) -> None:
        counted = dict.fromkeys(Place, 0)
        for model in self.models.values():
            counted[model.place] += 1
            for pod in [*model.pods, *model.newcomers]:
                standing = self.queue.standing(pod.uid)
                assert standing is not None
                assert (standing.place, standing.arrived) == (model.place, model.arrived), pod.uid
        counts = self.queue.counts()
        assert counts.entities == counted
        assert counts.pods == sum(len(model.pods) + len(model.newcomers) for model in self.models.values())

    @invariant()
    def nothing_waits_that_was_helped(self) -> None:
        for model in self.models.values():
            if model.place is Place.UNSCHEDULABLE:
                for change in self.changes[model.departed :]:
                    for plugin in model.plugins | model.pending:
                        assert not any(helps(plugin, pod, change) for pod in model.pods)

    @invariant()
    def the_next_time_is_never_too_late(self) -> None:
        due = self.queue.next_time(self.now)
        if any(m.place is Place.ACTIVE or (m.place is Place.BACKOFF and m.plugins) for m in self.models.values()):
            assert due == self.now
        for model in self.models.values():
            if model.place is Place.BACKOFF and model.until is not None:
                assert due is not None
                assert due <= max(model.until + 1, self.now)
            if model.place in (Place.UNSCHEDULABLE, Place.GATED):
                assert due is not None
                assert due <= max(model.since + 300, self.next_flush, self.now)


QueueAgainstModel.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
test_queue_against_model = QueueAgainstModel.TestCase
