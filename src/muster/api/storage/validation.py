"""Checks of StorageClass."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from muster.api import fields
from muster.api.errors import FieldError
from muster.api.storage.provisioning import PATH, SHARED
from muster.api.storage.views import StorageClass

_POLICIES = frozenset({"Delete", "Retain"})
_MODES = frozenset({"Immediate", "WaitForFirstConsumer"})


def validate_class(found: StorageClass) -> list[FieldError]:
    return list(_class(found))


def _class(found: StorageClass) -> Iterator[FieldError]:
    if found.provisioner:
        yield from fields.qualified_name("provisioner", found.provisioner)
    else:
        yield fields.required("provisioner")
    yield from fields.one_of("reclaimPolicy", found.reclaim_policy, _POLICIES)
    yield from fields.one_of("volumeBindingMode", found.volume_binding_mode, _MODES)
    if found.provisioner == SHARED:
        path = PurePosixPath((found.parameters or {}).get(PATH, ""))
        if not path.is_absolute() or ".." in path.parts:
            message = "must be the absolute path of a directory that all nodes share"
            yield fields.invalid(f"parameters[{PATH}]", str(path), message)


def validate_class_update(old: StorageClass, new: StorageClass) -> list[FieldError]:
    return [
        *fields.immutable("parameters", old.parameters, new.parameters),
        *fields.immutable("provisioner", old.provisioner, new.provisioner),
        *fields.immutable("reclaimPolicy", old.reclaim_policy, new.reclaim_policy),
        *fields.immutable("volumeBindingMode", old.volume_binding_mode, new.volume_binding_mode),
    ]
