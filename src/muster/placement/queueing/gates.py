"""PreEnqueue: which members of an entity a plugin holds back. One is enough to hold back a whole gang."""

from collections.abc import Mapping

from muster.cluster.pods import PodInfo
from muster.placement.profiles import DEFAULT_SCHEDULER, Profile, name_of
from muster.placement.queueing.entities import Entity, Gate
from muster.placement.queueing.waking import Fault, Hints, scheduler_of


class Gates:
    def __init__(self, profiles: Mapping[str, Profile], hints: Hints) -> None:
        self._plugins = {
            scheduler: tuple((name_of(plugin), plugin.pre_enqueue) for plugin in profile.pre_enqueue)
            for scheduler, profile in profiles.items()
        }
        self._others = self._plugins.get(DEFAULT_SCHEDULER, ())
        self._hints = hints

    def ask(self, entity: Entity, pod: PodInfo) -> Gate | None:
        gate = self._gate(pod)
        if gate is not None:
            entity.gates[pod.uid] = gate
        else:
            entity.gates.pop(pod.uid, None)
        return gate

    def _gate(self, pod: PodInfo) -> Gate | None:
        for name, pre_enqueue in self._plugins.get(scheduler_of(pod), self._others):
            try:
                status = pre_enqueue(pod)
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                self._hints.faults.append(Fault(name, "pre_enqueue", reason))
            else:
                if status.is_success:
                    continue
                reason = ", ".join(status.reasons)
            return Gate(name, reason)
        return None

    def ask_all(self, entity: Entity) -> bool:
        """Whether any member is held back. Stops at the first: the others are asked when that one may pass."""
        for pod in entity.members.values():
            if self.ask(entity, pod):
                return True
        entity.is_stale = False
        return False

    def ask_held(self, entity: Entity) -> bool:
        """As `ask_all`, but only of those held back when last asked, so that a gang of thousands which lacks one member
        costs one question a member that comes, not thousands."""
        return any(self.ask(entity, entity.members[uid]) for uid in list(entity.gates))
