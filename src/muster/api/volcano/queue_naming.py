"""What Volcano's queues are called in the quota engine."""


def quota_name(queue: str) -> str:
    """Of the ClusterQueue or Cohort that stands for the queue, and of the LocalQueues that lead there."""
    return f"volcano-{queue}"
