"""Claims to storage that a cluster provides itself: which of them wait for a pod to have a node, and how that is said.

A class with `WaitForFirstConsumer` lets the scheduler choose: it writes the node's name on the claim, the provisioner
makes a volume there, and the claim is bound. Then the pod may be.
"""

from collections.abc import Mapping
from typing import Final

from muster.api.core import PersistentVolumeClaim
from muster.api.storage.provisioning import NODE_ANNOTATION, default_class
from muster.api.storage.views import StorageClass

_WAITS: Final = "WaitForFirstConsumer"
_NOBODY: Final = "kubernetes.io/no-provisioner"


def is_bound(claim: PersistentVolumeClaim) -> bool:
    return claim.status.phase == "Bound" and bool(claim.spec.volume_name)


def chosen_node(claim: PersistentVolumeClaim) -> str:
    """Where it is being provided for; empty where nobody has chosen yet."""
    return (claim.metadata.annotations or {}).get(NODE_ANNOTATION, "")


def class_of(claim: PersistentVolumeClaim, classes: Mapping[str, StorageClass]) -> StorageClass | None:
    name = claim.spec.storage_class_name
    return default_class(classes) if name is None else classes.get(name)


def objection(claim: PersistentVolumeClaim, found: StorageClass | None) -> str:
    """Why a claim that is not bound keeps its pod from being placed; empty where it waits for just that."""
    if found is None or found.volume_binding_mode != _WAITS or claim.spec.volume_name:
        return "pod has unbound immediate PersistentVolumeClaims"
    if found.provisioner == _NOBODY:
        return (
            f'persistentvolumeclaim "{claim.metadata.name}" is not bound, and nobody provides for storage class '
            f'"{found.metadata.name}": Muster does not choose among volumes, leave the pod to kube-scheduler'
        )
    return ""
