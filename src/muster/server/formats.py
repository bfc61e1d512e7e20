"""Content negotiation: what a client accepts, and what its bodies are written in.

Out goes JSON, as the object itself, as a Table (what kubectl prints) or as metadata only. In come JSON, YAML and the
protobuf that kubectl sends for built-in kinds.
"""

import functools
import math
from enum import StrEnum
from typing import NamedTuple

from muster.api import errors, protobuf, raw
from muster.api.raw import JSON, Document

JSON_TYPE = "application/json"
YAML_TYPE = "application/yaml"
PROTOBUF_TYPE = "application/vnd.kubernetes.protobuf"
APPLY_TYPE = "application/apply-patch+yaml"

# An alias in YAML costs a few bytes and may stand for a large tree, which may hold aliases again.
_MAX_YAML_VALUES = 500_000
_MAX_DEPTH = 200


class Shape(StrEnum):
    OBJECT = "object"
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


class Format(NamedTuple):
    shape: Shape
    version: str = "v1"

    @property
    def content_type(self) -> str:
        if self.shape is Shape.OBJECT:
            return JSON_TYPE
        return f"{JSON_TYPE};as={self.shape.value};v={self.version};g=meta.k8s.io"


OBJECT = Format(Shape.OBJECT)
_SHAPES = {
    "Table": Shape.TABLE,
    "PartialObjectMetadata": Shape.METADATA,
    "PartialObjectMetadataList": Shape.METADATA,
}


class MediaType(NamedTuple):
    type: str
    parameters: dict[str, str]


def media_types(header: str) -> list[MediaType]:
    """The media types of an Accept or Content-Type header, most wanted first."""
    found = []
    for clause in filter(None, (part.strip() for part in header.split(","))):
        type_, *parameters = (part.strip() for part in clause.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        found.append(MediaType(type_.lower(), {name.strip().lower(): value.strip() for name, _, value in pairs}))
    return sorted(found, key=lambda media: -_quality(media))


def _quality(media: MediaType) -> float:
    try:
        quality = float(media.parameters.get("q", "1"))
    except ValueError:
        return 0.0
    return quality if math.isfinite(quality) else 0.0


@functools.lru_cache(maxsize=256)
def negotiate(accept: str) -> Format:
    """The first that we can serve. Raises NotAcceptable where there is none."""
    offered = media_types(accept)
    for media in offered:
        if media.type not in (JSON_TYPE, "application/*", "*/*") or _quality(media) <= 0:
            continue
        wanted = media.parameters.get("as", "")
        if not wanted:
            return OBJECT
        version = media.parameters.get("v", "v1")
        if wanted in _SHAPES and media.parameters.get("g") == "meta.k8s.io" and version in ("v1", "v1beta1"):
            return Format(_SHAPES[wanted], version)
    if not offered:
        return OBJECT
    raise errors.NotAcceptable(
        f"only the following media types are accepted: {JSON_TYPE}, {JSON_TYPE};as=Table;v=v1;g=meta.k8s.io, "
        f"{JSON_TYPE};as=PartialObjectMetadata;v=v1;g=meta.k8s.io; the request accepts {accept[:200]!r}"
    )


def decode(body: bytes, content_type: str) -> Document:
    """The document of a request's body. Raises BadRequest with the place of the mistake, or UnsupportedMediaType."""
    type_ = base_type(content_type)
    if type_ in ("", JSON_TYPE, "text/plain", "*/*"):  # curl and some clients name none, or the wrong one
        return raw.as_object(bounded(raw.decode(body)))
    if type_ in (YAML_TYPE, "application/x-yaml", "text/yaml"):
        return decode_yaml(body)
    if type_ == PROTOBUF_TYPE:
        return protobuf.decode(body)
    raise errors.UnsupportedMediaType(
        f"the body of the request was in an unknown format - accepted media types include: {JSON_TYPE}, {YAML_TYPE}, "
        f"{PROTOBUF_TYPE}"
    )


def base_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def decode_yaml(body: bytes) -> Document:
    documents = raw.decode_yaml(body)
    if len(documents) != 1:
        raise errors.BadRequest(f"expected one YAML document in the body, found {len(documents)}")
    return raw.as_object(_plain(documents[0], [_MAX_YAML_VALUES]))


def bounded(value: JSON, depth: int = _MAX_DEPTH) -> JSON:
    """`value`, unless it is nested deeper than any recursive walk over it could stand."""
    if depth == 0:
        raise errors.BadRequest(f"the body is nested more than {_MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        for item in value.values():
            if isinstance(item, dict | list):
                bounded(item, depth - 1)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict | list):
                bounded(item, depth - 1)
    return value


def _plain(value: JSON, budget: list[int], depth: int = _MAX_DEPTH) -> JSON:
    """`value` as JSON would have it: aliases expanded within limits, keys as strings, no dates, sets or infinities."""
    budget[0] -= 1
    if budget[0] < 0 or depth == 0:
        raise errors.BadRequest("the YAML body expands to more than this server takes; write it without aliases")
    match value:
        case dict():
            return {_yaml_key(key): _plain(item, budget, depth - 1) for key, item in value.items()}
        case list():
            return [_plain(item, budget, depth - 1) for item in value]
        case None | bool() | str():
            return value
        case int() if -(2**63) <= value < 2**64:
            return value
        case float() if math.isfinite(value):
            return value
    raise errors.BadRequest(
        f"the YAML body holds {str(value)[:50]!r}, which JSON cannot express; quote it to make it a string"
    )


def _yaml_key(key: JSON) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int | float):
        return str(key)
    raise errors.BadRequest(f"the YAML body has the key {str(key)[:50]!r}: keys must be strings")
