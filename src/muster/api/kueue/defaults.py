"""What is filled in for Kueue's kinds when a user leaves it out.

The finalizers that keep flavors and queues in use from vanishing are not set here: whoever releases them sets them.
"""

from muster.api.documents import child, drop_nulls, fill, made_child, objects
from muster.api.raw import Document

MAIN = "main"
"""The name of a pod set that was not given one."""


def default_nothing(document: Document) -> None:
    """For kinds without defaults: a null still means absent."""
    drop_nulls(document)


def default_cluster_queue(document: Document) -> None:
    drop_nulls(document)
    spec = made_child(document, "spec")
    fill(spec, "queueingStrategy", "BestEffortFIFO")
    fill(spec, "stopPolicy", "None")
    fungibility = made_child(spec, "flavorFungibility")
    fill(fungibility, "whenCanBorrow", "MayStopSearch")
    fill(fungibility, "whenCanPreempt", "TryNextFlavor")
    preemption = made_child(spec, "preemption")
    fill(preemption, "reclaimWithinCohort", "Never")
    fill(preemption, "withinClusterQueue", "Never")
    fill(made_child(preemption, "borrowWithinCohort"), "policy", "Never")
    _weight(spec)


def default_local_queue(document: Document) -> None:
    drop_nulls(document)
    spec = made_child(document, "spec")
    fill(spec, "stopPolicy", "None")
    _weight(spec)


def default_cohort(document: Document) -> None:
    drop_nulls(document)
    _weight(child(document, "spec"))


def _weight(spec: Document) -> None:
    # Only where the section is there: an absent one means weight 1 too, but says that nobody chose it.
    if isinstance(spec.get("fairSharing"), dict):
        fill(child(spec, "fairSharing"), "weight", "1")


def default_workload(document: Document) -> None:
    drop_nulls(document)
    spec = made_child(document, "spec")
    fill(spec, "active", True)
    for pod_set in objects(spec, "podSets"):
        fill(pod_set, "name", MAIN)
        fill(pod_set, "count", 1)
    for assignment in objects(document, "status", "admission", "podSetAssignments"):
        fill(assignment, "name", MAIN)
