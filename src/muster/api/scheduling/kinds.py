"""The kinds of scheduling.k8s.io as the platform stores and serves them."""

from muster.api.kinds import Kind
from muster.api.scheduling import defaults, validation, views

PRIORITY_CLASS = Kind(
    group="scheduling.k8s.io",
    version="v1",
    name="PriorityClass",
    plural="priorityclasses",
    view=views.PriorityClass,
    namespaced=False,
    short_names=("pc",),
    subresources=frozenset(),
    built_in=True,
    default=defaults.default_priority_class,
    validate=validation.validate_priority_class,
    validate_update=validation.validate_priority_class_update,
)

KINDS = (PRIORITY_CLASS,)
