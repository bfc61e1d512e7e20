"""The kinds of muster.dev as the platform stores and serves them."""

from muster.api.kinds import Kind
from muster.api.muster import defaults, validation, views

ALLOCATION = Kind(
    group="muster.dev",
    version="v1",
    name="Allocation",
    plural="allocations",
    view=views.Allocation,
    short_names=("alloc",),
    default=defaults.default_allocation,
    validate=validation.validate_allocation,
    validate_update=validation.validate_allocation_update,
)

KINDS = (ALLOCATION,)
