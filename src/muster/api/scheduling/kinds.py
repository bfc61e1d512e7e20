"""The kinds of scheduling.k8s.io as the platform stores and serves them."""

from muster.api.kinds import Kind
from muster.api.scheduling import views

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
)

KINDS = (PRIORITY_CLASS,)
