"""View of PriorityClass."""

from muster.api.meta import Resource
from muster.api.scalars import Int32


class PriorityClass(Resource, frozen=True):
    """A name for a priority: pods that carry it are ordered, and may preempt, by its value."""

    description: str | None = None
    global_default: bool | None = None
    preemption_policy: str | None = None
    value: Int32 = 0
