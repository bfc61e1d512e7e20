"""What a pod of a group is to the scheduler: pods of one role can stand in for each other."""

import hashlib
from typing import Final

from muster.api import raw
from muster.api.documents import child, objects
from muster.api.raw import JSON, Document

_SHAPING: Final = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "runtimeClassName",
    "priority",
    "priorityClassName",
    "topologySpreadConstraints",
    "overhead",
    "resourceClaims",
)
_LENGTH: Final = 8


def role_hash(spec: Document) -> str:
    """Equal for pods that ask for the same and may go to the same places."""
    shape: dict[str, JSON] = {name: spec[name] for name in _SHAPING if spec.get(name)}
    for part in ("initContainers", "containers"):
        shape[part] = [
            [child(container, "resources", "requests"), container.get("ports") or []]
            for container in objects(spec, part)
        ]
    shape["requests"] = child(spec, "resources", "requests")
    return hashlib.sha256(raw.encode(_ordered(shape))).hexdigest()[:_LENGTH]


def _ordered(value: JSON) -> JSON:
    """With its keys in order: who wrote them in another one meant the same."""
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_ordered(item) for item in value]
    return value
