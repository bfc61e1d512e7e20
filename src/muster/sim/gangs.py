"""A gang starts as a whole: it may be bound in part while one decision is carried out, and no longer.

The binds of a decision are one batch. Where something binds them one by one, or the control plane fails in the middle,
the rest follows when that is over.
"""

from muster.api import core, volcano
from muster.api.objects import Key, Object
from muster.cluster.pods import GROUP_ANNOTATION
from muster.runtime.clock import Clock
from muster.sim.ledger import Place, Violation
from muster.sim.troubles import Troubles

IN_FLIGHT_SECONDS = 5.0
"""Between the first bind of a decision and the last, while nothing fails."""


class Gangs:
    name = "gangs"
    kinds = frozenset({core.POD, volcano.POD_GROUP})

    def __init__(self, clock: Clock, troubles: Troubles) -> None:
        self._clock = clock
        self._troubles = troubles
        self._minima: dict[Key, int] = {}
        self._bound: dict[Key, dict[str, Object]] = {}
        """By group: pods that have a node, or had one and are over."""
        self._whole: set[Key] = set()
        """Gangs that have started: that some of it ends before the rest is as it should be."""
        self._since: dict[Key, float] = {}

    def heard(self, old: Object | None, new: Object | None) -> None:
        found = new or old
        assert found is not None
        if found.kind is volcano.POD_GROUP:
            self._group_changed(found.key, new)
            return
        name = (found.meta.annotations or {}).get(GROUP_ANNOTATION)
        if not name:
            return
        group = Key(found.key.namespace, name)
        bound = self._bound.setdefault(group, {})
        if new is None or new.is_terminating:
            bound.pop(found.uid, None)  # also of an earlier group of that name, on a node that does not answer
        elif new.read(core.Pod).spec.node_name:
            bound[found.uid] = new
        self._judge(group)

    def _group_changed(self, key: Key, group: Object | None) -> None:
        if group is None:
            self._minima.pop(key, None)
            self._whole.discard(key)
            self._since.pop(key, None)
        else:
            self._minima[key] = group.read(volcano.PodGroup).spec.min_member or 1
            self._judge(key)

    def _judge(self, group: Key) -> None:
        count, least = len(self._bound.get(group, {})), self._minima.get(group, 0)
        if count >= least:
            self._whole.add(group)
        elif count == 0:
            self._whole.discard(group)  # it may start again
        if 0 < count < least and group not in self._whole:
            self._since.setdefault(group, self._clock.monotonic())
        else:
            self._since.pop(group, None)

    def broken(self) -> Violation | None:
        return self.overdue()

    def overdue(self) -> Violation | None:
        """Also where nothing happens: a gang may be forgotten."""
        now = self._clock.monotonic()
        for group, since in self._since.items():
            if now > max(since + IN_FLIGHT_SECONDS, self._troubles.recovered_at):
                pods = self._bound[group].values()
                message = (
                    f"{len(pods)} of {self._minima[group]} pods of gang {group} have had nodes for {now - since:g} s, "
                    "and the rest is not on its way"
                )
                about = (Place(volcano.POD_GROUP.resource, group), *(Place("pods", pod.key) for pod in pods))
                return Violation(self.name, message, about)
        return None
