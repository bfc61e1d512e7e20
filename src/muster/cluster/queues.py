"""Which groups of nodes a queue is for: `affinity` of Volcano's queues, and which queue the pods of a group are in.

A queue that says nothing has what the nearest queue above it says.
"""

from typing import NamedTuple, Self

from muster.api import volcano
from muster.api.objects import Key

NODE_GROUP = "volcano.sh/nodegroup-name"
"""The label by which a node is in a group."""
_USUAL_QUEUE = "default"


class NodeGroupRules(NamedTuple):
    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    """The best first."""
    forbidden: tuple[str, ...] = ()
    avoided: tuple[str, ...] = ()

    @classmethod
    def of(cls, queue: volcano.Queue) -> Self:
        affinity = queue.spec.affinity or volcano.Affinity()
        near = affinity.node_group_affinity or volcano.NodeGroupAffinity()
        far = affinity.node_group_anti_affinity or volcano.NodeGroupAntiAffinity()
        return cls(
            near.required_during_scheduling_ignored_during_execution,
            near.preferred_during_scheduling_ignored_during_execution,
            far.required_during_scheduling_ignored_during_execution,
            far.preferred_during_scheduling_ignored_during_execution,
        )

    @property
    def say_anything(self) -> bool:
        return any(self)


_NOTHING = NodeGroupRules()


class QueueAffinities:
    def __init__(self) -> None:
        self._queues: dict[str, tuple[NodeGroupRules, str]] = {}
        self._of_groups: dict[Key, str] = {}

    def set_queue(self, queue: volcano.Queue) -> bool:
        """Whether that changes anything."""
        said = NodeGroupRules.of(queue), queue.spec.parent or ""
        if self._queues.get(queue.metadata.name) == said:
            return False
        self._queues[queue.metadata.name] = said
        return True

    def remove_queue(self, name: str) -> None:
        self._queues.pop(name, None)

    def set_group(self, group: Key, queue: str | None) -> None:
        """Its pods are in the queue."""
        self._of_groups[group] = queue or _USUAL_QUEUE

    def remove_group(self, group: Key) -> None:
        self._of_groups.pop(group, None)

    def rules_for(self, group: Key | None) -> NodeGroupRules | None:
        """For pods of the group; None where they are in no queue."""
        name = None if group is None else self._of_groups.get(group)
        if name is None:
            return None
        seen: set[str] = set()
        while name and name not in seen:
            seen.add(name)
            rules, name = self._queues.get(name, (_NOTHING, ""))
            if rules.say_anything:
                return rules
        return _NOTHING
