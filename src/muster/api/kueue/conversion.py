"""v1beta1 documents to v1beta2 and back.

A field that only one of the two versions knows stays in the document as it is, so that going there and back loses
nothing. What v1beta1 once had and v1beta2 gave up (the snapshot of pending workloads, the retry delay of a check)
is dropped on the way in. Both directions accept any shape and leave wrong ones for validation to name.
"""

from collections.abc import Callable, Mapping

from muster.api.documents import child, objects
from muster.api.kinds import Conversion
from muster.api.kueue import topology_assignments
from muster.api.kueue.topology_assignments import Unreadable
from muster.api.raw import Document

GROUP = "kueue.x-k8s.io"
STORED = "v1beta2"
POD_PRIORITY_SOURCE = "scheduling.k8s.io/priorityclass"
WORKLOAD_PRIORITY_SOURCE = "kueue.x-k8s.io/workloadpriorityclass"
_REFERENCES: Mapping[str, tuple[str, str]] = {
    POD_PRIORITY_SOURCE: ("scheduling.k8s.io", "PriorityClass"),
    WORKLOAD_PRIORITY_SOURCE: ("kueue.x-k8s.io", "WorkloadPriorityClass"),
}
_SOURCES: Mapping[tuple[str, str], str] = {reference: source for source, reference in _REFERENCES.items()}
_OLD_FUNGIBILITY: Mapping[str, str] = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}
STOP_SEARCH = "MayStopSearch"


def _unchanged(document: Document) -> Document:
    return document


def v1beta1(
    to_stored: Callable[[Document], Document] = _unchanged, from_stored: Callable[[Document], Document] = _unchanged
) -> Conversion:
    """A conversion that also says which version the document now is."""

    def arriving(document: Document) -> Document:
        return to_stored(document) | {"apiVersion": f"{GROUP}/{STORED}"}

    def leaving(document: Document) -> Document:
        return from_stored(document) | {"apiVersion": f"{GROUP}/v1beta1"}

    return Conversion("v1beta1", arriving, leaving)


def _rename(document: Document, old: str, new: str) -> None:
    if old in document:
        value = document.pop(old)
        document.setdefault(new, value)


def cluster_queue_to_v1beta2(document: Document) -> Document:
    spec = child(document, "spec")
    _rename(spec, "cohort", "cohortName")
    fungibility = child(spec, "flavorFungibility")
    for field, old in _OLD_FUNGIBILITY.items():
        if fungibility.get(field) == old:
            fungibility[field] = STOP_SEARCH
    names = spec.pop("admissionChecks", None)
    # v1beta1 forbids to give both; the strategy says more, so it wins.
    if isinstance(names, list) and names and not child(spec, "admissionChecksStrategy"):
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": name} for name in names]}
    child(document, "status").pop("pendingWorkloadsStatus", None)
    return document


def cluster_queue_to_v1beta1(document: Document) -> Document:
    spec = child(document, "spec")
    _rename(spec, "cohortName", "cohort")
    fungibility = child(spec, "flavorFungibility")
    for field, old in _OLD_FUNGIBILITY.items():
        if fungibility.get(field) == STOP_SEARCH:
            fungibility[field] = old
    return document


def local_queue_to_v1beta2(document: Document) -> Document:
    status = child(document, "status")
    _rename(status, "flavorUsage", "flavorsUsage")
    status.pop("flavors", None)
    return document


def local_queue_to_v1beta1(document: Document) -> Document:
    _rename(child(document, "status"), "flavorsUsage", "flavorUsage")
    return document


def cohort_to_v1beta2(document: Document) -> Document:
    _rename(child(document, "spec"), "parent", "parentName")
    return document


def admission_check_to_v1beta2(document: Document) -> Document:
    child(document, "spec").pop("retryDelayMinutes", None)
    return document


def workload_to_v1beta2(document: Document) -> Document:
    spec, status = child(document, "spec"), child(document, "status")
    name, source = spec.pop("priorityClassName", None), spec.pop("priorityClassSource", None)
    if name and "priorityClassRef" not in spec:
        # A class without a source is a pod's: v1beta1 had that field before it had sources.
        group, kind = _REFERENCES.get(str(source or POD_PRIORITY_SOURCE), ("", str(source)))
        spec["priorityClassRef"] = {"group": group, "kind": kind, "name": name}
    _rename(status, "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds")
    for assignment in objects(status, "admission", "podSetAssignments"):
        topology = assignment.get("topologyAssignment")
        if isinstance(topology, dict) and "domains" in topology and "slices" not in topology:
            try:
                domains = topology_assignments.read_list(topology)
            except Unreadable:
                continue
            assignment["topologyAssignment"] = topology_assignments.compact(topology["levels"], domains)
    return document


def workload_to_v1beta1(document: Document) -> Document:
    spec, status = child(document, "spec"), child(document, "status")
    reference = child(spec, "priorityClassRef")
    source = _SOURCES.get((str(reference.get("group")), str(reference.get("kind"))))
    if source and reference.get("name"):
        del spec["priorityClassRef"]
        spec |= {"priorityClassName": reference["name"], "priorityClassSource": source}
    _rename(status, "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
    for assignment in objects(status, "admission", "podSetAssignments"):
        topology = assignment.get("topologyAssignment")
        if isinstance(topology, dict) and "slices" in topology:
            try:
                domains = topology_assignments.list_out(topology)
            except Unreadable:
                continue
            assignment["topologyAssignment"] = topology_assignments.as_list(topology["levels"], domains)
    return document
