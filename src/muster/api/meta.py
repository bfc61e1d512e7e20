"""What every object has: metadata, conditions, references. And `View`, the base of all typed read views.

A view is decoded from the stored document and never written back (unknown fields would be lost).
Defaults in a view are only None, () and {}: meaning lives in the group's `defaults` module,
applied once on write and stored.
"""

from collections.abc import Mapping
from typing import Annotated, NewType

import msgspec

Instant = NewType("Instant", float)
"""Seconds since the epoch, UTC."""

NO_LABELS: Mapping[str, str] = {}


class View(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """Base of typed views: immutable trees of tuples, invisible to the garbage collector."""


def merge_by(*keys: str) -> msgspec.Meta:
    """Marks a list that patches and server-side apply merge element by element, identified by `keys`."""
    return msgspec.Meta(
        extra_json_schema={
            "x-kubernetes-patch-strategy": "merge",
            "x-kubernetes-patch-merge-key": keys[0],
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": list(keys),
        }
    )


MERGED_SET = msgspec.Meta(extra_json_schema={"x-kubernetes-patch-strategy": "merge", "x-kubernetes-list-type": "set"})
"""Marks a list of scalars that patches merge as a set."""

ATOMIC = msgspec.Meta(extra_json_schema={"x-kubernetes-list-type": "atomic"})
"""Marks a list that is replaced as a whole."""

OPAQUE = msgspec.Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})
"""Marks an object that we keep but do not read."""


class OwnerReference(View, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ManagedFieldsEntry(View, frozen=True):
    manager: str | None = None
    operation: str | None = None
    api_version: str | None = None
    time: str | None = None
    fields_type: str | None = None
    fields_v1: Annotated[Mapping[str, object] | None, OPAQUE] = msgspec.field(default=None, name="fieldsV1")
    subresource: str | None = None


class ObjectMeta(View, frozen=True):
    name: str = ""
    generate_name: str | None = None
    namespace: str = ""
    self_link: str | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    owner_references: Annotated[tuple[OwnerReference, ...], merge_by("uid")] = ()
    finalizers: Annotated[tuple[str, ...], MERGED_SET] = ()
    managed_fields: tuple[ManagedFieldsEntry, ...] = ()


class Condition(View, frozen=True):
    """metav1.Condition and its many near twins (pod, node and job conditions have a subset or two more times)."""

    type: str = ""
    status: str = ""
    observed_generation: int | None = None
    last_transition_time: str | None = None
    last_probe_time: str | None = None
    last_heartbeat_time: str | None = None
    last_update_time: str | None = None
    reason: str | None = None
    message: str | None = None


class LabelSelectorRequirement(View, frozen=True):
    key: str = ""
    operator: str = ""
    values: Annotated[tuple[str, ...], ATOMIC] = ()


class LabelSelector(View, frozen=True):
    match_labels: Mapping[str, str] | None = None
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class Resource(View, frozen=True):
    """What the view of every kind begins with."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
