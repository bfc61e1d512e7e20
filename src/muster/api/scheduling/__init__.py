"""scheduling.k8s.io: priorities of pods."""

from muster.api.scheduling.kinds import KINDS, PRIORITY_CLASS
from muster.api.scheduling.views import (
    PriorityClass,
)

__all__ = [
    "KINDS",
    "PRIORITY_CLASS",
    "PriorityClass",
]
