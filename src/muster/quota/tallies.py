"""Who holds how much, by ClusterQueue and by LocalQueue, kept up with every change instead of counted anew.

`Tallies` counts as the store shows it, unlike the engine's own accounts, which run ahead of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.api import conditions, kueue
from muster.quota.amounts import FlavorResource
from muster.quota.settings import Settings
from muster.quota.workloads import ADMITTED, FINISHED, QUOTA_RESERVED, WorkloadInfo


@dataclass(slots=True, eq=False)
class Tally:
    """Of one queue: of all that hold quota, and of those among them that may run."""

    reserving: int = 0
    admitted: int = 0
    reserved: dict[FlavorResource, int] = field(default_factory=dict)
    used: dict[FlavorResource, int] = field(default_factory=dict)

    def used_by_resource(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for what, value in self.used.items():
            total[what.resource] = total.get(what.resource, 0) + value
        return total

    def count(self, usage: Mapping[FlavorResource, int], sign: int, *, is_admitted: bool) -> None:
        """One more workload that holds so much, or (`sign` -1) one less."""
        self.reserving += sign
        _add(self.reserved, usage, sign)
        if is_admitted:
            self.admitted += sign
            _add(self.used, usage, sign)


@dataclass(frozen=True, slots=True)
class Held:
    """What one workload holds. `local_queue`: by `namespace/name`; the name is empty where it named none."""

    queue: str
    local_queue: str
    is_admitted: bool
    usage: dict[FlavorResource, int]


class Tallies:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._held: dict[str, Held] = {}
        self.queues: dict[str, Tally] = {}
        self.local_queues: dict[str, Tally] = {}

    def put(self, view: kueue.Workload) -> set[str]:
        """The workload is like that now. The ClusterQueues where something else is held than before."""
        return self._set(f"{view.metadata.namespace}/{view.metadata.name}", self._read(view))

    def drop(self, key: str) -> set[str]:
        return self._set(key, None)

    def queue(self, name: str) -> Tally:
        return self.queues.get(name) or Tally()

    def local_queue(self, key: str) -> Tally:
        return self.local_queues.get(key) or Tally()

    def _set(self, key: str, held: Held | None) -> set[str]:
        old = self._held.pop(key, None)
        if held is not None:
            self._held[key] = held
        if old == held:
            return set()
        if old is not None:
            self._count(old, -1)
        if held is not None:
            self._count(held, 1)
        return {found.queue for found in (old, held) if found is not None}

    def _count(self, held: Held, sign: int) -> None:
        for tallies, name in ((self.queues, held.queue), (self.local_queues, held.local_queue)):
            tally = tallies.setdefault(name, Tally())
            tally.count(held.usage, sign, is_admitted=held.is_admitted)
            if not tally.reserving:
                del tallies[name]

    def _read(self, view: kueue.Workload) -> Held | None:
        found, admission = view.status.conditions, view.status.admission
        if admission is None or not conditions.is_true(found, QUOTA_RESERVED) or conditions.is_true(found, FINISHED):
            return None
        info = WorkloadInfo(view, admission.cluster_queue, self._settings)
        usage: dict[FlavorResource, int] = {}
        for pods in info.pod_sets:
            for resource, value in pods.requests.items():
                flavor = pods.flavors.get(resource)
                if flavor is not None:
                    what = FlavorResource(flavor, resource)
                    usage[what] = usage.get(what, 0) + value
        return Held(admission.cluster_queue, info.local_queue, conditions.is_true(found, ADMITTED), usage)


def _add(amounts: dict[FlavorResource, int], more: Mapping[FlavorResource, int], sign: int) -> None:
    for what, value in more.items():
        total = amounts.get(what, 0) + sign * value
        if total:
            amounts[what] = total
        else:
            amounts.pop(what, None)
