"""Checks of a container's environment and of what its variables refer to."""

import re
from collections.abc import Iterator

from muster.api import fields
from muster.api.core.views import (
    Container,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    ObjectFieldSelector,
    ResourceFieldSelector,
)
from muster.api.errors import FieldError

_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_SUBSCRIPT = re.compile(r"(metadata\.(?:labels|annotations))\['([^']+)'\]")
_POD_FIELDS = frozenset(
    {
        "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
        "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
    }
)  # fmt: skip
_FILE_FIELDS = frozenset(
    {"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations"}
)
_RESOURCES = frozenset(
    f"{part}.{name}" for part in ("limits", "requests") for name in ("cpu", "memory", "ephemeral-storage")
)
_SOURCES = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"


def validate_environment(path: str, container: Container) -> Iterator[FieldError]:
    """`path` is that of the container."""
    for index, variable in enumerate(container.env):
        yield from _variable(f"{path}.env[{index}]", variable)
    for index, source in enumerate(container.env_from):
        yield from _whole_source(f"{path}.envFrom[{index}]", source)


def _variable(path: str, variable: EnvVar) -> Iterator[FieldError]:
    yield from fields.env_name(f"{path}.name", variable.name)
    if variable.value_from is None:
        return
    at = f"{path}.valueFrom"
    if variable.value:
        yield fields.invalid(at, "", "may not be specified when `value` is not empty")
    yield from _source(at, variable.value_from)


def _source(path: str, source: EnvVarSource) -> Iterator[FieldError]:
    given = [
        reference
        for reference in (
            source.field_ref,
            source.resource_field_ref,
            source.config_map_key_ref,
            source.secret_key_ref,
            source.file_key_ref,
        )
        if reference is not None
    ]
    if not given:
        yield fields.invalid(path, "", _SOURCES)
    elif len(given) > 1:
        yield fields.invalid(path, "", "may not have more than one field specified at a time")
    if source.field_ref is not None:
        yield from validate_field_reference(f"{path}.fieldRef", source.field_ref, in_file=False)
    if source.resource_field_ref is not None:
        yield from validate_resource_reference(f"{path}.resourceFieldRef", source.resource_field_ref, in_file=False)
    for name, key in (("configMapKeyRef", source.config_map_key_ref), ("secretKeyRef", source.secret_key_ref)):
        if key is not None:
            if not key.name:
                yield fields.required(f"{path}.{name}.name")
            yield from validate_key(f"{path}.{name}.key", key.key)
    if source.file_key_ref is not None:
        for name, value in (
            ("key", source.file_key_ref.key),
            ("path", source.file_key_ref.path),
            ("volumeName", source.file_key_ref.volume_name),
        ):
            if not value:
                yield fields.required(f"{path}.fileKeyRef.{name}")


def _whole_source(path: str, source: EnvFromSource) -> Iterator[FieldError]:
    if source.prefix:
        yield from fields.env_name(f"{path}.prefix", source.prefix)
    if source.config_map_ref is None and source.secret_ref is None:
        yield fields.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
    elif source.config_map_ref is not None and source.secret_ref is not None:
        yield fields.invalid(path, "", "may not have more than one field specified at a time")
    for name, reference in (("configMapRef", source.config_map_ref), ("secretRef", source.secret_ref)):
        if reference is not None and not reference.name:
            yield fields.required(f"{path}.{name}.name")


def validate_field_reference(path: str, reference: ObjectFieldSelector, *, in_file: bool) -> Iterator[FieldError]:
    """A field of the pod. Files can hold all labels at once; a variable can hold more of the status."""
    if reference.api_version not in (None, "", "v1"):
        yield fields.invalid(f"{path}.apiVersion", reference.api_version, "must be v1")
    if not reference.field_path:
        yield fields.required(f"{path}.fieldPath")
        return
    subscript = _SUBSCRIPT.fullmatch(reference.field_path)
    if subscript:
        yield from fields.qualified_name(f"{path}.fieldPath", subscript[2].lower())
        return
    supported = _FILE_FIELDS if in_file else _POD_FIELDS
    if reference.field_path not in supported:
        listed = supported | {"metadata.labels['<KEY>']", "metadata.annotations['<KEY>']"}
        yield fields.unsupported(f"{path}.fieldPath", reference.field_path, listed)


def validate_resource_reference(path: str, reference: ResourceFieldSelector, *, in_file: bool) -> Iterator[FieldError]:
    if in_file and not reference.container_name:
        yield fields.required(f"{path}.containerName")
    if not reference.resource:
        yield fields.required(f"{path}.resource")
    elif reference.resource not in _RESOURCES and ".hugepages-" not in reference.resource:
        yield fields.unsupported(f"{path}.resource", reference.resource, _RESOURCES)
    yield from fields.amount(f"{path}.divisor", reference.divisor)


def validate_key(path: str, key: str) -> Iterator[FieldError]:
    """A key of a ConfigMap or Secret: also a file name."""
    if not key:
        yield fields.required(path)
    elif len(key) > 253 or _KEY.fullmatch(key) is None:
        yield fields.invalid(
            path,
            key,
            "a valid config key must consist of at most 253 alphanumeric characters, '-', '_' or '.' "
            "(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name')",
        )
    elif key == "." or key.startswith(".."):
        yield fields.invalid(path, key, "must not be '.' and must not start with '..'")
