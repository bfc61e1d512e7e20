"""Wire types of single values that views share: bounded integers, and values of two shapes.

The bounds are Kubernetes': a number that it could not store must not be accepted here either.
"""

from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgspec

from muster.api.meta import OPAQUE

Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1, extra_json_schema={"format": "int32"})]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1, extra_json_schema={"format": "int64"})]

IntOrString: TypeAlias = Annotated[
    Int32 | str, msgspec.Meta(extra_json_schema={"format": "int-or-string", "x-kubernetes-int-or-string": True})
]
QuantityText: TypeAlias = Annotated[
    str | int | float, msgspec.Meta(extra_json_schema={"x-kubernetes-int-or-string": True})
]
"""A quantity as it stands in a document. `quantity.parse` reads it."""

ResourceList: TypeAlias = Mapping[str, QuantityText]
"""Quantities by the name of the resource."""

Opaque: TypeAlias = Annotated[Mapping[str, object] | None, OPAQUE]
"""An object that is kept and served, but that nothing here reads."""
