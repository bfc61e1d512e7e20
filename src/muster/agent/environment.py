"""The environment and command line of a container. Pure: what it refers to is fetched by the caller.

The base is small: PATH, HOME, USER and LANG of the agent, its Python as `MUSTER_PYTHON` for what finds no other, and
inside the pod's directory a TMPDIR and the file `MUSTER_TERMINATION_LOG`, whose content becomes the message of the
container's end. `MUSTER_VOLUME_<NAME>` names where a volume is (see `agent.volumes`).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from muster.api import core, quantity
from muster.api.quantity import BadQuantity

INHERITED = ("PATH", "HOME", "USER", "LANG")
_REFERENCE = re.compile(r"\$(\$|\(([^()$]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
_VARIABLE_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


class ConfigMissing(Exception):
    """What the container refers to is not there (yet): shown as CreateContainerConfigError, and tried again."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The ConfigMaps and Secrets that a pod refers to, as far as they exist, by name; and the tokens of its account."""

    config_maps: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    secrets: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    tokens: Mapping[core.ServiceAccountTokenProjection, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a container may ask about where it runs."""

    pod: core.Pod
    host_ip: str
    allocatable: Mapping[str, int]  # of the node: what a container without a limit is told


def references(spec: core.PodSpec) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the ConfigMaps and of the Secrets that the containers' environments refer to."""
    maps: set[str] = set()
    secrets: set[str] = set()
    for container in (*spec.init_containers, *spec.containers):
        for source in container.env_from:
            if source.config_map_ref is not None:
                maps.add(source.config_map_ref.name)
            if source.secret_ref is not None:
                secrets.add(source.secret_ref.name)
        for variable in container.env:
            value_from = variable.value_from
            if value_from is not None and value_from.config_map_key_ref is not None:
                maps.add(value_from.config_map_key_ref.name)
            if value_from is not None and value_from.secret_key_ref is not None:
                secrets.add(value_from.secret_key_ref.name)
    return frozenset(maps), frozenset(secrets)


def variables(container: core.Container, facts: Facts, sources: Sources, base: Mapping[str, str]) -> dict[str, str]:
    """The container's environment on top of `base`. Raises ConfigMissing."""
    env = dict(base)
    for source in container.env_from:
        env.update(_from_source(source, sources))
    for variable in container.env:
        if variable.value_from is None:
            env[variable.name] = expand(variable.value or "", env)
            continue
        value = _value_from(variable.value_from, container, facts, sources)
        if value is not None:
            env[variable.name] = value
    return env


def command(container: core.Container, env: Mapping[str, str]) -> list[str]:
    """What to execute: command and args with $(VAR) filled in. Empty where the container names no command."""
    return [expand(word, env) for word in (*container.command, *container.args)] if container.command else []


def expand(text: str, env: Mapping[str, str]) -> str:
    """Fill in $(NAME); $$ is a dollar sign, and a name that is not known stays as it was written."""

    def fill(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return env.get(match[2], match[0])

    return _REFERENCE.sub(fill, text) if "$" in text else text


def _from_source(source: core.EnvFromSource, sources: Sources) -> Iterator[tuple[str, str]]:
    prefix = source.prefix or ""
    for kind, reference, found in (
        ("configmap", source.config_map_ref, sources.config_maps),
        ("secret", source.secret_ref, sources.secrets),
    ):
        if reference is None:
            continue
        data = found.get(reference.name)
        if data is None:
            if not reference.optional:
                raise ConfigMissing(f'{kind} "{reference.name}" not found')
            continue
        for key, value in data.items():
            # A key may be a file name that no shell could use; Kubernetes skips those too.
            if _VARIABLE_NAME.fullmatch(prefix + key):
                yield prefix + key, value.decode(errors="replace")


def _value_from(source: core.EnvVarSource, container: core.Container, facts: Facts, sources: Sources) -> str | None:
    if source.field_ref is not None:
        return field_value(source.field_ref.field_path, facts)
    if source.resource_field_ref is not None:
        return resource_value(source.resource_field_ref, container, facts)
    for kind, reference, found in (
        ("configmap", source.config_map_key_ref, sources.config_maps),
        ("secret", source.secret_key_ref, sources.secrets),
    ):
        if reference is None:
            continue
        data = found.get(reference.name)
        if data is not None and reference.key in data:
            return data[reference.key].decode(errors="replace")
        if reference.optional:
            return None
        if data is None:
            raise ConfigMissing(f'{kind} "{reference.name}" not found')
        raise ConfigMissing(
            f"couldn't find key {reference.key} in {kind} {facts.pod.metadata.namespace}/{reference.name}"
        )
    raise ConfigMissing("valueFrom: this source is not supported by host-process nodes")


def field_value(path: str, facts: Facts) -> str:
    """A field of the pod for the downward API. Raises ConfigMissing for one that it does not offer."""
    pod = facts.pod
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript is not None:
        listed = pod.metadata.labels if subscript[1] == "labels" else pod.metadata.annotations
        return (listed or {}).get(subscript[2], "")
    simple = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "metadata.labels": _listed(pod.metadata.labels),
        "metadata.annotations": _listed(pod.metadata.annotations),
        "spec.nodeName": pod.spec.node_name or "",
        "spec.serviceAccountName": pod.spec.service_account_name or "default",
        "status.hostIP": facts.host_ip,
        "status.hostIPs": facts.host_ip,
        "status.podIP": facts.host_ip,
        "status.podIPs": facts.host_ip,
    }
    if path not in simple:
        raise ConfigMissing(f"fieldRef: unsupported fieldPath: {path}; supported are {', '.join(simple)}")
    return simple[path]


def _listed(values: Mapping[str, str] | None) -> str:
    escaped = ((key, value.replace("\\", "\\\\").replace('"', '\\"')) for key, value in sorted((values or {}).items()))
    return "\n".join(f'{key}="{value}"' for key, value in escaped)


def resource_value(reference: core.ResourceFieldSelector, container: core.Container, facts: Facts) -> str:
    """A request or limit in multiples of the divisor, rounded up; without a limit, what the node has."""
    if reference.container_name and reference.container_name != container.name:
        spec = facts.pod.spec
        named = [c for c in (*spec.init_containers, *spec.containers) if c.name == reference.container_name]
        if not named:
            raise ConfigMissing(f'resourceFieldRef: the pod has no container "{reference.container_name}"')
        container = named[0]
    which, _, resource = reference.resource.partition(".")
    if which not in ("limits", "requests") or not resource:
        raise ConfigMissing(f"resourceFieldRef: unsupported container resource: {reference.resource}")
    resources = container.resources or core.ResourceRequirements()
    listed = (resources.limits if which == "limits" else resources.requests) or {}
    try:
        divisor = quantity.parse(reference.divisor or "1")
        amount = quantity.parse(listed[resource]) if resource in listed else None
    except BadQuantity as error:
        raise ConfigMissing(f"resourceFieldRef: {error}") from error
    if amount is None and which == "limits" and resource in facts.allocatable:
        known = facts.allocatable[resource]
        amount = quantity.from_milli(known) if resource == "cpu" else quantity.from_units(known)
    nano = 0 if amount is None else amount.nano
    return str(-(-nano // (divisor.nano or quantity.NANO)))
