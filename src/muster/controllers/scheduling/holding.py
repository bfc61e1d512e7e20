"""Tells people of pods that may not even be tried yet, such as the members of a gang that is not complete."""

from muster.api import core
from muster.api.objects import Key, Object
from muster.cluster.groups import GroupKey
from muster.cluster.pods import GROUP_ANNOTATION
from muster.controllers.scheduling.reporter import Reporter
from muster.placement.engine import Engine
from muster.runtime.clock import Clock

PATIENCE_SECONDS = 1.0
LONGEST_PATIENCE_SECONDS = 10.0
"""Most gangs are made pod by pod: nothing is worth saying while more of them come, for a while."""


class Holding:
    def __init__(self, engine: Engine, clock: Clock, reporter: Reporter) -> None:
        self._engine = engine
        self._clock = clock
        self._reporter = reporter
        self._due: dict[GroupKey | Key, tuple[float, str]] = {}  # in the order of time, with the uid of a lone pod
        self._since: dict[GroupKey | Key, float] = {}

    def heard(self, old: Object | None, new: Object | None) -> None:
        """After the engine has heard of it: a pod or a group came, changed or went."""
        found = new or old
        assert found is not None
        if found.kind is not core.POD:
            self._put(GroupKey(*found.key))
            return
        group = (found.meta.annotations or {}).get(GROUP_ANNOTATION)
        if group:
            self._put(GroupKey(found.key.namespace, group))
        elif new is not None and self._engine.gate_of(new.uid) and not new.read(core.Pod).spec.scheduling_gates:
            self._put(new.key, new.uid)

    def tell(self) -> None:
        """Whatever is due. Pods with scheduling gates of their own say so themselves."""
        now = self._clock.monotonic()
        while self._due:
            key, (due, uid) = next(iter(self._due.items()))
            if due > now:
                return
            del self._due[key]
            self._since.pop(key, None)
            if isinstance(key, GroupKey):
                for pod in self._engine.groups.members(key).pending.values():
                    reason = "" if pod.spec.scheduling_gates else self._engine.gate_of(pod.uid)
                    if reason:
                        self._reporter.waits([pod.key], reason, "Unschedulable")
            elif reason := self._engine.gate_of(uid):
                self._reporter.waits([key], reason, "Unschedulable")

    def next_time(self) -> float | None:
        return next(iter(self._due.values()))[0] if self._due else None

    def _put(self, key: GroupKey | Key, uid: str = "") -> None:
        now = self._clock.monotonic()
        first = self._since.setdefault(key, now)
        if key not in self._due or now < first + LONGEST_PATIENCE_SECONDS:
            self._due.pop(key, None)  # to the end: the order is that of time
            self._due[key] = (now + PATIENCE_SECONDS, uid)
