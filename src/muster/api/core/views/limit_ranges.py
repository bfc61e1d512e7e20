"""View of LimitRange."""

from typing import Annotated

from muster.api.meta import ATOMIC, Resource, View
from muster.api.scalars import ResourceList


class LimitRangeItem(View, frozen=True):
    """What one kind of thing (`type`: Container, Pod, PersistentVolumeClaim) may ask for, and asks for where it says
    nothing."""

    default: ResourceList | None = None
    default_request: ResourceList | None = None
    max: ResourceList | None = None
    max_limit_request_ratio: ResourceList | None = None
    min: ResourceList | None = None
    type: str = ""


class LimitRangeSpec(View, frozen=True):
    limits: Annotated[tuple[LimitRangeItem, ...], ATOMIC] = ()


class LimitRange(Resource, frozen=True):
    """Bounds and defaults for the requests and limits of everything in a namespace."""

    spec: LimitRangeSpec = LimitRangeSpec()
