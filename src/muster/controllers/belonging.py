"""Whose a part is: of the objects that a controller makes for another one, which they go with."""

from typing import Final

from muster.api.kinds import Kind
from muster.api.meta import OwnerReference
from muster.api.objects import Key, Object

_NOBODY: Final = OwnerReference()


def owner_of(part: Object, kind: Kind) -> OwnerReference:
    """The object of that kind that controls it; one without a uid where none does."""
    for owner in part.meta.owner_references:
        if owner.controller and owner.kind == kind.name and owner.api_version == kind.api_version:
            return owner
    return _NOBODY


def owner_key(part: Object, kind: Kind) -> Key | None:
    owner = owner_of(part, kind)
    return Key(part.key.namespace, owner.name) if owner.uid else None
