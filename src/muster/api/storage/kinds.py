"""The kinds of storage.k8s.io as the platform stores and serves them."""

from muster.api.documents import drop_nulls, fill
from muster.api.kinds import Kind
from muster.api.raw import Document
from muster.api.storage import validation, views


def _default_class(document: Document) -> None:
    drop_nulls(document)
    fill(document, "reclaimPolicy", "Delete")
    fill(document, "volumeBindingMode", "Immediate")


STORAGE_CLASS = Kind(
    group="storage.k8s.io",
    version="v1",
    name="StorageClass",
    plural="storageclasses",
    view=views.StorageClass,
    namespaced=False,
    short_names=("sc",),
    subresources=frozenset(),
    built_in=True,
    default=_default_class,
    validate=validation.validate_class,
    validate_update=validation.validate_class_update,
)

KINDS = (STORAGE_CLASS,)
