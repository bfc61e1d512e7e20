"""Checks of ConfigMap and Secret."""

import base64
import binascii
from collections.abc import Iterator, Mapping

from muster.api import fields
from muster.api.core.validation.environment import validate_key
from muster.api.core.views import ConfigMap, Secret
from muster.api.errors import FieldError

MAX_BYTES = 1_048_576
_NEEDED_KEYS: Mapping[str, tuple[str, ...]] = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_IMMUTABLE = "field is immutable when `immutable` is set"


def validate_config_map(config: ConfigMap) -> list[FieldError]:
    return list(_config_map(config))


def _config_map(config: ConfigMap) -> Iterator[FieldError]:
    data, binary = config.data or {}, config.binary_data or {}
    for key in data:
        yield from validate_key(f"data[{key}]", key)
        if key in binary:
            yield fields.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    for key in binary:
        yield from validate_key(f"binaryData[{key}]", key)
    sizes = [len(value.encode()) for value in data.values()]
    for key, value in binary.items():
        size = _decoded_size(value)
        sizes.append(size or 0)
        if size is None:
            yield fields.invalid(f"binaryData[{key}]", value, "must be base64")
    yield from _size("data", sum(sizes))


def validate_config_map_update(old: ConfigMap, new: ConfigMap) -> list[FieldError]:
    if not old.immutable:
        return []
    return list(
        _unchanged(
            old.immutable, new.immutable, data=(old.data, new.data), binaryData=(old.binary_data, new.binary_data)
        )
    )


def validate_secret(secret: Secret) -> list[FieldError]:
    return list(_secret(secret))


def _secret(secret: Secret) -> Iterator[FieldError]:
    data = secret.data or {}
    total = 0
    for key, value in data.items():
        yield from validate_key(f"data[{key}]", key)
        size = _decoded_size(value)
        total += size or 0
        if size is None:
            # Never repeat the value: it may be the secret itself, put here without encoding.
            yield fields.invalid(f"data[{key}]", "", "must be base64; plain text belongs in stringData")
    yield from _size("data", total)
    for key in _NEEDED_KEYS.get(secret.type or "", ()):
        if key not in data:
            yield fields.required(f"data[{key}]")
    if secret.type == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        yield fields.required("data[username]")
        yield fields.required("data[password]")


def validate_secret_update(old: Secret, new: Secret) -> list[FieldError]:
    problems = list(fields.immutable("type", old.type, new.type))
    if old.immutable:
        problems.extend(_unchanged(old.immutable, new.immutable, data=(old.data, new.data)))
    return problems


def _unchanged(
    was_immutable: bool | None,
    is_immutable: bool | None,
    **parts: tuple[Mapping[str, str] | None, Mapping[str, str] | None],
) -> Iterator[FieldError]:
    if was_immutable and not is_immutable:
        yield fields.forbidden("immutable", _IMMUTABLE)
    for name, (old, new) in parts.items():
        if (old or {}) != (new or {}):
            yield fields.forbidden(name, _IMMUTABLE)


def _decoded_size(text: str) -> int | None:
    try:
        return len(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return None


def _size(path: str, size: int) -> Iterator[FieldError]:
    if size > MAX_BYTES:
        yield FieldError(path, "FieldValueTooLong", f"Too long: may not be more than {MAX_BYTES} bytes")
