"""What an administrator writes to carry out an order, and to take it back. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from muster.api import core, kueue, volcano
from muster.api.kinds import Kind
from muster.api.objects import Key
from muster.api.raw import Document
from muster.quota.topology.assignments import HOSTNAME
from muster.sim import loads
from muster.sim.plans import (
    POOL,
    POOL_LABEL,
    RACK_LABEL,
    BreakDevices,
    ChangeCapability,
    ChangeQuota,
    CloseQueue,
    CordonNode,
    HoldJob,
    MoveQueue,
    Order,
    Plan,
    QueueShape,
    RelabelNode,
    StopQueue,
    TaintNode,
    VolcanoQueueShape,
)
from muster.store.protocol import Create, Patch, PatchType, Write

FLAVOR = "plain"
_TOPOLOGY = "racks"
_TAINT = "sim.muster.dev/tainted"
_NEVER = "Never"


class Carrying(NamedTuple):
    out: Sequence[Write]
    back: Sequence[Write]


def carrying(order: Order, plan: Plan) -> Carrying | None:
    """None where it is about nothing that there is."""
    match order:
        case ChangeQuota() | MoveQueue() | StopQueue():
            return _on_queue(order, plan.queues[order.queue % len(plan.queues)])
        case HoldJob():
            out, back = (_command(action, volcano.JOB, order.name, order.at) for action in ("AbortJob", "ResumeJob"))
            return Carrying([out], [back])
        case CloseQueue() | ChangeCapability():
            shapes = plan.volcano_queues
            return _on_volcano_queue(order, shapes[order.queue % len(shapes)]) if shapes else None
        case _:
            number = order.node % len(plan.nodes)
            return _on_node(order, f"n{number}", plan.nodes[number].gpus)


# Queues


def flavors(plan: Plan) -> list[Document]:
    """The one that there is, and its topology."""
    labels = {POOL_LABEL: POOL}
    if not plan.has_racks:
        return [loads.a_flavor(FLAVOR, labels)]
    topology = loads.a_topology(_TOPOLOGY, RACK_LABEL, HOSTNAME)
    return [topology, loads.a_flavor(FLAVOR, labels, topology=_TOPOLOGY)]


def cluster_queue(shape: QueueShape) -> Document:
    gpus: Document = {"name": loads.GPU, "nominalQuota": str(shape.gpus)}
    if shape.cohort and shape.borrowing is not None:
        gpus["borrowingLimit"] = str(shape.borrowing)
    if shape.cohort and shape.lending is not None:
        gpus["lendingLimit"] = str(min(shape.lending, shape.gpus))
    quotas = [{"name": "cpu", "nominalQuota": str(shape.cpus)}, gpus]
    return loads.a_cluster_queue(shape.name, quotas, FLAVOR, shape.cohort, preempts=shape.preempts)


def volcano_queue(shape: VolcanoQueueShape) -> Document:
    spec: Document = {
        "weight": 1,
        "capability": {loads.GPU: str(shape.capability)},
        "deserved": {loads.GPU: str(shape.deserved)},
    }
    if shape.guarantee:
        spec["guarantee"] = {"resource": {loads.GPU: str(shape.guarantee)}}
    return loads.a_volcano_queue(shape.name, spec)


def _on_queue(order: ChangeQuota | MoveQueue | StopQueue, queue: QueueShape) -> Carrying:
    key = Key("", queue.name)
    if isinstance(order, StopQueue):
        stopped, going = ({"spec": {"stopPolicy": policy}} for policy in (order.policy, "None"))
        return Carrying([Patch(kueue.CLUSTER_QUEUE, key, stopped)], [Patch(kueue.CLUSTER_QUEUE, key, going)])
    if isinstance(order, MoveQueue):
        changed = replace(queue, cohort=order.cohort)
    else:
        changed = replace(
            queue,
            gpus=int(queue.gpus * order.share),
            borrowing=queue.borrowing if order.borrowing is None else order.borrowing,
            lending=queue.lending if order.lending is None else order.lending,
        )
    return Carrying([_as(changed)], [_as(queue)])


def _as(shape: QueueShape) -> Write:
    """All that orders change, together: limits would be refused without a cohort, which another may have taken away."""
    spec = cluster_queue(shape)["spec"]
    reclaim = {"reclaimWithinCohort": _NEVER, **(spec.get("preemption") or {})}
    body = {"cohortName": shape.cohort or None, "resourceGroups": spec["resourceGroups"], "preemption": reclaim}
    return Patch(kueue.CLUSTER_QUEUE, Key("", shape.name), {"spec": body})


def _on_volcano_queue(order: CloseQueue | ChangeCapability, queue: VolcanoQueueShape) -> Carrying:
    if isinstance(order, CloseQueue):
        actions = ("CloseQueue", "OpenQueue")
        out, back = (_command(action, volcano.QUEUE, queue.name, order.at) for action in actions)
        return Carrying([out], [back])
    least = max(queue.deserved, queue.guarantee)  # less is refused
    shares = (max(least, int(queue.capability * order.share)), queue.capability)
    out, back = (
        Patch(volcano.QUEUE, Key("", queue.name), {"spec": {"capability": {loads.GPU: str(share)}}}) for share in shares
    )
    return Carrying([out], [back])


def _command(action: str, kind: Kind, name: str, at: float) -> Write:
    target = {"apiVersion": kind.api_version, "kind": kind.name, "name": name}
    metadata = {"name": f"{action.lower()}-{name}-{at * 1000:.0f}", "namespace": loads.NAMESPACE}
    return Create(volcano.COMMAND, {"metadata": metadata, "action": action, "target": target})


# Nodes


def _on_node(order: CordonNode | TaintNode | RelabelNode | BreakDevices, name: str, gpus: int) -> Carrying:
    match order:
        case CordonNode():
            out, back = (_node(name, {"spec": {"unschedulable": value}}) for value in (True, None))
            return Carrying([out], [back])
        case RelabelNode():
            out, back = (_node(name, {"metadata": {"labels": {POOL_LABEL: pool}}}) for pool in ("other", POOL))
            return Carrying([out], [back])
        case TaintNode():
            taint = {"key": _TAINT, "effect": order.effect}
            gone = {**taint, "$patch": "delete"}
            return Carrying([_tainted(name, taint)], [_tainted(name, gone)])
        case BreakDevices():
            return Carrying([_with_devices(name, order.gpus)], [_with_devices(name, gpus)])


def _node(name: str, body: Document) -> Write:
    return Patch(core.NODE, Key("", name), body)


def _tainted(name: str, taint: Document) -> Write:
    return Patch(core.NODE, Key("", name), {"spec": {"taints": [taint]}}, PatchType.STRATEGIC)


def _with_devices(name: str, gpus: int) -> Write:
    amounts = {loads.GPU: str(gpus)}
    return Patch(
        core.NODE, Key("", name), {"status": {"capacity": amounts, "allocatable": amounts}}, subresource="status"
    )
