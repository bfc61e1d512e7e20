"""View of RuntimeClass."""

from collections.abc import Mapping
from typing import Annotated

from muster.api.core import Toleration
from muster.api.meta import ATOMIC, Resource, View
from muster.api.scalars import ResourceList


class RuntimeClassOverhead(View, frozen=True):
    """What a pod costs besides its containers."""

    pod_fixed: ResourceList | None = None


class RuntimeClassScheduling(View, frozen=True):
    """Which nodes can run pods of the class."""

    node_selector: Mapping[str, str] | None = None
    tolerations: Annotated[tuple[Toleration, ...], ATOMIC] = ()


class RuntimeClass(Resource, frozen=True):
    """A way to run containers that nodes offer."""

    handler: str = ""
    overhead: RuntimeClassOverhead | None = None
    scheduling: RuntimeClassScheduling | None = None
