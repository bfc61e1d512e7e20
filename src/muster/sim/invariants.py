"""What must be true in every committed state. Each is worked out from the objects alone, by other means than the
engines have: a mistake there does not hide itself here."""

from collections import Counter
from collections.abc import Iterable, Mapping

from muster.api import conditions, core
from muster.api.core.requests import amounts, pod_requests
from muster.api.kueue import names
from muster.api.objects import Key, Object
from muster.cluster.devices import parse_holdings
from muster.cluster.pods import DEVICES_ANNOTATION
from muster.runtime.clock import Clock
from muster.sim.ledger import Place, Recent, Violation

_OVER = ("Succeeded", "Failed")


def place_of(found: Object) -> Place:
    return Place(found.kind.resource, found.key)


class Capacity:
    """No node, and none of its GPUs, is given more than it has. Looked at when a pod is bound, for what that one asks:
    a node may shrink under what it runs."""

    name = "capacity"
    kinds = frozenset({core.POD, core.NODE})

    def __init__(self, clock: Clock) -> None:
        self._room: Recent[Mapping[str, int]] = Recent(clock)
        self._on: dict[str, dict[str, Object]] = {}
        self._bound: list[Object] = []

    def heard(self, old: Object | None, new: Object | None) -> None:
        found = new or old
        assert found is not None
        if found.kind is core.NODE:
            if new is not None:
                self._room.put(new.key.name, _allocatable(new))
            return
        before = _node_of(old) if old is not None else ""
        after = _node_of(new) if new is not None else ""
        if before:
            self._on[before].pop(found.uid, None)
        if after and new is not None:
            self._on.setdefault(after, {})[new.uid] = new
            if not before:
                self._bound.append(new)

    def broken(self) -> Violation | None:
        bound, self._bound = self._bound, []
        for pod in bound:
            name = pod.read(core.Pod).spec.node_name or ""
            pods = list(self._on.get(name, {}).values())
            used = _total(pod_requests(found.read(core.Pod).spec) for found in pods) + Counter(pods=len(pods))
            rooms = self._room.all(name)
            for resource in (*pod_requests(pod.read(core.Pod).spec), "pods"):
                given = used[resource]
                most = max((room.get(resource, 0) for room in rooms), default=0)
                if given > most:
                    about = (place_of(pod), Place(core.NODE.resource, Key("", name)), *map(place_of, pods))
                    return Violation(self.name, f"{name} has {most} {resource}, its pods have {given}", about)
            twice = _device_given_twice(pods)
            if twice:
                return Violation(self.name, f"GPU {twice} of {name} is given twice", tuple(map(place_of, pods)))
        return None


def _node_of(pod: Object) -> str:
    """Where it takes room: nowhere once it has ended."""
    view = pod.read(core.Pod)
    return "" if view.status.phase in _OVER else view.spec.node_name or ""


def _allocatable(node: Object) -> Mapping[str, int]:
    listed = amounts(node.read(core.Node).status.allocatable)
    return {name: found.milli if name == "cpu" else found.units for name, found in listed.items()}


def _total(parts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return total


def _device_given_twice(pods: Iterable[Object]) -> str:
    given: Counter[int] = Counter()
    for pod in pods:
        for one in parse_holdings((pod.meta.annotations or {}).get(DEVICES_ANNOTATION, "")) or ():
            given[one.device] += one.milli
    return next((str(device) for device, milli in given.items() if milli > 1000), "")


class Attempts:
    """Each task has at most one live attempt: of the pods with the same owner and place in it, one is not over."""

    name = "attempts"
    kinds = frozenset({core.POD})

    def __init__(self) -> None:
        self._live: dict[tuple[str, ...], dict[str, Object]] = {}
        self._changed: dict[tuple[str, ...], None] = {}

    def heard(self, old: Object | None, new: Object | None) -> None:
        found = new or old
        assert found is not None
        task = _task_of(found)
        if task is None:
            return
        live = self._live.setdefault(task, {})
        if new is None or new.is_terminating or new.read(core.Pod).status.phase in _OVER:
            live.pop(found.uid, None)
        else:
            live[new.uid] = new
            self._changed[task] = None

    def broken(self) -> Violation | None:
        changed, self._changed = self._changed, {}
        for task in changed:
            pods = list(self._live[task].values())
            if len(pods) > 1:
                names = ", ".join(str(pod.key) for pod in pods)
                return Violation(
                    self.name, f"{task} has {len(pods)} live attempts: {names}", tuple(map(place_of, pods))
                )
        return None


def _task_of(pod: Object) -> tuple[str, ...] | None:
    """Who owns the pod, and which of the owner's tasks it is; None where pods are all alike."""
    owner = next((found.uid for found in pod.meta.owner_references if found.controller), None)
    marks = pod.meta.annotations or {}
    index = marks.get("batch.kubernetes.io/job-completion-index") or marks.get("volcano.sh/task-index")
    if owner is None or index is None:
        return None
    return owner, marks.get("volcano.sh/task-spec", ""), index


class Nearness:
    """The pods of a pod set that asks for one rack, or one node, are there together."""

    name = "nearness"
    kinds = frozenset({core.POD, core.NODE})

    def __init__(self) -> None:
        self._nodes: dict[str, Mapping[str, str]] = {}
        """Labels, by name."""
        self._sets: dict[tuple[str, str], dict[str, Object]] = {}
        self._bound: list[Object] = []

    def heard(self, old: Object | None, new: Object | None) -> None:
        found = new or old
        assert found is not None
        if found.kind is core.NODE:
            self._nodes[found.key.name] = found.labels
            return
        if names.REQUIRED_TOPOLOGY not in (found.meta.annotations or {}):
            return
        together = self._sets.setdefault(_pod_set_of(found), {})
        if new is None or new.is_terminating or not _node_of(new):
            together.pop(found.uid, None)
        elif new.uid not in together:
            together[new.uid] = new
            self._bound.append(new)

    def broken(self) -> Violation | None:
        bound, self._bound = self._bound, []
        for pod in bound:
            level = (pod.meta.annotations or {})[names.REQUIRED_TOPOLOGY]
            together = list(self._sets[_pod_set_of(pod)].values())
            places = {self._nodes[_node_of(found)].get(level, "") for found in together}
            if len(places) > 1:
                listed = ", ".join(sorted(places))
                message = f"{pod.key} and its like must be in one {level}, and are in {listed}"
                return Violation(self.name, message, tuple(map(place_of, together)))
        return None


def _pod_set_of(pod: Object) -> tuple[str, str]:
    owner = next((found.uid for found in pod.meta.owner_references if found.controller), pod.uid)
    return owner, pod.labels.get(names.POD_SET_LABEL, "")


class Evictions:
    """Nobody is evicted by the scheduler unless the pod that he leaves for was given his place by the same decision."""

    name = "evictions"
    kinds = frozenset({core.POD})

    def __init__(self) -> None:
        self._pods: dict[str, Object] = {}
        self._victims: list[Object] = []

    def heard(self, old: Object | None, new: Object | None) -> None:
        if new is None:
            assert old is not None
            self._pods.pop(str(old.key), None)
            return
        self._pods[str(new.key)] = new
        if _preemptor(new) and (old is None or not _preemptor(old)):
            self._victims.append(new)

    def broken(self) -> Violation | None:
        victims, self._victims = self._victims, []
        for victim in victims:
            preemptor = self._pods.get(_preemptor(victim))
            if preemptor is None:
                continue  # it went at the same time
            view = preemptor.read(core.Pod)
            if not view.spec.node_name and not view.status.nominated_node_name:
                message = f"{victim.key} was evicted for {preemptor.key}, which has been given no node"
                return Violation(self.name, message, (place_of(victim), place_of(preemptor)))
        return None


_PREEMPTING = "preempting to accommodate "


def _preemptor(pod: Object) -> str:
    found = conditions.find(pod.read(core.Pod).status.conditions, "DisruptionTarget")
    if found is None or found.reason != "PreemptionByScheduler":
        return ""
    return (found.message or "").partition(_PREEMPTING)[2]
