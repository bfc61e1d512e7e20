"""storage.k8s.io: where claims find storage."""

from muster.api.storage.kinds import KINDS, STORAGE_CLASS
from muster.api.storage.views import StorageClass, TopologySelectorLabelRequirement, TopologySelectorTerm

__all__ = [
    "KINDS",
    "STORAGE_CLASS",
    "StorageClass",
    "TopologySelectorLabelRequirement",
    "TopologySelectorTerm",
]
