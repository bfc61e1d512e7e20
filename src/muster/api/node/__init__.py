"""node.k8s.io: ways in which nodes run pods, and what each costs."""

from muster.api.node.kinds import KINDS, RUNTIME_CLASS
from muster.api.node.views import RuntimeClass, RuntimeClassOverhead, RuntimeClassScheduling

__all__ = [
    "KINDS",
    "RUNTIME_CLASS",
    "RuntimeClass",
    "RuntimeClassOverhead",
    "RuntimeClassScheduling",
]
