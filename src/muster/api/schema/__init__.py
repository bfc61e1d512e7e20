"""What the views say about documents: their shapes, the fields they know, and OpenAPI made from them.

Everything here is derived from the `View` classes; nothing is declared twice.
"""

from muster.api.schema.openapi import openapi, openapi_index
from muster.api.schema.unknown import unknown_fields

__all__ = ["openapi", "openapi_index", "unknown_fields"]
