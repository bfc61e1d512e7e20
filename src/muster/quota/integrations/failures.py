"""Nodes that fail under workloads which were placed on them by topology, and places that turn out not to be there.

Only where the topology goes down to hosts: a larger domain survives one of its nodes.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from muster.api import conditions, core, kueue, timestamps
from muster.api.kueue import names
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.cluster.state import FINISHED as DONE
from muster.quota import status
from muster.quota.flavor_fitting import tolerates
from muster.quota.gates import Gate
from muster.quota.lifecycle.holding import rest_seconds
from muster.quota.settings import PodsReady, Settings
from muster.quota.status import Evicted
from muster.quota.topology import TopologyAssignment, from_view
from muster.quota.topology.assignments import HOSTNAME

NOT_READY_PATIENCE: Final = 30.0
"""Seconds after which a node that is not ready has failed, whatever its pods say (where a gate asks for that)."""
_TAINTS: Final = frozenset({"NoSchedule", "NoExecute"})
UNPLACEABLE: Final = "Unplaceable"


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """`change`: of the workload's status; None where it is as it should be. `look_again`: when time alone may
    decide."""

    change: Callable[[Document], Document] | None = None
    event: tuple[str, str] | None = None
    stranded: tuple[core.Pod, ...] = ()
    """Pods that were sent to a node which failed before they got there: they can only be made anew."""
    look_again: float | None = None


FindNode = Callable[[str], core.Node | None]
"""By host name."""


def judge(
    workload: kueue.Workload,
    pods: Sequence[core.Pod],
    node_at: FindNode,
    tolerations: Mapping[str, Sequence[core.Toleration]],
    settings: Settings,
    now: Instant,
) -> Verdict:
    """An admitted workload that is not being evicted. `tolerations`: those that each flavor gives."""
    assignments = _assignments(workload)
    if not assignments:
        return Verdict()
    failed, look_again = _failed(workload, assignments, pods, node_at, tolerations, settings, now)
    stranded = tuple(pod for pod in pods if _is_stranded(pod, failed)) if failed else ()
    verdict = _recorded(workload, failed, settings, now)
    if verdict is not None:
        return Verdict(verdict.change, verdict.event, stranded, look_again)
    lost = _unplaceable(workload, [pod for pod in pods if pod not in stranded], settings, now)
    waits = [wait for wait in (lost.look_again, look_again) if wait is not None]
    return Verdict(lost.change, lost.event, stranded, min(waits, default=None))


def _failed(
    workload: kueue.Workload,
    assignments: Mapping[str, TopologyAssignment],
    pods: Sequence[core.Pod],
    node_at: FindNode,
    tolerations: Mapping[str, Sequence[core.Toleration]],
    settings: Settings,
    now: Instant,
) -> tuple[list[str], float | None]:
    """Hosts that have failed under it, and after how long to ask again."""
    if Gate.TAS_FAILED_NODE_REPLACEMENT not in settings.gates:
        return [], None
    by_node: dict[str, list[core.Pod]] = {}
    for pod in pods:
        by_node.setdefault(pod.spec.node_name or "", []).append(pod)
    failed: list[str] = []
    waits: list[float] = []
    for name, assignment in assignments.items():
        if not assignment.levels or assignment.levels[-1] != HOSTNAME:
            continue
        tolerated = _tolerated(workload, name, tolerations)
        for domain in assignment.domains:
            host = domain.values[-1]
            node = node_at(host)
            on_it = by_node.get(node.metadata.name, ()) if node is not None else ()
            has_failed, wait = _has_failed(node, on_it, tolerated, settings, now)
            if has_failed and host not in failed:
                failed.append(host)
            if wait is not None:
                waits.append(wait)
    return failed, min(waits, default=None)


def _recorded(workload: kueue.Workload, failed: Sequence[str], settings: Settings, now: Instant) -> Verdict | None:
    """What its status should say of these nodes; None where it does."""
    known = [node.name for node in workload.status.unhealthy_nodes]
    if set(failed) == set(known):
        return None
    if is_lone_pod(workload) and Gate.SKIP_REASSIGNMENT_FOR_POD_OWNED_WORKLOADS in settings.gates:
        return None
    if len(set(known) & set(failed)) + len(set(failed) - set(known)) > 1:
        listed = ", ".join(sorted(failed))
        message = f"Workload eviction triggered due to multiple node failures: {listed}"
        change = partial(status.evict, reason=Evicted.NODE_FAILURES, message=message, now=now)
        return Verdict(change, (f"EvictedDueTo{Evicted.NODE_FAILURES}", message))
    return Verdict(partial(status.mark_unhealthy, nodes=tuple(failed)))


def _unplaceable(workload: kueue.Workload, pods: Sequence[core.Pod], settings: Settings, now: Instant) -> Verdict:
    """A pod that may not go elsewhere, and cannot be placed where it should, is given some time: a pod that it waits
    for may be on its way out. Then the workload gives back its quota and rests: what was decided for it was not so."""
    first: tuple[float, core.Pod, str] | None = None
    for pod in pods:
        since = _unschedulable_since(pod)
        if since is not None and (first is None or since[0] < first[0]):
            first = (since[0], pod, since[1])
    if first is None:
        return Verdict()
    left = first[0] + settings.placement_patience - now
    if left > 0:
        return Verdict(look_again=left)
    message = f"Pod {first[1].metadata.name} could not be placed where its workload was admitted to: {first[2]}"
    rule = settings.pods_ready or PodsReady()
    state = workload.status.requeue_state
    count = (state.count or 0) + 1 if state is not None else 1
    until = Instant(now + rest_seconds(rule, count))

    def change(document: Document) -> Document:
        rested = status.back_off(document, until, counts=True)
        return status.evict(rested, Evicted.PODS_READY_TIMEOUT, message, now, UNPLACEABLE)

    return Verdict(change, (f"EvictedDueTo{Evicted.PODS_READY_TIMEOUT}DueTo{UNPLACEABLE}", message))


def _unschedulable_since(pod: core.Pod) -> tuple[float, str] | None:
    if pod.spec.node_name or pod.spec.scheduling_gates or pod.status.phase in DONE or pod.metadata.deletion_timestamp:
        return None
    found = conditions.find(pod.status.conditions, "PodScheduled")
    if found is None or found.status != conditions.FALSE or found.reason != "Unschedulable":
        return None
    if pod.status.nominated_node_name or not found.last_transition_time:
        return None  # others are making room for it
    return timestamps.parse(found.last_transition_time), found.message or ""


# One node


def _has_failed(
    node: core.Node | None,
    pods: Sequence[core.Pod],
    tolerations: Sequence[core.Toleration],
    settings: Settings,
    now: Instant,
) -> tuple[bool, float | None]:
    """`pods`: of the workload, on that node. And after how long to ask again, where time may tell."""
    gates = settings.gates
    ready = conditions.find(node.status.conditions, "Ready") if node is not None else None
    if node is None or ready is None:
        return True, None
    is_ready = ready.status == conditions.TRUE
    is_repelled = Gate.TAS_REPLACE_NODE_ON_NODE_TAINTS in gates and any(
        taint.effect in _TAINTS and not any(_tolerates_for_good(found, taint) for found in tolerations)
        for taint in node.spec.taints
    )
    if is_ready and not is_repelled:
        return False, None
    by_pods = Gate.TAS_REPLACE_NODE_ON_POD_TERMINATION in gates
    if by_pods and not any(map(_holds_on, pods)):
        return True, None
    by_time = Gate.TAS_REPLACE_NODE_DUE_TO_NOT_READY_OVER_FIXED_TIME in gates or not by_pods
    if is_ready or not by_time:
        return False, None
    since = timestamps.parse(ready.last_transition_time) if ready.last_transition_time else now
    left = since + NOT_READY_PATIENCE - now
    return left <= 0, left if left > 0 else None


def _holds_on(pod: core.Pod) -> bool:
    return pod.status.phase not in DONE and pod.metadata.deletion_timestamp is None


def _tolerates_for_good(toleration: core.Toleration, taint: core.Taint) -> bool:
    return toleration.toleration_seconds is None and tolerates(toleration, taint)


def _is_stranded(pod: core.Pod, failed: Collection[str]) -> bool:
    host = (pod.spec.node_selector or {}).get(HOSTNAME)
    return host in failed and not pod.spec.node_name and not pod.spec.scheduling_gates and _holds_on(pod)


# Of the workload


def _assignments(workload: kueue.Workload) -> dict[str, TopologyAssignment]:
    admission = workload.status.admission
    return {
        given.name: from_view(given.topology_assignment)
        for given in (admission.pod_set_assignments if admission is not None else ())
        if given.topology_assignment is not None
    }


def _tolerated(
    workload: kueue.Workload, name: str, by_flavor: Mapping[str, Sequence[core.Toleration]]
) -> list[core.Toleration]:
    """What pods of that pod set tolerate: their own, and what their flavors and checks gave them."""
    assert workload.status.admission is not None
    found: list[core.Toleration] = []
    for pods in workload.spec.pod_sets:
        if pods.name == name:
            found += pods.template.spec.tolerations
    for given in workload.status.admission.pod_set_assignments:
        for flavor in dict.fromkeys((given.flavors or {}).values()) if given.name == name else ():
            found += by_flavor.get(flavor, ())
    for check in workload.status.admission_checks:
        for update in check.pod_set_updates:
            if update.name == name:
                found += update.tolerations
    return found


def is_lone_pod(workload: kueue.Workload) -> bool:
    """Made for one bare pod, which nothing makes anew."""
    owners = workload.metadata.owner_references
    is_group = (workload.metadata.annotations or {}).get(names.IS_GROUP_ANNOTATION) == "true"
    return len(owners) == 1 and owners[0].kind == "Pod" and not is_group
