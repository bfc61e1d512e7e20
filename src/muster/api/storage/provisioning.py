"""Where on our own nodes a claim finds its storage: in a directory.

`muster.dev/local`, which is what a claim gets that names no class: a directory of the node to which the first pod that
uses the claim goes; whoever uses it later goes there too. `muster.dev/shared`: a directory below `parameters.path`, a
file system that all nodes share, so that its pods may be anywhere.

Once a claim is bound, an annotation says where its directory is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from muster.api.core import PersistentVolumeClaim
from muster.api.storage.views import StorageClass

LOCAL: Final = "muster.dev/local"
SHARED: Final = "muster.dev/shared"
PATH: Final = "path"
"""The parameter of a shared class."""
NODE_ANNOTATION: Final = "volume.kubernetes.io/selected-node"
PATH_ANNOTATION: Final = "muster.dev/path"
LOCAL_FINALIZER: Final = "muster.dev/local-volume"
"""Of claims whose directory is on a node: the agent's, which removes that first."""
_IS_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"


@dataclass(frozen=True, slots=True)
class Unprovided:
    """Why a claim will not be bound as things are."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Provision:
    """`path`: of the directory where it is shared; empty for a directory of whichever node comes first."""

    path: str = ""


def provide(claim: PersistentVolumeClaim, classes: Mapping[str, StorageClass]) -> Provision | Unprovided:
    """How a claim without a volume gets one. `classes`: by name."""
    if claim.spec.volume_mode == "Block":
        return Unprovided("ProvisioningFailed", "nodes of Muster offer directories: volumeMode must be Filesystem")
    if claim.spec.volume_name:
        return Unprovided("FailedBinding", "volumeName: there are no PersistentVolumes to choose from; leave it out")
    name = claim.spec.storage_class_name
    if name == "":
        return Unprovided(
            "FailedBinding",
            "no persistent volumes available for this claim and no storage class is set: leave storageClassName out",
        )
    found = classes.get(name) if name is not None else default_class(classes)
    if found is None:
        if name is None:
            return Provision()
        return Unprovided("ProvisioningFailed", f'storageclass.storage.k8s.io "{name}" not found')
    if found.provisioner == LOCAL:
        return Provision()
    if found.provisioner == SHARED:
        root = (found.parameters or {}).get(PATH, "").rstrip("/")
        return Provision(f"{root}/{claim.metadata.namespace}/{claim.metadata.name}")
    return Unprovided(
        "ExternalProvisioning",
        f'nobody here provides for "{found.provisioner}", the provisioner of storage class "{found.metadata.name}": '
        f"Muster knows {LOCAL} and {SHARED}",
    )


def is_bound(claim: PersistentVolumeClaim) -> bool:
    return claim.status.phase == "Bound" or claim.spec.volume_name == volume_name(claim)


def volume_name(claim: PersistentVolumeClaim) -> str:
    """What its directory is called."""
    return f"pvc-{claim.metadata.uid}"


def node_of(claim: PersistentVolumeClaim) -> str | None:
    """The one node that has it. None where it is not bound, or all have it."""
    return (claim.metadata.annotations or {}).get(NODE_ANNOTATION) if is_bound(claim) else None


def is_default(found: StorageClass) -> bool:
    return (found.metadata.annotations or {}).get(_IS_DEFAULT) == "true"


def default_class(classes: Mapping[str, StorageClass]) -> StorageClass | None:
    """The newest of those that are marked as the default, as Kubernetes chooses."""
    marked = [found for found in classes.values() if is_default(found)]
    return max(marked, key=lambda found: (found.metadata.creation_timestamp or "", found.metadata.name), default=None)
