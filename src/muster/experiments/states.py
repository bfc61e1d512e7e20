"""How experiments and trials stand, by Determined's names."""

from enum import StrEnum
from typing import Final, NewType

ExperimentId = NewType("ExperimentId", int)
TrialId = NewType("TrialId", int)


class ExperimentState(StrEnum):
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    STOPPING_COMPLETED = "STOPPING_COMPLETED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    STOPPING_ERROR = "STOPPING_ERROR"
    STOPPING_KILLED = "STOPPING_KILLED"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"
    DELETING = "DELETING"
    DELETE_FAILED = "DELETE_FAILED"


class TrialState(StrEnum):
    """`STOPPING_COMPLETED`: its search has no more use for it, and it was asked to stop."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    STOPPING_COMPLETED = "STOPPING_COMPLETED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    STOPPING_ERROR = "STOPPING_ERROR"
    STOPPING_KILLED = "STOPPING_KILLED"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"


ENDED: Final = frozenset({ExperimentState.COMPLETED, ExperimentState.CANCELED, ExperimentState.ERROR})
GOING: Final = frozenset({ExperimentState.ACTIVE, ExperimentState.PAUSED})
"""Those whose user can still change their course."""
TRIAL_ENDED: Final = frozenset({TrialState.COMPLETED, TrialState.CANCELED, TrialState.ERROR})
