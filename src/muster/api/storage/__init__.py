"""storage.k8s.io: where claims find storage."""

from muster.api.storage.kinds import KINDS, STORAGE_CLASS
from muster.api.storage.views import StorageClass, TopologySelectorLabelRequirement, TopologySelectorTerm
from muster.api.storage.volumes import PERSISTENT_VOLUME, PersistentVolume

__all__ = [
    "KINDS",
    "PERSISTENT_VOLUME",
    "STORAGE_CLASS",
    "PersistentVolume",
    "StorageClass",
    "TopologySelectorLabelRequirement",
    "TopologySelectorTerm",
]
