"""Words of the kind Allocation that others read: phases, conditions, labels."""

from enum import StrEnum
from typing import Final

ALLOCATION_LABEL: Final = "muster.dev/allocation"
"""On pods, and on what else belongs to an allocation: its name."""
RANK_LABEL: Final = "muster.dev/rank"
TASK_LABEL: Final = "muster.dev/task"
TASK_TYPE_LABEL: Final = "muster.dev/task-type"
WORKSPACE_LABEL: Final = "muster.dev/workspace"
"""On a namespace that was made for one: the number of the workspace."""

QUEUE_PRIORITY: Final = "muster.dev/queue-priority"
"""An annotation of pods: which of those that are as important goes first, from -99 to 99, the higher the sooner. Unlike
a pod's priority it may change while the pod waits, and nobody is preempted for it."""

PREEMPTING: Final = "Preempting"
"""A condition: somebody else needs the room. It is asked to stop, and made to when its time is up."""
TERMINATED: Final = "Terminated"
"""A condition: nothing of it runs any more."""

DEFAULT_PREEMPTION_SECONDS: Final = 3600


class Phase(StrEnum):
    """Of an allocation, in order. It never goes back, but from PENDING to QUEUED: then nothing of it has run."""

    QUEUED = "Queued"
    PENDING = "Pending"
    """Admitted: its pods are made, and wait for nodes."""
    ASSIGNED = "Assigned"
    """All of its pods have nodes. This is its one run."""
    STARTING = "Starting"
    RUNNING = "Running"
    TERMINATED = "Terminated"


BEGUN: Final = frozenset({Phase.ASSIGNED, Phase.STARTING, Phase.RUNNING, Phase.TERMINATED})


class ResourcePhase(StrEnum):
    """Of one of its pods."""

    PENDING = "Pending"
    ASSIGNED = "Assigned"
    PULLING = "Pulling"
    STARTING = "Starting"
    RUNNING = "Running"
    TERMINATED = "Terminated"


class EndReason(StrEnum):
    """Why a pod ended, where that was not its program's doing."""

    COMPLETED = "Completed"
    FAILED = "Failed"
    """Its program, or its start."""
    NODE_LOST = "NodeLost"
    EVICTED = "Evicted"
    """Its node, or somebody more important, wanted the room."""
    DELETED = "Deleted"
    """By us, or by somebody else."""
