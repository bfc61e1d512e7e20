"""Which nodes could take a pod of some shape, leaving aside what they have free, and why the others could not.

Each check sees only the nodes that passed the ones before it, so each node is counted under one obstacle.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from muster.api import core
from muster.cluster import ClusterArrays, NodeMask, NodeTaint
from muster.placement.requests import PodShape
from muster.placement.verdicts import Obstacle, Reason

_CORDON = NodeTaint("node.kubernetes.io/unschedulable", "", "NoSchedule")


@dataclass(frozen=True, slots=True)
class Feasible:
    """`mask`: nodes that pass. `reasons`: the nodes that do not, counted."""

    mask: NodeMask
    reasons: tuple[Reason, ...]


def feasible(shape: PodShape, cluster: ClusterArrays) -> Feasible:
    mask = cluster.exists.copy()
    reasons: list[Reason] = []
    for obstacle, subject, blocked in _obstacles(shape, cluster):
        stopped = int((mask & blocked).sum())
        if stopped:
            reasons.append(Reason(obstacle, stopped, subject))
            mask &= ~blocked
    return Feasible(mask, _merged(reasons))


def _obstacles(shape: PodShape, cluster: ClusterArrays) -> Iterator[tuple[Obstacle, str, NodeMask]]:
    if not _is_tolerated(_CORDON, shape):
        yield Obstacle.CORDONED, "", cluster.cordoned
    yield Obstacle.NOT_READY, "", ~cluster.ready
    for code, taints in enumerate(cluster.taint_classes):
        hurtful = next((taint for taint in taints if not _is_tolerated(taint, shape)), None)
        if hurtful is not None:
            yield Obstacle.TAINT, f"{{{hurtful.key}: {hurtful.value}}}", cluster.taint_class == code
    for key, value in shape.node_selector:
        yield Obstacle.SELECTOR, "", ~cluster.with_label(key, value)


def _is_tolerated(taint: NodeTaint, shape: PodShape) -> bool:
    return any(tolerates(toleration, taint) for toleration in shape.tolerations)


def tolerates(toleration: core.Toleration, taint: NodeTaint) -> bool:
    """As Kubernetes reads tolerations: an empty key with Exists matches all, an empty effect every effect."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and (toleration.value or "") == taint.value


def _merged(reasons: list[Reason]) -> tuple[Reason, ...]:
    """Reasons that read the same, added up: two selectors, or two classes of nodes with one taint in common."""
    counts: dict[tuple[Obstacle, str], int] = {}
    for reason in reasons:
        place = (reason.obstacle, reason.subject)
        counts[place] = counts.get(place, 0) + reason.nodes
    return tuple(Reason(obstacle, nodes, subject) for (obstacle, subject), nodes in counts.items())
