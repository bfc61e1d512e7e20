"""The kinds of node.k8s.io as the platform stores and serves them."""

from muster.api.documents import drop_nulls
from muster.api.kinds import Kind
from muster.api.node import validation, views

RUNTIME_CLASS = Kind(
    group="node.k8s.io",
    version="v1",
    name="RuntimeClass",
    plural="runtimeclasses",
    view=views.RuntimeClass,
    namespaced=False,
    subresources=frozenset(),
    built_in=True,
    default=drop_nulls,
    validate=validation.validate_runtime_class,
    validate_update=validation.validate_runtime_class_update,
)

KINDS = (RUNTIME_CLASS,)
