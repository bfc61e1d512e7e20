"""Sections that the configurations of tasks and of trials share: the environment, and what of a node they see. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from muster.api import errors
from muster.api.raw import JSON, Document
from muster.tasks.config_fields import Fields
from muster.tasks.task_config import DEVICES, BindMount, ConfigPort, Environment

PROPAGATIONS: Final = ("rprivate", "private", "rslave", "slave", "rshared", "shared")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Allowed:
    """What administrators let tasks do. `bind_mounts`: below these paths of the nodes; empty for none."""

    bind_mounts: Sequence[str] = ()

    def allows(self, host_path: str) -> bool:
        path = PurePosixPath(host_path)
        return ".." not in path.parts and any(path.is_relative_to(root) for root in self.bind_mounts)

    def refusal(self, path: str, host_path: str) -> str:
        """What is told to whoever wanted one that is not. `path`: of the field."""
        where = f"below {', '.join(self.bind_mounts)}" if self.bind_mounts else "nowhere"
        return f"{path}: {host_path} may not be mounted; allowed is {where} (an administrator sets tasks.bind_mounts)"


def plain(document: Mapping[str, JSON]) -> Document:
    """Without what is not set, and with images and variables by device, so that layers can be laid on each other."""
    found: Document = {name: value for name, value in document.items() if value is not None}
    for name in ("environment", "resources"):
        if isinstance(found.get(name), Mapping):
            found[name] = {key: value for key, value in found[name].items() if value is not None}
    environment = found.get("environment")
    if isinstance(environment, dict):
        for name in ("image", "environment_variables"):
            if name in environment:
                environment[name] = _by_device(environment[name])
    return found


def _by_device(value: JSON) -> JSON:
    if isinstance(value, Mapping):
        found: Document = {("cuda" if device == "gpu" else device): each for device, each in value.items()}
        return {device: each for device, each in found.items() if each not in (None, "")}
    return dict.fromkeys(DEVICES, value)


def read_environment(fields: Fields) -> Environment:
    image, variables = fields.inside("image"), fields.inside("environment_variables")
    found = Environment(
        image={device: text for device in DEVICES if (text := image.text(device))},
        variables={device: _variables(variables, device) for device in DEVICES},
        proxy_ports=tuple(_proxy_port(each) for each in fields.each("proxy_ports")),
        ports=_ports(fields.inside("ports"), fields.document("ports")),
        is_pulled_always=fields.flag("force_pull_image"),
        add_capabilities=fields.texts("add_capabilities"),
        drop_capabilities=fields.texts("drop_capabilities"),
        pod_spec=fields.document("pod_spec"),
    )
    fields.refuse("registry_auth", "use imagePullSecrets in environment.pod_spec")
    image.finish()
    variables.finish()
    fields.finish()
    return found


def _variables(fields: Fields, device: str) -> tuple[str, ...]:
    found = fields.texts(device)
    for each in found:
        if not _VARIABLE.fullmatch(each.partition("=")[0]):
            fields.problem(device, f"must be like NAME=value, found {each.partition('=')[0][:80]!r}")
    return found


def _proxy_port(fields: Fields) -> ConfigPort:
    port = fields.integer("proxy_port", 0, least=1, most=65535)
    if fields.raw("proxy_port") is None:
        fields.problem("proxy_port", "must be given")
    found = ConfigPort(port or 0, fields.flag("proxy_tcp"), fields.flag("unauthenticated"))
    fields.refuse("default_service_id", "leave it out: a port is reached as <task>:<port>", unless=[False])
    fields.finish()
    return found


def _ports(fields: Fields, document: Document) -> dict[str, int]:
    return {name: fields.integer(name, 0, least=1, most=65535) or 0 for name in document}


def read_bind_mounts(fields: Fields) -> tuple[BindMount, ...]:
    return tuple(_bind_mount(each) for each in fields.each("bind_mounts"))


def _bind_mount(fields: Fields) -> BindMount:
    host, container = fields.text("host_path"), fields.text("container_path")
    if not is_clean(host) or not host.startswith("/"):
        fields.problem("host_path", f'must be an absolute path without "..", found {host!r}')
    if not is_clean(container):
        fields.problem("container_path", f'must be a path without "..", found {container!r}')
    found = BindMount(
        host,
        container,
        fields.flag("read_only"),
        fields.text("propagation", "rprivate", choices=PROPAGATIONS),
    )
    fields.finish()
    return found


def is_clean(path: str) -> bool:
    """Whether it leads to somewhere below where it starts."""
    parts = PurePosixPath(path).parts
    return bool(parts) and parts != ("/",) and ".." not in parts


def mounts_refused(mounts: Sequence[BindMount], trusted: Mapping[str, JSON], allowed: Allowed) -> Iterator[str]:
    """`trusted`: a configuration that administrators wrote: what it mounts need not be allowed."""
    known = {mount.host_path for mount in read_bind_mounts(Fields(trusted))}
    for number, mount in enumerate(mounts):
        if mount.host_path not in known and not allowed.allows(mount.host_path):
            yield allowed.refusal(f"bind_mounts[{number}].host_path", mount.host_path)


def placed(wanted: str, default_pool: str, available: Iterable[str]) -> str:
    """The pool that it will run in. `default_pool`: the workspace's own; empty for the cluster's. Raises BadRequest
    where the workspace may not use it."""
    pool = wanted or default_pool
    known = list(available)
    if pool and pool not in known:
        raise errors.BadRequest(
            f"config: resources.resource_pool: this workspace has no pool {pool!r}; it has {', '.join(known) or 'none'}"
        )
    return pool
