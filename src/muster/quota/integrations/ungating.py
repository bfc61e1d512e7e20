"""Which gated pods of an admitted workload may go, and with which node selector.

A pod has a gate for each question that is still open: which place of the topology is its own, and, in an elastic job,
whether there is quota for it at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from muster.api import conditions, core, kueue
from muster.api.kueue import names
from muster.quota.integrations import topology
from muster.quota.integrations.topology import Member
from muster.quota.topology import from_view, merge
from muster.quota.workloads import ADMITTED, EVICTED, FINISHED

DONE = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Release:
    """The pod loses these gates, and may go only to such nodes."""

    pod: core.Pod
    gates: frozenset[str]
    node_selector: Mapping[str, str]


def active_slice(workloads: Sequence[kueue.Workload]) -> kueue.Workload | None:
    """Of the workloads that one job had in turn, the one whose quota its pods run on."""
    admitted = [found for found in workloads if _is_admitted(found) and not _is_part(found)]
    return max(admitted, key=lambda found: (found.metadata.creation_timestamp or "", found.metadata.name), default=None)


def active_parts(workloads: Sequence[kueue.Workload]) -> list[kueue.Workload]:
    """Of the same, those that add a pod each."""
    return [found for found in workloads if _is_part(found) and _is_admitted(found)]


def _is_part(workload: kueue.Workload) -> bool:
    return names.PART_OF_ANNOTATION in (workload.metadata.annotations or {})


def _is_admitted(workload: kueue.Workload) -> bool:
    listed = workload.status.conditions
    return (
        workload.status.admission is not None
        and conditions.is_true(listed, ADMITTED)
        and not conditions.is_true(listed, EVICTED)
        and not conditions.is_true(listed, FINISHED)
    )


def releases(workload: kueue.Workload, pods: Sequence[core.Pod], parts: Sequence[kueue.Workload] = ()) -> list[Release]:
    """`pods`: of the workload, whatever their state. `parts`: those that were admitted to go with it."""
    assert workload.status.admission is not None
    by_set: dict[str, list[core.Pod]] = {}
    for pod in pods:
        if pod.status.phase not in DONE:
            by_set.setdefault((pod.metadata.labels or {}).get(names.POD_SET_LABEL, ""), []).append(pod)
    broken = frozenset(node.name for node in workload.status.unhealthy_nodes)
    specs = {found.name: found for found in workload.spec.pod_sets}
    found: list[Release] = []
    for given in workload.status.admission.pod_set_assignments:
        members = sorted(by_set.get(given.name, ()), key=lambda pod: pod.metadata.name)
        spec = specs.get(given.name, kueue.PodSet())
        has_quota = _with_quota(members, min(given.count or 0, spec.count or 0))
        added = [
            other.topology_assignment
            for part in parts
            for other in (part.status.admission or kueue.Admission()).pod_set_assignments
            if other.name == given.name and other.topology_assignment is not None
        ]
        places = _places(given, spec, members, broken, added)
        for pod in members:
            release = _release(pod, has_quota, places, is_placed=given.topology_assignment is not None)
            if release is not None:
                found.append(release)
    return found


def _release(
    pod: core.Pod, has_quota: frozenset[str], places: Mapping[str, Mapping[str, str]], *, is_placed: bool
) -> Release | None:
    gates, name = _gates(pod), pod.metadata.name
    if names.ADMISSION_GATE in gates or pod.metadata.deletion_timestamp is not None:
        return None
    if names.ELASTIC_GATE in gates and name not in has_quota:
        return None
    released = gates & {names.ELASTIC_GATE}
    if names.TOPOLOGY_GATE in gates and is_placed:
        if name not in places:
            return Release(pod, released, {}) if released else None
        return Release(pod, released | {names.TOPOLOGY_GATE}, places[name])
    return Release(pod, released, {}) if released else None


def _with_quota(members: Sequence[core.Pod], count: int) -> frozenset[str]:
    """Those of an elastic job that there is quota for: who runs stays, then whose turn it is."""
    gated = [pod for pod in members if names.ELASTIC_GATE in _gates(pod)]
    left = count - (len(members) - len(gated))
    gated.sort(key=_turn)
    return frozenset(pod.metadata.name for pod in gated[: max(0, left)])


def _turn(pod: core.Pod) -> tuple[int, str, str]:
    index = (pod.metadata.labels or {}).get("batch.kubernetes.io/job-completion-index", "")
    return int(index) if index.isdigit() else 0, pod.metadata.creation_timestamp or "", pod.metadata.name


def _places(
    given: kueue.PodSetAssignment,
    spec: kueue.PodSet,
    members: Sequence[core.Pod],
    broken: frozenset[str],
    added: Sequence[kueue.TopologyAssignment],
) -> dict[str, dict[str, str]]:
    if given.topology_assignment is None or not any(names.TOPOLOGY_GATE in _gates(pod) for pod in members):
        return {}
    listed = [
        Member(
            pod.metadata.name,
            pod.metadata.labels or {},
            pod.spec.node_selector or {},
            names.TOPOLOGY_GATE in _gates(pod),
        )
        for pod in members
    ]
    assignment = reduce(merge, map(from_view, added), from_view(given.topology_assignment))
    return topology.place(assignment, listed, topology.ranks_of(spec), broken)


def _gates(pod: core.Pod) -> frozenset[str]:
    return frozenset(gate.name for gate in pod.spec.scheduling_gates)
