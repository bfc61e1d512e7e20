"""Checks of a pod's volumes."""

from collections.abc import Iterator

import msgspec

from muster.api import fields
from muster.api.core.validation.containers import validate_inner_path
from muster.api.core.validation.environment import (
    validate_field_reference,
    validate_key,
    validate_resource_reference,
)
from muster.api.core.views import (
    DownwardAPIVolumeFile,
    EmptyDirVolumeSource,
    HostPathVolumeSource,
    KeyToPath,
    ProjectedVolumeSource,
    Volume,
    VolumeProjection,
)
from muster.api.errors import FieldError

_HOST_PATH_TYPES = frozenset(
    {"", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"}
)
_MEDIA = frozenset({"", "Memory", "HugePages"})
_SOURCES = tuple((field.name, field.encode_name) for field in msgspec.structs.fields(Volume) if field.name != "name")
_PROJECTIONS = tuple((field.name, field.encode_name) for field in msgspec.structs.fields(VolumeProjection))


def validate_volumes(path: str, volumes: tuple[Volume, ...]) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        at = f"{path}[{index}]"
        yield from fields.dns_label(f"{at}.name", volume.name)
        if volume.name in names:
            yield fields.duplicate(f"{at}.name", volume.name)
        names.add(volume.name)
        given = [wire for name, wire in _SOURCES if getattr(volume, name) is not None]
        # None at all is an empty directory: the default of a pod, which the templates of CRD kinds have not had yet.
        for wire in given[1:]:
            yield fields.forbidden(f"{at}.{wire}", "may not specify more than 1 volume type")
        yield from _volume(at, volume)


def _volume(path: str, volume: Volume) -> Iterator[FieldError]:
    if volume.empty_dir is not None:
        yield from _empty_dir(f"{path}.emptyDir", volume.empty_dir)
    if volume.host_path is not None:
        yield from _host_path(f"{path}.hostPath", volume.host_path)
    if volume.config_map is not None:
        at = f"{path}.configMap"
        if not volume.config_map.name:
            yield fields.required(f"{at}.name")
        yield from _mode(f"{at}.defaultMode", volume.config_map.default_mode)
        yield from _items(f"{at}.items", volume.config_map.items)
    if volume.secret is not None:
        at = f"{path}.secret"
        if not volume.secret.secret_name:
            yield fields.required(f"{at}.secretName")
        yield from _mode(f"{at}.defaultMode", volume.secret.default_mode)
        yield from _items(f"{at}.items", volume.secret.items)
    if volume.downward_api is not None:
        yield from _mode(f"{path}.downwardAPI.defaultMode", volume.downward_api.default_mode)
        yield from _files(f"{path}.downwardAPI.items", volume.downward_api.items)
    if volume.persistent_volume_claim is not None and not volume.persistent_volume_claim.claim_name:
        yield fields.required(f"{path}.persistentVolumeClaim.claimName")
    if volume.projected is not None:
        yield from _projected(f"{path}.projected", volume.projected)


def _empty_dir(path: str, source: EmptyDirVolumeSource) -> Iterator[FieldError]:
    if source.medium and not source.medium.startswith("HugePages-"):
        yield from fields.one_of(f"{path}.medium", source.medium, _MEDIA)
    yield from fields.amount(f"{path}.sizeLimit", source.size_limit)


def _host_path(path: str, source: HostPathVolumeSource) -> Iterator[FieldError]:
    if not source.path:
        yield fields.required(f"{path}.path")
    elif ".." in source.path.split("/"):
        yield fields.invalid(f"{path}.path", source.path, "must not contain '..'")
    yield from fields.one_of(f"{path}.type", source.type, _HOST_PATH_TYPES)


def _mode(path: str, mode: int | None) -> Iterator[FieldError]:
    if mode is not None and not 0 <= mode <= 0o777:
        yield fields.invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive")


def _items(path: str, items: tuple[KeyToPath, ...]) -> Iterator[FieldError]:
    for index, item in enumerate(items):
        at = f"{path}[{index}]"
        yield from validate_key(f"{at}.key", item.key)
        yield from _file_path(f"{at}.path", item.path)
        yield from _mode(f"{at}.mode", item.mode)


def _files(path: str, items: tuple[DownwardAPIVolumeFile, ...]) -> Iterator[FieldError]:
    for index, item in enumerate(items):
        at = f"{path}[{index}]"
        yield from _file_path(f"{at}.path", item.path)
        yield from _mode(f"{at}.mode", item.mode)
        if item.field_ref is not None:
            yield from validate_field_reference(f"{at}.fieldRef", item.field_ref, in_file=True)
            if item.resource_field_ref is not None:
                yield fields.invalid(
                    at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"
                )
        elif item.resource_field_ref is not None:
            yield from validate_resource_reference(f"{at}.resourceFieldRef", item.resource_field_ref, in_file=True)
        else:
            yield fields.required(at, "Required value: one of fieldRef and resourceFieldRef is required")


def _file_path(path: str, text: str) -> Iterator[FieldError]:
    if not text:
        yield fields.required(path)
        return
    yield from validate_inner_path(path, text)
    if text.startswith("..") and ".." not in text.split("/"):
        yield fields.invalid(path, text, "must not start with '..'")


def _projected(path: str, source: ProjectedVolumeSource) -> Iterator[FieldError]:
    yield from _mode(f"{path}.defaultMode", source.default_mode)
    for index, projection in enumerate(source.sources):
        at = f"{path}.sources[{index}]"
        given = [wire for name, wire in _PROJECTIONS if getattr(projection, name) is not None]
        if not given:
            yield fields.required(at, "Required value: must specify a projected volume source")
        for wire in given[1:]:
            yield fields.forbidden(f"{at}.{wire}", "may not specify more than 1 volume type per source")
        yield from _projection(at, projection)


def _projection(path: str, projection: VolumeProjection) -> Iterator[FieldError]:
    for name, keys in (("configMap", projection.config_map), ("secret", projection.secret)):
        if keys is not None:
            if not keys.name:
                yield fields.required(f"{path}.{name}.name")
            yield from _items(f"{path}.{name}.items", keys.items)
    if projection.downward_api is not None:
        yield from _files(f"{path}.downwardAPI.items", projection.downward_api.items)
    token = projection.service_account_token
    if token is not None:
        yield from _file_path(f"{path}.serviceAccountToken.path", token.path)
        if token.expiration_seconds is not None and token.expiration_seconds < 600:
            yield fields.invalid(
                f"{path}.serviceAccountToken.expirationSeconds",
                token.expiration_seconds,
                "may not specify a duration less than 10 minutes",
            )
