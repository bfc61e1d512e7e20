"""The words of the machine: the phases of a job, what happens to it, and what can be done about it."""

from enum import StrEnum


class Phase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    ABORTING = "Aborting"
    ABORTED = "Aborted"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    TERMINATING = "Terminating"
    TERMINATED = "Terminated"
    FAILED = "Failed"


class Action(StrEnum):
    ABORT_JOB = "AbortJob"
    RESTART_JOB = "RestartJob"
    RESTART_TASK = "RestartTask"
    RESTART_POD = "RestartPod"
    RESTART_PARTITION = "RestartPartition"
    TERMINATE_JOB = "TerminateJob"
    COMPLETE_JOB = "CompleteJob"
    RESUME_JOB = "ResumeJob"
    SYNC_JOB = "SyncJob"
    ENQUEUE_JOB = "EnqueueJob"
    SYNC_QUEUE = "SyncQueue"
    OPEN_QUEUE = "OpenQueue"
    CLOSE_QUEUE = "CloseQueue"


class Happening(StrEnum):
    """Volcano calls these events. `*` in a policy stands for any of them."""

    ANY = "*"
    POD_PENDING = "PodPending"
    POD_RUNNING = "PodRunning"
    POD_FAILED = "PodFailed"
    POD_EVICTED = "PodEvicted"
    TASK_COMPLETED = "TaskCompleted"
    TASK_FAILED = "TaskFailed"
    GROUP_UNKNOWN = "Unknown"
    OUT_OF_SYNC = "OutOfSync"
    COMMAND_ISSUED = "CommandIssued"
    JOB_UPDATED = "JobUpdated"


OVER = frozenset({Phase.COMPLETED, Phase.FAILED, Phase.TERMINATED})
TARGETED = frozenset({Action.RESTART_TASK, Action.RESTART_POD, Action.RESTART_PARTITION})
_PHASES = {str(phase): phase for phase in Phase}
_ACTIONS = {str(action): action for action in Action}


def phase_of(text: str | None) -> Phase:
    """What is not known counts as new."""
    return _PHASES.get(text or "", Phase.PENDING)


def action_of(text: str | None) -> Action:
    """An action that nobody knows changes nothing."""
    return _ACTIONS.get(text or "", Action.SYNC_JOB)
