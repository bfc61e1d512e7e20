"""What the quota engine believes to be used is what the store says, whenever it has had the time to hear of it."""

from collections import Counter
from collections.abc import Callable, Sequence

from muster.api import kueue
from muster.api.objects import Key, Object
from muster.quota.engine import Engine
from muster.runtime.clock import Clock
from muster.sim.ledger import Place, Violation
from muster.sim.quotas import Quota
from muster.sim.troubles import Troubles

HEARD_SECONDS = 2.0
"""After the last change, while nothing fails."""


class Beliefs:
    name = "usage"
    kinds = frozenset({kueue.WORKLOAD, kueue.CLUSTER_QUEUE})

    def __init__(self, clock: Clock, troubles: Troubles, quota: Quota, engines: Callable[[], Sequence[Engine]]) -> None:
        """`engines`: those that decide at the moment."""
        self._clock = clock
        self._troubles = troubles
        self._quota = quota
        self._engines = engines
        self._changed = 0.0

    def heard(self, _: Object | None, __: Object | None) -> None:
        self._changed = self._clock.monotonic()

    def broken(self) -> Violation | None:
        return None  # it has not been heard of yet

    def overdue(self) -> Violation | None:
        if self._clock.monotonic() <= max(self._changed + HEARD_SECONDS, self._troubles.recovered_at):
            return None
        for engine in self._engines():
            for name, queue in engine.state.queues.items():
                held = self._quota.held.get(name, Counter())
                for what in {*queue.node.usage, *held}:
                    believed, true = queue.node.usage.get(what, 0), held[what]
                    if believed != true:
                        message = f"queue {name} has {true} {what.resource} reserved, and quota believes {believed}"
                        return Violation(self.name, message, (Place(kueue.CLUSTER_QUEUE.resource, Key("", name)),))
        return None
