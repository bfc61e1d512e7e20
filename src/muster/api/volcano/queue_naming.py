"""What Volcano's queues are called in the quota engine."""

from typing import Final

FLAVOR: Final = "volcano"
"""The one ResourceFlavor that they all draw on: every node."""
MANAGED_LABEL: Final = "muster.dev/volcano-queue"
"""Of what stands for a queue: the queue's name, as far as a label can hold it."""
_LONGEST: Final = 63


def quota_name(queue: str) -> str:
    """Of the ClusterQueue or Cohort that stands for the queue, and of the LocalQueues that lead there."""
    return f"volcano-{queue}"


def managed_labels(queue: str) -> dict[str, str]:
    return {MANAGED_LABEL: queue[:_LONGEST].rstrip("-_.")}
