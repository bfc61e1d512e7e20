"""Where pods may go that use storage of the cluster: where their volumes can be reached; and where a claim waits for a
node to be chosen, where its class allows volumes. As kube-scheduler's VolumeBinding, but it chooses no volume."""

import numpy as np

from muster.api.core import PersistentVolumeClaim
from muster.api.objects import Key
from muster.api.selectors import Operator, Requirement
from muster.api.storage import StorageClass, waiting
from muster.cluster.columns import NodeMask
from muster.cluster.state import ClusterState
from muster.placement.framework import Code, Status
from muster.placement.plugins.node_selection import Selection, labelled_so, selector_terms


def slots(claim: PersistentVolumeClaim, cluster: ClusterState) -> list[int] | Status | None:
    """Of the nodes that the claim allows; None where any may."""
    if waiting.is_bound(claim):
        return _of_volume(claim.spec.volume_name or "", cluster)
    found = waiting.class_of(claim, cluster.claims.classes)
    objection = waiting.objection(claim, found)
    if objection or found is None:
        return unresolvable(objection)
    chosen = waiting.chosen_node(claim)
    if chosen:
        return [cluster.slots[chosen]] if chosen in cluster.slots else []
    users = list(cluster.claims.users(Key(claim.metadata.namespace, claim.metadata.name)))
    return users or _of_class(found, cluster)


def unresolvable(reason: str) -> Status:
    return Status(Code.UNRESOLVABLE, (reason,))


def _of_volume(name: str, cluster: ClusterState) -> list[int] | Status | None:
    volume = cluster.claims.volume(name)
    if volume is None:
        return unresolvable(f'persistentvolume "{name}" not found')
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return None
    return _listed(Selection(terms=selector_terms(affinity.required)).nodes(cluster))


def _of_class(found: StorageClass, cluster: ClusterState) -> list[int] | None:
    if not found.allowed_topologies:
        return None
    allowed = cluster.mask()
    for term in found.allowed_topologies:
        mask = cluster.exists[: cluster.width].copy()
        for wanted in term.match_label_expressions:
            mask &= labelled_so(Requirement(wanted.key, Operator.IN, frozenset(wanted.values)), cluster)
        allowed |= mask
    return _listed(allowed)


def _listed(mask: NodeMask) -> list[int]:
    return [int(slot) for slot in np.flatnonzero(mask)]
