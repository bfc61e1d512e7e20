"""View of StorageClass."""

from collections.abc import Mapping
from typing import Annotated

from muster.api.meta import ATOMIC, Resource, View


class TopologySelectorLabelRequirement(View, frozen=True):
    """A label that a node must have, with one of some values."""

    key: str = ""
    values: Annotated[tuple[str, ...], ATOMIC] = ()


class TopologySelectorTerm(View, frozen=True):
    """Labels that a node must have."""

    match_label_expressions: Annotated[tuple[TopologySelectorLabelRequirement, ...], ATOMIC] = ()


class StorageClass(Resource, frozen=True):
    """A way to get storage: who provides it, and with which parameters."""

    allow_volume_expansion: bool | None = None
    allowed_topologies: Annotated[tuple[TopologySelectorTerm, ...], ATOMIC] = ()
    mount_options: Annotated[tuple[str, ...], ATOMIC] = ()
    parameters: Mapping[str, str] | None = None
    provisioner: str = ""
    reclaim_policy: str | None = None
    volume_binding_mode: str | None = None
