"""Which waiting entities a change can help: those that a plugin rejected which listens to it, and whose hint agrees.

Entities are found by plugin and by class of pod, so a change costs one hint a class, not one a pod. A hint function
must therefore tell pods apart by nothing but what `PodClass` holds (its labels only where it says that it reads them);
changes of one pod itself are put to it alone.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.api.meta import Resource
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import Action, Hint, Wake
from muster.placement.profiles import DEFAULT_SCHEDULER
from muster.placement.queueing.entities import Entity, PodClass, class_of

_MOST_FAULTS = 100


@dataclass(frozen=True, slots=True, eq=False)
class ClusterChange:
    """Something happened to an object. `resource` and `action` as `Wake` has them."""

    resource: str
    action: Action
    old: Resource | None = None
    new: Resource | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """A plugin raised where it must not."""

    plugin: str
    what: str
    error: str


def scheduler_of(pod: PodInfo) -> str:
    return pod.spec.scheduler_name or DEFAULT_SCHEDULER


class Hints:
    """What each profile's plugins listen to, and how to ask them. A plugin that declares nothing, such as an extender,
    is taken to listen to everything."""

    def __init__(self, wakes: Mapping[str, Mapping[str, Sequence[Wake]]], cluster: ClusterState) -> None:
        """`wakes`: by scheduler name and plugin. Pods that name another scheduler are the default one's."""
        self._cluster = cluster
        self._schedulers = frozenset(wakes)
        self._known = {(scheduler, plugin) for scheduler, plugins in wakes.items() for plugin in plugins}
        self._listening: dict[tuple[str, str, str, Action], list[Wake]] = {}
        for scheduler, plugins in wakes.items():
            for plugin, registered in plugins.items():
                for wake in registered:
                    for action in wake.actions:
                        self._listening.setdefault((scheduler, plugin, wake.resource, action), []).append(wake)
        self._by_labels = {
            (scheduler, plugin)
            for scheduler, plugins in wakes.items()
            for plugin, registered in plugins.items()
            if any(wake.hint is not None and wake.reads_labels and _is_put_to_all(wake) for wake in registered)
        }
        self.faults: deque[Fault] = deque(maxlen=_MOST_FAULTS)

    def helps(self, plugin: str, pod: PodInfo, change: ClusterChange) -> bool:
        """Whether the change may help the pod, which the plugin rejected. In doubt it may."""
        scheduler = self._known_as(scheduler_of(pod))
        if (scheduler, plugin) not in self._known:
            return True
        for wake in self._listening.get((scheduler, plugin, change.resource, change.action), ()):
            if wake.hint is None:
                return True
            try:
                if wake.hint(pod, change.old, change.new, self._cluster) is Hint.QUEUE:
                    return True
            except Exception as error:
                what = f"hint on {change.resource} {change.action}"
                self.faults.append(Fault(plugin, what, f"{type(error).__name__}: {error}"))
                return True
        return False

    def listens(self, scheduler: str, plugin: str, change: ClusterChange) -> bool:
        scheduler = self._known_as(scheduler)
        return (scheduler, plugin) not in self._known or (
            (scheduler, plugin, change.resource, change.action) in self._listening
        )

    def class_of(self, plugin: str, kind: PodClass) -> PodClass:
        """What the plugin's hints can tell of the class."""
        scheduler = self._known_as(kind.shape.spec.scheduler_name or DEFAULT_SCHEDULER)
        return kind if (scheduler, plugin) in self._by_labels else kind._replace(labels=_NO_LABELS)

    def _known_as(self, scheduler: str) -> str:
        return scheduler if scheduler in self._schedulers else DEFAULT_SCHEDULER


_NO_LABELS: frozenset[tuple[str, str]] = frozenset()


def _is_put_to_all(wake: Wake) -> bool:
    return wake.resource != "UnscheduledPod" or Action.ADD in wake.actions


class WaitingIndex:
    """Waiting entities by who rejected them."""

    def __init__(self, hints: Hints) -> None:
        self._hints = hints
        self._by_plugin: dict[tuple[str, str], dict[PodClass, tuple[PodInfo, dict[Entity, int]]]] = {}
        """By scheduler, plugin and class as the plugin sees it: a pod of it, and the entities that have any, with how
        many classes of theirs that is."""

    def add(self, entity: Entity) -> None:
        """The entity waits from now on, for the plugins it listens to."""
        for pod in entity.members.values():
            self.join(entity, pod)

    def discard(self, entity: Entity) -> None:
        for kind in entity.classes:
            self._take_out(entity, kind)
        entity.classes.clear()

    def join(self, entity: Entity, pod: PodInfo) -> None:
        """A member of an entity that waits."""
        kind = class_of(pod)
        entity.classes[kind] = entity.classes.get(kind, 0) + 1
        if entity.classes[kind] == 1:
            for plugin in entity.listens_to:
                classes = self._by_plugin.setdefault((scheduler_of(pod), plugin), {})
                entities = classes.setdefault(self._hints.class_of(plugin, kind), (pod, {}))[1]
                entities[entity] = entities.get(entity, 0) + 1

    def part(self, entity: Entity, pod: PodInfo) -> None:
        kind = class_of(pod)
        entity.classes[kind] -= 1
        if not entity.classes[kind]:
            del entity.classes[kind]
            self._take_out(entity, kind)

    def _take_out(self, entity: Entity, kind: PodClass) -> None:
        for plugin in entity.listens_to:
            where = (kind.shape.spec.scheduler_name or DEFAULT_SCHEDULER, plugin)
            classes, seen_as = self._by_plugin[where], self._hints.class_of(plugin, kind)
            entities = classes[seen_as][1]
            entities[entity] -= 1
            if not entities[entity]:
                del entities[entity]
            if not entities:
                del classes[seen_as]
            if not classes:
                del self._by_plugin[where]

    def woken(self, change: ClusterChange) -> dict[Entity, bool]:
        """Entities that the change may help → whether at once, without the rest of their backoff."""
        found: dict[Entity, bool] = {}
        for (scheduler, plugin), classes in self._by_plugin.items():
            if not self._hints.listens(scheduler, plugin, change):
                continue
            for pod, entities in classes.values():
                if self._hints.helps(plugin, pod, change):
                    for entity in entities:
                        found[entity] = found.get(entity, False) or plugin in entity.pending_plugins
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Logged:
    number: int
    change: ClusterChange
    uid: str | None
    """The pod that the change is of, where it is of a pending pod itself."""


@dataclass(frozen=True, slots=True)
class Missed:
    """What happened while an entity was in flight."""

    changes: Sequence[Logged] = ()
    is_urged: bool = False


class FlightLog:
    """Changes that came while something was being tried: who comes back rejected is held against them, so that none is
    missed between the snapshot of an attempt and its end."""

    def __init__(self, hints: Hints) -> None:
        self._hints = hints
        self._next = 0
        self._log: deque[Logged] = deque()
        self._since: dict[Entity, int] = {}
        self._urged: set[Entity] = set()

    def depart(self, entity: Entity) -> None:
        self._since[entity] = self._next

    def note(self, change: ClusterChange, uid: str | None = None) -> None:
        """`uid`: the change is of that pod alone."""
        if self._since:
            self._log.append(Logged(self._next, change, uid))
            self._next += 1

    def urge(self, entity: Entity) -> None:
        """Whatever comes of it, it is to be tried again."""
        self._urged.add(entity)

    def arrive(self, entity: Entity) -> Missed:
        since, is_urged = self._since.pop(entity), entity in self._urged
        self._urged.discard(entity)
        missed = [entry for entry in self._log if entry.number >= since]
        oldest = min(self._since.values(), default=self._next)
        while self._log and self._log[0].number < oldest:
            self._log.popleft()
        return Missed(missed, is_urged)

    def wakes(self, entity: Entity, missed: Missed) -> bool | None:
        """None where nothing missed can help the entity; else whether it is to go on at once."""
        found: bool | None = False if missed.is_urged else None
        plugins = entity.plugins | entity.pending_plugins
        kinds = entity.kinds() if missed.changes else {}
        alike = {
            plugin: {self._hints.class_of(plugin, kind): pod for kind, pod in kinds.items()}.values()
            for plugin in plugins
        }
        for entry in missed.changes:
            own = [entity.members[entry.uid]] if entry.uid is not None and entry.uid in entity.members else []
            for plugin in plugins:
                pods = alike[plugin] if entry.uid is None else own
                if any(self._hints.helps(plugin, pod, entry.change) for pod in pods):
                    if plugin in entity.pending_plugins:
                        return True
                    found = False
        return found
