"""Checks of PersistentVolumeClaim."""

from collections.abc import Iterator

from msgspec.structs import replace

from muster.api import fields
from muster.api.core.views import PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements
from muster.api.errors import FieldError
from muster.api.metadata import validate_label_selector

_ONCE_POD = "ReadWriteOncePod"
_MODES = frozenset({"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", _ONCE_POD})
_VOLUME_MODES = frozenset({"Filesystem", "Block"})


def validate_claim(claim: PersistentVolumeClaim) -> list[FieldError]:
    return list(_claim("spec", claim.spec))


def _claim(path: str, spec: PersistentVolumeClaimSpec) -> Iterator[FieldError]:
    if not spec.access_modes:
        yield fields.required(f"{path}.accessModes", "Required value: at least 1 access mode is required")
    for index, mode in enumerate(spec.access_modes):
        yield from fields.one_of(f"{path}.accessModes[{index}]", mode, _MODES)
    if _ONCE_POD in spec.access_modes and len(spec.access_modes) > 1:
        yield fields.forbidden(f"{path}.accessModes", f"may not use {_ONCE_POD} with other access modes")
    yield from validate_label_selector(f"{path}.selector", spec.selector)
    storage = (spec.resources.requests or {}).get("storage")
    if storage is None:
        yield fields.required(f"{path}.resources[storage]")
    else:
        yield from fields.amount(f"{path}.resources.requests[storage]", storage)
    if spec.storage_class_name:
        yield from fields.dns_subdomain(f"{path}.storageClassName", spec.storage_class_name)
    yield from fields.one_of(f"{path}.volumeMode", spec.volume_mode, _VOLUME_MODES)


def validate_claim_update(old: PersistentVolumeClaim, new: PersistentVolumeClaim) -> list[FieldError]:
    """What is asked for may change, and a claim without a volume may get one."""
    before = replace(old.spec, resources=VolumeResourceRequirements())
    after = replace(new.spec, resources=VolumeResourceRequirements())
    if not before.volume_name:
        after = replace(after, volume_name=before.volume_name)
    if before == after:
        return []
    return [fields.forbidden("spec", "spec is immutable after creation except resources.requests")]
