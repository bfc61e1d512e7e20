"""What is special about each kind of task: what it is told, which ports it serves, what must be remembered of it.
Pure, but for keys and tokens, which come from outside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from muster.api import errors, raw
from muster.api.raw import Document
from muster.tasks.contract import ProxyPort
from muster.tasks.naming import KeyPair
from muster.tasks.ports import PORT_VARIABLE
from muster.tasks.task_config import TaskConfig, TaskType


@dataclass(frozen=True, slots=True)
class EventFiles:
    """What a TensorBoard shows. `storage`: a checkpoint storage, with its secrets; `paths`: in it; `volumes`: what a
    task must see to reach it, and where it sees that."""

    storage: Document = field(repr=False)
    paths: Sequence[str]
    volumes: Sequence[tuple[Document, Document]] = ()


@dataclass(frozen=True, slots=True)
class Means:
    """What a kind may need to be told. `port`: of its service; 0 where it has none."""

    port: int = 0
    token: str = field(default="", repr=False)
    keys: KeyPair | None = None
    events: EventFiles | None = None


@dataclass(frozen=True, slots=True)
class Special:
    """`snapshot` is kept in the records; `secrets` are not."""

    words: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    proxies: Sequence[ProxyPort] = ()
    snapshot: Document = field(default_factory=dict, repr=False)


def special(kind: TaskType, config: TaskConfig, means: Means) -> Special:
    others = tuple(
        ProxyPort(port.port, is_tcp=port.is_tcp, is_unauthenticated=port.is_unauthenticated)
        for port in config.environment.proxy_ports
    )
    if kind in (TaskType.COMMAND, TaskType.GENERIC):
        return Special(words=config.entrypoint, proxies=others)
    service = ProxyPort(means.port, is_default=True)
    variables = {PORT_VARIABLE[kind]: str(means.port)}
    snapshot: Document = {"port": means.port}
    if config.idle_seconds:
        variables["DET_IDLE_SECONDS"] = f"{config.idle_seconds:g}"
    if kind is TaskType.SHELL:
        assert means.keys is not None
        variables["DET_SHELL_AUTHORIZED_KEY"] = means.keys.public
        snapshot |= {"private_key": means.keys.private, "public_key": means.keys.public}
        # Keys are asked for by sshd itself: the client sends nothing else.
        service = ProxyPort(means.port, is_tcp=True, is_unauthenticated=True, is_default=True)
        return Special((), variables, {}, (service, *others), snapshot)
    if kind is TaskType.NOTEBOOK:
        variables["NOTEBOOK_IDLE_TYPE"] = config.notebook_idle_type.value
        return Special((), variables, {"DET_NOTEBOOK_TOKEN": means.token}, (service, *others), snapshot)
    secrets = {}
    if means.events is not None:
        variables["DET_TENSORBOARD_PATHS"] = ",".join(means.events.paths)
        secrets["DET_TENSORBOARD_STORAGE"] = raw.encode(means.events.storage).decode()
    return Special(config.tensorboard_args, variables, secrets, (service, *others), snapshot)


def service_address(kind: str, task: str, token: str) -> str:
    """Where a browser finds it. `token`: empty for those who may not have it."""
    if kind == TaskType.NOTEBOOK and token:
        return f"/proxy/{task}/?token={token}"
    return f"/proxy/{task}/"


def check_ports(config: TaskConfig, service: int) -> None:
    """Raises BadRequest where a port is named twice. `service`: of the task itself; 0 for none."""
    named = [service, *(each.port for each in config.environment.proxy_ports)]
    twice = sorted({port for port in named if named.count(port) > 1})
    if twice:
        raise errors.BadRequest(f"config: environment.proxy_ports: {twice[0]} is taken already; name another port")
