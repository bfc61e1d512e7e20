"""VolumeBinding: a pod that uses storage of one node goes to that node. Of a cluster's own storage, see
`foreign_volumes`.

A claim that waits for its first pod is bound by the claims controller once that pod has a node. Until then it belongs
to whichever node has a pod that uses it: members of a gang that share a claim are placed before it is bound.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from muster.api import core
from muster.api.errors import FieldError
from muster.api.fields import forbidden
from muster.api.meta import Resource
from muster.api.objects import Key
from muster.api.raw import Document
from muster.api.storage import provisioning
from muster.cluster.columns import NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import (
    SKIP,
    Action,
    Filter,
    Hint,
    PreFilter,
    Prepared,
    Reads,
    Rejection,
    Status,
    Wake,
    Wakes,
)
from muster.placement.plugins import changes, foreign_volumes

REASON = "node(s) didn't match PersistentVolume's node affinity"
_ARGUMENTS = ("bindTimeoutSeconds", "shape")


class VolumeBinding:
    name: ClassVar[str] = "VolumeBinding"
    reads: ClassVar[Reads] = Reads.ALL_PODS

    def pre_filter(self, pod: PodInfo, cluster: ClusterState) -> Prepared:
        if not pod.shape.claims or pod.has_deferred_resize:
            return Prepared(SKIP)
        allowed: NodeMask | None = None
        for key in pod.shape.claims:
            slots = _slots(key, cluster)
            if isinstance(slots, Status):
                return Prepared(slots)
            if slots is not None:
                mask = cluster.mask()
                mask[slots] = True
                allowed = mask if allowed is None else allowed & mask
        # Not SKIP, whatever was found: the next member of a gang has to follow the first.
        return Prepared(state=allowed)

    def filter(self, pod: PodInfo, cluster: ClusterState, state: object) -> Sequence[Rejection]:
        if not isinstance(state, np.ndarray):
            return ()
        return (Rejection(REASON, cluster.exists[: cluster.width] & ~state, is_unresolvable=True),)

    def wakes(self) -> Sequence[Wake]:
        changed = frozenset({Action.ADD, Action.UPDATE, Action.DELETE})
        return (
            Wake("PersistentVolumeClaim", changed, after_claim_change, reads_labels=False),
            Wake("StorageClass", changed, reads_labels=False),
            Wake("PersistentVolume", changed, reads_labels=False),
            Wake("Node", frozenset({Action.ADD}), reads_labels=False),
            Wake("Pod", frozenset({Action.DELETE}), after_pod_deleted, reads_labels=False),
        )


def check_arguments(document: Document) -> list[FieldError]:
    """Of kube-scheduler's: they are about waiting for somebody else's storage, and change nothing here."""
    return [forbidden(name, "unknown field") for name in document if name not in _ARGUMENTS]


def _slots(key: Key, cluster: ClusterState) -> list[int] | Status | None:
    """Of the nodes that have the claim's storage; None where any may."""
    claim = cluster.claims.get(key)
    if claim is None:
        return foreign_volumes.unresolvable(f'persistentvolumeclaim "{key.name}" not found')
    if claim.metadata.deletion_timestamp is not None:
        return foreign_volumes.unresolvable(f'persistentvolumeclaim "{key.name}" is being deleted')
    if cluster.claims.are_foreign:
        return foreign_volumes.slots(claim, cluster)
    if provisioning.is_bound(claim):
        node = provisioning.node_of(claim)
        return None if node is None else [cluster.slots[node]] if node in cluster.slots else []
    found = provisioning.provide(claim, cluster.claims.classes)
    if isinstance(found, provisioning.Unprovided):
        return foreign_volumes.unresolvable(f'persistentvolumeclaim "{key.name}" cannot be bound: {found.message}')
    if found.path:  # what all nodes share is bound before pods are placed
        return foreign_volumes.unresolvable(f'persistentvolumeclaim "{key.name}" is not bound yet')
    return list(cluster.claims.users(key)) or None


def after_claim_change(pod: PodInfo, old: Resource | None, new: Resource | None, _cluster: ClusterState) -> Hint:
    found = changes.both(core.PersistentVolumeClaim, old, new)
    keys = {Key(claim.metadata.namespace, claim.metadata.name) for claim in found if claim is not None}
    return Hint.QUEUE if keys & set(pod.shape.claims) else Hint.SKIP


def after_pod_deleted(pod: PodInfo, old: Resource | None, _new: Resource | None, _cluster: ClusterState) -> Hint:
    """A claim that nobody has bound may go elsewhere when its last pod has left."""
    gone, _ = changes.both(core.Pod, old, None)
    if gone is None or gone.metadata.namespace != pod.namespace:
        return Hint.SKIP
    return Hint.QUEUE if set(core.claims_of(gone.spec)) & {key.name for key in pod.shape.claims} else Hint.SKIP


_: Filter = VolumeBinding()
_pre_filter: PreFilter = VolumeBinding()
_wakes: Wakes = VolumeBinding()
