"""PersistentVolume, as far as placement must know it: from which nodes it can be reached.

Not among the kinds of a platform of our own, whose storage is directories (see `provisioning`): a cluster has them.
"""

from muster.api.core import NodeSelector
from muster.api.kinds import Kind
from muster.api.meta import Resource, View


class VolumeNodeAffinity(View, frozen=True):
    """The nodes that reach the volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(View, frozen=True):
    """Where the volume can be used."""

    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolume(Resource, frozen=True):
    """Storage that the cluster has, for a claim."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()


PERSISTENT_VOLUME = Kind(
    group="",
    version="v1",
    name="PersistentVolume",
    plural="persistentvolumes",
    view=PersistentVolume,
    namespaced=False,
    short_names=("pv",),
    built_in=True,
)
