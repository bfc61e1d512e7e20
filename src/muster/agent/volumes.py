"""Volumes of a pod as directories below the pod's own.

Wherever the node may mount, a volume appears at its mountPath, in a view of the file system that only its container has
(see `agent.mounting`). Everywhere it is named by the variable `MUSTER_VOLUME_<NAME>` (upper case, `_` for what a
variable may not hold), and a *relative* mountPath is linked below the container's working directory. hostPath is the
path itself, and what a claim holds is the directory that it is bound to. Where the node may not mount, the variable
`MUSTER_UNMOUNTED` says so.

What a ConfigMap, a Secret or the downward API shows is written when a container starts, and again when it has changed:
file by file, each replaced as a whole.
"""

import base64
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from muster.agent.environment import ConfigMissing, Facts, Sources, expand, field_value, resource_value
from muster.agent.runtime import Mount
from muster.api import core, quantity

UNMOUNTED = "MUSTER_UNMOUNTED"
"""The variable that says that volumes are not at their mountPath."""
_UNFIT = re.compile(r"[^A-Z0-9_]")
_DEFAULT_MODE = 0o644


class NotMounted(ConfigMissing):
    """A volume could not be made."""


@dataclass(frozen=True, slots=True)
class File:
    """One file of a volume; `path` is relative to it."""

    path: str
    content: bytes
    mode: int


Shown: TypeAlias = Mapping[str, File]
"""What was written into a volume, by path."""


def references(spec: core.PodSpec) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the ConfigMaps and of the Secrets that volumes show."""
    maps: set[str] = set()
    secrets: set[str] = set()
    for volume in spec.volumes:
        if volume.config_map is not None:
            maps.add(volume.config_map.name)
        if volume.secret is not None:
            secrets.add(volume.secret.secret_name)
        for source in volume.projected.sources if volume.projected is not None else ():
            if source.config_map is not None:
                maps.add(source.config_map.name)
            if source.secret is not None:
                secrets.add(source.secret.name)
    return frozenset(maps), frozenset(secrets)


def variable(name: str) -> str:
    return f"MUSTER_VOLUME_{_UNFIT.sub('_', name.upper())}"


def materialise(
    directory: Path,
    facts: Facts,
    sources: Sources,
    shown: MutableMapping[str, Shown] | None = None,
    claims: Mapping[str, Path] | None = None,
) -> dict[str, Path]:
    """Make the pod's volumes below `directory`, or bring them up to date: volume to path. `shown`: what each was last
    given, which is kept up to date as well. `claims`: where the claims are that the pod uses. Raises NotMounted."""
    shown = {} if shown is None else shown
    found: dict[str, Path] = {}
    try:
        for volume in facts.pod.spec.volumes:
            claimed = volume.persistent_volume_claim
            if claimed is not None:
                found[volume.name] = (claims or {})[claimed.claim_name]
            else:
                found[volume.name] = _make(directory / volume.name, volume, facts, sources, shown)
        return found
    except ConfigMissing as error:
        raise NotMounted(str(error)) from error


def _make(path: Path, volume: core.Volume, facts: Facts, sources: Sources, shown: MutableMapping[str, Shown]) -> Path:
    if volume.host_path is not None:
        return _host_path(volume.name, volume.host_path)
    files = _files(volume, facts, sources)
    path.mkdir(parents=True, exist_ok=True)
    if files is not None:
        before, now = shown.get(volume.name, {}), {file.path: file for file in files}
        _write(path, [file for file in now.values() if before.get(file.path) != file])
        for gone in before.keys() - now.keys():
            _inside(path, gone).unlink(missing_ok=True)
        shown[volume.name] = now
    return path


def link(container: core.Container, paths: Mapping[str, Path], root: Path) -> None:
    """Show mounts with a relative mountPath below `root`. Raises ConfigMissing."""
    for mount in container.volume_mounts:
        if mount.name not in paths:
            raise ConfigMissing(f'volumeMounts: the pod has no volume "{mount.name}"')
        if PurePosixPath(mount.mount_path).is_absolute():
            continue
        place = _inside(root, mount.mount_path)
        target = _inside(paths[mount.name], mount.sub_path) if mount.sub_path else paths[mount.name]
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink():
            place.unlink()
        if place.exists():
            raise ConfigMissing(f'volumeMounts: "{mount.mount_path}" already exists in the working directory')
        place.symlink_to(os.path.relpath(target, place.parent))


def mounts(
    container: core.Container, spec: core.PodSpec, paths: Mapping[str, Path], env: Mapping[str, str], home: Path
) -> list[Mount]:
    """What is to appear at absolute paths, whatever is below another after it. `env`: for subPathExpr. `home`: the
    pod's own directory, which no mount may hide from it. Raises ConfigMissing."""
    by_name = {volume.name: volume for volume in spec.volumes}
    found = [
        _mount(mount, by_name[mount.name], paths[mount.name], env)
        for mount in container.volume_mounts
        if PurePosixPath(mount.mount_path).is_absolute()
    ]
    if any(home.is_relative_to(mount.target) for mount in found):
        found.append(Mount(home, str(home)))
    return sorted(found, key=lambda mount: len(PurePosixPath(mount.target).parts))


def _mount(mount: core.VolumeMount, volume: core.Volume, source: Path, env: Mapping[str, str]) -> Mount:
    target = PurePosixPath(mount.mount_path)
    if ".." in target.parts or target == PurePosixPath("/"):
        raise ConfigMissing(f'volumeMounts: nothing can be mounted at "{mount.mount_path}"')
    part = expand(mount.sub_path_expr, env) if mount.sub_path_expr else mount.sub_path
    empty, claimed = volume.empty_dir, volume.persistent_volume_claim
    if empty is not None and empty.medium == "Memory" and not part:
        limit = 0 if empty.size_limit is None else quantity.parse(empty.size_limit).units
        return Mount(None, str(target), bytes=limit)
    is_read_only = bool(mount.read_only or (claimed is not None and claimed.read_only))
    return Mount(_part(source, part) if part else source, str(target), is_read_only)


def _part(source: Path, part: str) -> Path:
    """What subPath names; a directory where there is nothing yet. It may not lead out of the volume, in which a pod may
    have put what links it likes."""
    found = _inside(source, part)
    if not found.resolve().is_relative_to(source.resolve()):
        raise ConfigMissing(f'volumeMounts: subPath "{part}" leads out of its volume')
    if not found.exists():
        found.mkdir(parents=True)
    return found


def _files(volume: core.Volume, facts: Facts, sources: Sources) -> Iterator[File] | None:
    """What the volume holds; None where it starts empty and belongs to the pod."""
    if volume.config_map is not None:
        map_source = volume.config_map
        data = _find("configmap", map_source.name, sources.config_maps, map_source.optional)
        return _picked(data, map_source.items, map_source.default_mode, map_source.optional)
    if volume.secret is not None:
        secret = volume.secret
        data = _find("secret", secret.secret_name, sources.secrets, secret.optional)
        return _picked(data, secret.items, secret.default_mode, secret.optional)
    if volume.downward_api is not None:
        return _downward(volume.downward_api.items, volume.downward_api.default_mode, facts)
    if volume.projected is not None:
        return _projected(volume.projected, facts, sources)
    if volume.empty_dir is not None:
        return None
    raise ConfigMissing(
        f'volume "{volume.name}": host-process nodes know only emptyDir, hostPath, configMap, secret, downwardAPI, '
        "projected and persistentVolumeClaim volumes"
    )


def _projected(source: core.ProjectedVolumeSource, facts: Facts, sources: Sources) -> Iterator[File]:
    for part in source.sources:
        if part.config_map is not None:
            data = _find("configmap", part.config_map.name, sources.config_maps, part.config_map.optional)
            yield from _picked(data, part.config_map.items, source.default_mode, part.config_map.optional)
        elif part.secret is not None:
            data = _find("secret", part.secret.name, sources.secrets, part.secret.optional)
            yield from _picked(data, part.secret.items, source.default_mode, part.secret.optional)
        elif part.downward_api is not None:
            yield from _downward(part.downward_api.items, source.default_mode, facts)
        elif part.service_account_token is not None:
            token = part.service_account_token
            mode = _DEFAULT_MODE if source.default_mode is None else source.default_mode
            yield File(token.path, sources.tokens[token], mode)
        else:
            raise ConfigMissing(
                "projected volume: host-process nodes know configMap, secret, downwardAPI and serviceAccountToken "
                "sources"
            )


def _find(kind: str, name: str, found: Mapping[str, Mapping[str, bytes]], optional: bool | None) -> Mapping[str, bytes]:
    data = found.get(name)
    if data is None and not optional:
        raise ConfigMissing(f'{kind} "{name}" not found')
    return data or {}


def _picked(
    data: Mapping[str, bytes], items: Iterable[core.KeyToPath], default_mode: int | None, optional: bool | None
) -> Iterator[File]:
    mode = _DEFAULT_MODE if default_mode is None else default_mode
    chosen = tuple(items)
    if not chosen:
        for key, content in data.items():
            yield File(key, content, mode)
    for item in chosen:
        if item.key in data:
            yield File(item.path, data[item.key], mode if item.mode is None else item.mode)
        elif not optional:
            raise ConfigMissing(f"references non-existent key: {item.key}")


def _downward(items: Iterable[core.DownwardAPIVolumeFile], default_mode: int | None, facts: Facts) -> Iterator[File]:
    for item in items:
        mode = item.mode if item.mode is not None else _DEFAULT_MODE if default_mode is None else default_mode
        if item.field_ref is not None:
            yield File(item.path, field_value(item.field_ref.field_path, facts).encode(), mode)
        elif item.resource_field_ref is not None:
            named = [c for c in facts.pod.spec.containers if c.name == item.resource_field_ref.container_name]
            if not named:
                raise ConfigMissing(f"downwardAPI {item.path}: resourceFieldRef.containerName names no container")
            yield File(item.path, resource_value(item.resource_field_ref, named[0], facts).encode(), mode)


def _write(root: Path, files: Iterable[File]) -> None:
    for file in files:
        path = _inside(root, file.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        temporary = path.with_name(f".{path.name}.new")
        # Its final mode from the first byte on: a secret must not be readable for a moment.
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as out:
            out.write(file.content)
            os.fchmod(out.fileno(), file.mode & 0o777)
        os.replace(temporary, path)


def _inside(root: Path, relative: str) -> Path:
    parts = PurePosixPath(relative)
    if parts.is_absolute() or ".." in parts.parts or not parts.parts:
        raise ConfigMissing(f'path "{relative}" must be relative and stay inside its volume')
    return root / parts


def _host_path(name: str, source: core.HostPathVolumeSource) -> Path:
    path = Path(source.path)
    kind = source.type or ""
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate" and not path.exists():
        path.touch()
    checks = {"Directory": path.is_dir, "DirectoryOrCreate": path.is_dir, "File": path.is_file}
    checks |= {"FileOrCreate": path.is_file, "Socket": path.is_socket, "CharDevice": path.is_char_device}
    check = checks.get(kind, lambda: True)
    if not check():
        raise ConfigMissing(f'volume "{name}": hostPath type check failed: {path} is not a {kind}')
    return path


def config_map_data(found: core.ConfigMap) -> dict[str, bytes]:
    text = {key: value.encode() for key, value in (found.data or {}).items()}
    return text | {key: _unbase64(value) for key, value in (found.binary_data or {}).items()}


def secret_data(found: core.Secret) -> dict[str, bytes]:
    return {key: _unbase64(value) for key, value in (found.data or {}).items()}


def _unbase64(value: str | bytes) -> bytes:
    try:
        return base64.b64decode(value)
    except ValueError:
        return b""
