"""Why an allocation does not run yet, in the words of those who hold it up: quota, the scheduler, its node. Pure."""

from typing import Final

from muster.api import conditions, core, kueue
from muster.quota.workloads import QUOTA_RESERVED, WAITING

_USUAL: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""What every container waits for on its way."""


def of_workload(workload: kueue.Workload) -> str:
    """Empty where it has quota, or nobody has looked at it yet."""
    found = workload.status.conditions
    reserved, waiting = conditions.find(found, QUOTA_RESERVED), conditions.find(found, WAITING)
    if reserved is None or reserved.status == conditions.TRUE:
        return ""
    if waiting is not None and waiting.status == conditions.TRUE:
        return waiting.message or ""
    return reserved.message or ""


def of_pod(pod: core.Pod) -> str:
    """Empty where nothing holds it up that is worth telling."""
    placed = conditions.find(pod.status.conditions, "PodScheduled")
    if not pod.spec.node_name:
        return "" if placed is None or placed.status == conditions.TRUE else placed.message or ""
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = container.state.waiting if container.state is not None else None
        if waiting is not None and (waiting.reason or "") not in _USUAL:
            message = f": {waiting.message}" if waiting.message else ""
            return f"{pod.metadata.name} on {pod.spec.node_name}: {waiting.reason}{message}"
    return ""
