"""Makes room: victims are told why and evicted, and those they leave for wait until they are gone.

All of a decision's victims go, or none is touched: a `Trial` comes first. A disruption budget may say no for now: then
it is asked again, for as long as somebody waits for the room.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from msgspec.structs import replace

from muster.api import core, errors, timestamps
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.policy import disrupting
from muster.api.raw import Document
from muster.api.selectors import LabelSelector
from muster.cluster.groups import GroupKey
from muster.cluster.pods import PodInfo
from muster.controllers.scheduling.cycles import Binding
from muster.controllers.scheduling.reporter import OPTIONS, Reporter
from muster.placement.queueing.entities import EntityKey
from muster.runtime.clock import Clock
from muster.store.protocol import Delete, Patch, PatchType, Write

_MARGIN_SECONDS = 10.0  # beyond the grace of the victims: for their agents to say that they are gone
_DEFAULT_GRACE = 30
_DRY_RUN = replace(OPTIONS, dry_run=True)
_NO_TARGET: Document = {"type": "DisruptionTarget", "status": "False", "reason": "PreemptionGivenUp", "message": ""}


@dataclass(slots=True, eq=False)
class _Waiting:
    """A decision whose victims have not all gone yet. Without bindings it waits no longer."""

    key: EntityKey
    bindings: list[Binding]
    victims: dict[str, Key]  # by uid
    deadline: float
    is_cleared: bool = False
    """Its victims have been told to go."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Whether all victims of a decision may go. Without `writes`, the dry runs of their evictions, it is known that not
    all of them may."""

    waiting: _Waiting
    writes: Sequence[Write]
    is_within_budgets: bool


class Evictions:
    def __init__(self, clock: Clock, reporter: Reporter, objects: Mapping[tuple[Kind, Key], Object]) -> None:
        self._clock = clock
        self._reporter = reporter
        self._objects = objects
        self._budgets: dict[Key, tuple[Object, LabelSelector]] = {}
        self._untried: list[_Waiting] = []  # those whose victims are not known to be free to go
        self._by_pod: dict[str, _Waiting] = {}  # by the uid of each that waits
        self._by_victim: dict[str, list[_Waiting]] = {}
        self._deadlines: list[tuple[float, int, _Waiting]] = []  # a heap; what no longer waits stays in until it is due
        self._numbers = count()
        self._writes: list[Write] = []
        self._untold: dict[str, tuple[Object, str]] = {}  # by the victim's uid: what people hear once it is evicted

    def _pod(self, key: Key, uid: str) -> Object | None:
        found = self._objects.get((core.POD, key))
        return found if found is not None and found.uid == uid else None

    def start(self, key: EntityKey, bindings: list[Binding], victims: Iterable[PodInfo]) -> list[Binding]:
        """Returns those of the bindings that need not wait: all of them where the victims have gone already."""
        self._writes += [_nominate(binding.pod, binding.node) for binding in bindings]
        left = {victim.uid: victim.key for victim in victims if self._pod(victim.key, victim.uid) is not None}
        if not left:
            return bindings
        waiting = _Waiting(key, bindings, left, deadline=0.0)
        self._by_pod.update((binding.pod.uid, waiting) for binding in bindings)
        for uid in left:
            self._by_victim.setdefault(uid, []).append(waiting)
        self._extend(waiting)
        self._untried.append(waiting)
        return []

    def _extend(self, waiting: _Waiting) -> None:
        """Its victims have all of their grace from now on."""
        graces = (pod.read(core.Pod).spec.termination_grace_period_seconds for pod in self._present(waiting))
        longest = max((grace or _DEFAULT_GRACE for grace in graces), default=0)
        waiting.deadline = self._clock.monotonic() + longest + _MARGIN_SECONDS
        heappush(self._deadlines, (waiting.deadline, next(self._numbers), waiting))

    def _present(self, waiting: _Waiting) -> list[Object]:
        found = (self._pod(key, uid) for uid, key in waiting.victims.items())
        return [pod for pod in found if pod is not None]

    # Whether they may go

    def budget_changed(self, old: Object | None, new: Object | None) -> None:
        if old is not None:
            self._budgets.pop(old.key, None)
        if new is not None:
            try:
                self._budgets[new.key] = new, disrupting.selector_of(new)
            except errors.BadRequest:
                return  # selects nothing

    def take_trials(self) -> list[Trial]:
        """Each counts those before it, and what was told to go: no budget shows that yet."""
        untried, self._untried = self._untried, []
        cleared = {id(one): one for one in self._by_pod.values() if one.is_cleared}
        leaving = [pod for one in cleared.values() for pod in self._present(one)]
        trials = []
        for waiting in untried:
            if waiting.bindings:
                victims = self._present(waiting)
                trials.append(self._trial(waiting, victims, leaving))
                leaving += victims if trials[-1].is_within_budgets else ()
        return trials

    def _trial(self, waiting: _Waiting, victims: Sequence[Object], leaving: Sequence[Object]) -> Trial:
        if not self._may_all_go(victims, leaving):
            return Trial(waiting, (), is_within_budgets=False)
        dry_runs = [Delete(core.POD, v.key, uid=v.uid, options=_DRY_RUN, within_budgets=True) for v in victims]
        return Trial(waiting, dry_runs, is_within_budgets=True)

    def _may_all_go(self, victims: Sequence[Object], leaving: Sequence[Object]) -> bool:
        """As far as budgets are known that cover several: of a single one the store says so itself."""
        going = {pod.uid: pod for pod in (*leaving, *victims) if disrupting.counts(pod)}
        namespaces = {pod.key.namespace for pod in victims}
        for key, (budget, selector) in self._budgets.items():
            if key.namespace not in namespaces:
                continue
            there = {uid: pod for uid, pod in going.items() if pod.key.namespace == key.namespace}
            covered = {uid for uid, pod in there.items() if selector.matches(pod.meta.labels or {})}
            if len(covered) < 2 or not any(pod.uid in covered for pod in victims):
                continue
            if len(covered) > disrupting.allowance(budget, self._pods(key.namespace)):
                return False
        return True

    def _pods(self, namespace: str) -> Iterator[Object]:
        for (kind, key), found in self._objects.items():
            if kind is core.POD and key.namespace == namespace:
                yield found

    def try_again(self, trial: Trial) -> None:
        self._untried.append(trial.waiting)

    def clear(self, trial: Trial) -> None:
        """All may go: they are told and evicted, unless nobody waits for it any more."""
        waiting = trial.waiting
        if not waiting.bindings:
            return
        preemptor = waiting.bindings[0]
        condition = self._condition(preemptor)
        for pod in self._present(waiting):
            self._evict(pod, preemptor, condition)
        waiting.is_cleared = True
        self._extend(waiting)

    # While they leave

    def join(self, key: EntityKey, bindings: Sequence[Binding]) -> bool:
        """Further members of a gang that waits for room wait with it: else they would run without the others, should
        those get no room after all."""
        if not isinstance(key, GroupKey):
            return False
        waiting = next((one for one in self._by_pod.values() if one.key == key), None)
        if waiting is not None:
            waiting.bindings.extend(bindings)
            self._by_pod.update((binding.pod.uid, waiting) for binding in bindings)
        return waiting is not None

    def ended(self, uid: str) -> list[Binding]:
        """The pod is gone, or has finished. Returns what may now go on."""
        ready = []
        preemptor = self._by_pod.pop(uid, None)
        if preemptor is not None:
            preemptor.bindings = [binding for binding in preemptor.bindings if binding.pod.uid != uid]
            if not preemptor.bindings:
                self._give_up(preemptor)
        for waiting in self._by_victim.pop(uid, ()):
            waiting.victims.pop(uid, None)
            if not waiting.victims:
                ready += self._give_up(waiting)
        return ready

    def is_victim(self, uid: str) -> bool:
        return uid in self._by_victim

    def spare(self, uid: str) -> list[Binding]:
        """The victim has not been bound after all: it has lost its claim, which is enough. Returns what may go on."""
        self._writes = [write for write in self._writes if _uid_of(write) != uid]
        self._untold.pop(uid, None)
        return self.ended(uid)

    def displaced(self, victims: Iterable[PodInfo]) -> list[Binding]:
        """What waits here and is itself a victim now. It has no node yet: it gives up its claim, and lives."""
        found = {id(one): one for victim in victims if (one := self._by_pod.get(victim.uid)) is not None}
        return [binding for waiting in found.values() for binding in self._give_up(waiting)]

    def overdue(self) -> list[Binding]:
        """What has waited in vain: it may find room elsewhere meanwhile."""
        late: list[Binding] = []
        now = self._clock.monotonic()
        while (due := self.next_time()) is not None and due <= now:
            late += self._give_up(heappop(self._deadlines)[2])
        return late

    def next_time(self) -> float | None:
        while self._deadlines and _is_past(*self._deadlines[0]):
            heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def _give_up(self, waiting: _Waiting) -> list[Binding]:
        """It waits no longer, for one reason or another. Returns what waited."""
        bindings, waiting.bindings = waiting.bindings, []
        for binding in bindings:
            self._by_pod.pop(binding.pod.uid, None)
        for uid in sorted(waiting.victims):  # in one order, whatever the set's
            others = self._by_victim[uid]
            others.remove(waiting)
            if not others:
                del self._by_victim[uid]
                self._let_live(uid)
        waiting.victims = {}
        return bindings

    def _let_live(self, uid: str) -> None:
        """Nobody waits for its room any more. Where it has been told to go and was not evicted yet, that is undone."""
        dropped = [write for write in self._writes if _uid_of(write) == uid]
        if not any(isinstance(write, Delete) for write in dropped):
            return
        self._writes = [write for write in self._writes if _uid_of(write) != uid]
        untold = self._untold.pop(uid, None)
        if untold is not None and not any(isinstance(write, Patch) for write in dropped):
            self._writes.append(self._tell(untold[0], {**_NO_TARGET, "lastTransitionTime": self._now()}))

    def forget_promise(self, pods: Iterable[PodInfo]) -> None:
        """The node that they were promised is no hope any more."""
        for pod in pods:
            found = self._pod(pod.key, pod.uid)
            if found is not None and found.read(core.Pod).status.nominated_node_name:
                self._writes.append(_nominate(pod, None))

    def take_writes(self, but: Collection[str]) -> list[Write]:
        """`but`: pods that are left alone for now, by uid. Deleted before they are bound, they would be lost."""
        if not but:
            taken, self._writes = self._writes, []
            return taken
        taken = [write for write in self._writes if _uid_of(write) not in but]
        self._writes = [write for write in self._writes if _uid_of(write) in but]
        return taken

    def put_back(self, writes: Sequence[Write]) -> None:
        """These were refused for now."""
        self._writes[:0] = writes
        for write in writes:
            if isinstance(write, Delete) and write.uid is not None and write.uid not in self._by_victim:
                self._let_live(write.uid)

    def settled(self, write: Write, *, is_done: bool) -> None:
        """The write will not be tried again. Of an eviction that is done people are told."""
        untold = self._untold.pop(write.uid or "", None) if isinstance(write, Delete) else None
        if untold is not None and is_done:
            victim, message = untold
            self._reporter.events.record(victim, "Normal", "Preempted", message)

    @property
    def has_work(self) -> bool:
        return bool(self._writes or self._untried)

    def _condition(self, preemptor: Binding) -> Document:
        return {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": f"muster-scheduler: preempting to accommodate {preemptor.pod.key}",
            "lastTransitionTime": self._now(),
        }

    def _now(self) -> str:
        return timestamps.to_text(self._clock.now())

    def _evict(self, victim: Object, preemptor: Binding, condition: Document) -> None:
        """Told why, then evicted with its own grace."""
        self._writes.append(self._tell(victim, condition))
        self._writes.append(Delete(core.POD, victim.key, uid=victim.uid, options=OPTIONS, within_budgets=True))
        self._untold[victim.uid] = (victim, f"Preempted by {preemptor.pod.key} on node {preemptor.node}")

    def _tell(self, victim: Object, condition: Document) -> Patch:
        body = {"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}}
        return Patch(core.POD, victim.key, body, PatchType.STRATEGIC, "status", options=OPTIONS)


def _nominate(pod: PodInfo, node: str | None) -> Write:
    body = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}}
    return Patch(core.POD, pod.key, body, subresource="status", options=OPTIONS)


def _is_past(deadline: float, _: int, waiting: _Waiting) -> bool:
    """It waits no longer, or until later than it did."""
    return not waiting.bindings or waiting.deadline != deadline


def _uid_of(write: Write) -> str | None:
    if isinstance(write, Delete):
        return write.uid
    assert isinstance(write, Patch)
    assert isinstance(write.body, dict)
    uid: str = write.body["metadata"]["uid"]
    return uid
