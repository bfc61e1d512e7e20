"""The pod of a task: from its configuration and the facts of its run to a template. Pure.

The pod has `/run/determined` to itself, with the scripts of `tasks.glue` in it. Where a node cannot show a pod a
directory of its own there, the scripts find it by the variables that the node gives instead.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import urlsplit

from muster.accounts.users import AgentUserGroup
from muster.api.raw import Document
from muster.tasks import agent_users
from muster.tasks.glue_files import GlueFiles
from muster.tasks.pod_specs import CONTAINER, merge_pod_spec
from muster.tasks.task_config import BindMount, TaskConfig, TaskType

RUN_DIRECTORY: Final = "/run/determined"
GLUE_DIRECTORY: Final = f"{RUN_DIRECTORY}/glue"
WORK_DIRECTORY: Final = f"{RUN_DIRECTORY}/workdir"
TEMPORARY_DIRECTORY: Final = f"{RUN_DIRECTORY}/tmp"  # noqa: S108 - inside of what is its own
DEFAULT_IMAGE: Final = "python:3.12-slim"
"""Where nobody names one, and where images count at all: it has all that the scripts need."""
_BOOT: Final = """\
run=/run/determined glue=/run/determined/glue
if [ -n "$MUSTER_UNMOUNTED" ]; then run=$MUSTER_VOLUME_DETERMINED_RUN glue=$MUSTER_VOLUME_DETERMINED_GLUE; fi
export DET_RUN_DIR="$run"
if [ -n "$DET_MASTER_CERT" ]; then export DET_MASTER_CERT_FILE="$glue/$DET_MASTER_CERT"; fi
python=${DET_PYTHON_EXECUTABLE:-python3}
if ! command -v "$python" >/dev/null 2>&1; then
    export DET_PYTHON_MISSING="$python"; unset DET_PYTHON_EXECUTABLE; python=${MUSTER_PYTHON:-python3}
fi
exec "$python" "$glue" "$@"
"""
_PROPAGATION: Final[Mapping[str, str]] = {
    "rslave": "HostToContainer",
    "slave": "HostToContainer",
    "rshared": "Bidirectional",
    "shared": "Bidirectional",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """What is the same for all tasks. `master`: the URL by which tasks reach the server. `python`: the one they run
    with; empty for the node's own."""

    id: str
    master: str
    glue: GlueFiles
    python: str = ""
    certificate_name: str = ""


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What is so of one task alone. `words`: what its kind executes, or arguments for that. `variables`: of its
    kind."""

    kind: TaskType
    username: str
    device: str
    words: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    has_context: bool = False
    agent: AgentUserGroup | None = None
    """Under whom it runs; None: as whoever runs the node."""


def template(config: TaskConfig, facts: TaskFacts, cluster: Cluster, pod_spec: Document | None = None) -> Document:
    """`pod_spec`: the cluster's own, below that of the configuration."""
    container: Document = {
        "name": CONTAINER,
        "image": config.environment.image.get(facts.device) or DEFAULT_IMAGE,
        "command": ["/bin/sh", "-c", escaped(_BOOT), "task"],
        "args": [facts.kind.value, *map(escaped, facts.words)],
        "env": list(_variables(config, facts, cluster)),
        "volumeMounts": [
            {"name": "determined-run", "mountPath": RUN_DIRECTORY},
            {"name": "determined-glue", "mountPath": GLUE_DIRECTORY, "readOnly": True},
        ],
    }
    if config.environment.is_pulled_always:
        container["imagePullPolicy"] = "Always"
    capabilities = {"add": config.environment.add_capabilities, "drop": config.environment.drop_capabilities}
    if any(capabilities.values()):
        container["securityContext"] = {
            "capabilities": {name: list(listed) for name, listed in capabilities.items() if listed}
        }
    volumes: list[Document] = [
        {"name": "determined-run", "emptyDir": {}},
        {"name": "determined-glue", **cluster.glue.volume()},
    ]
    if config.resources.shm_bytes:
        limit = {"medium": "Memory", "sizeLimit": str(config.resources.shm_bytes)}
        volumes.append({"name": "determined-shm", "emptyDir": limit})
        container["volumeMounts"].append({"name": "determined-shm", "mountPath": "/dev/shm"})  # noqa: S108
    for number, mount in enumerate(config.bind_mounts):
        volumes.append({"name": f"bind-{number}", "hostPath": {"path": mount.host_path}})
        container["volumeMounts"].append(_bound(f"bind-{number}", mount))
    found: Document = {
        "metadata": {},
        "spec": {"restartPolicy": "Never", "containers": [container], "volumes": volumes},
    }
    if security := agent_users.security(facts.agent):
        found["spec"]["securityContext"] = security
    for document in (config.environment.pod_spec, pod_spec or {}):
        merge_pod_spec(found, document)
    return found


def _variables(config: TaskConfig, facts: TaskFacts, cluster: Cluster) -> Iterator[Document]:
    master = urlsplit(cluster.master)
    host = master.hostname or ""
    port = master.port or (443 if master.scheme == "https" else 80)
    ours = {
        "DET_MASTER": cluster.master,
        "DET_MASTER_HOST": host,
        "DET_MASTER_ADDR": host,
        "DET_MASTER_PORT": str(port),
        "DET_CLUSTER_ID": cluster.id,
        "DET_USER": facts.username,
        "DET_TASK_TYPE": facts.kind.value,
        "DET_USE_TLS": "true" if master.scheme == "https" else "false",
        **({"DET_MASTER_CERT": cluster.glue.certificate} if cluster.glue.certificate else {}),
        **({"DET_MASTER_CERT_NAME": cluster.certificate_name} if cluster.certificate_name else {}),
        **({"DET_PYTHON_EXECUTABLE": cluster.python} if cluster.python else {}),
        **({"DET_WORKDIR": config.work_dir} if config.work_dir else {}),
        **({"DET_HAS_CONTEXT": "1"} if facts.has_context else {}),
        **({"DET_NEEDS_MOUNTS": "1"} if any(map(_moves, config.bind_mounts)) else {}),
        **({"DET_DEBUG": "1"} if config.is_debug else {}),
        **facts.variables,
    }
    for name, value in config.environment.variables_of(facts.device).items():
        if name not in ours:
            yield {"name": name, "value": escaped(value)}
    for name, value in ours.items():
        yield {"name": name, "value": escaped(value)}
    yield {"name": "DET_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


def add_volumes(template: Document, volumes: Iterable[tuple[Document, Document]]) -> None:
    """Each with where its program sees it."""
    for volume, mount in volumes:
        template["spec"]["volumes"].append(volume)
        template["spec"]["containers"][0]["volumeMounts"].append(mount)


def _moves(mount: BindMount) -> bool:
    return PurePosixPath(mount.host_path) != PurePosixPath(mount.container_path)


def _bound(name: str, mount: BindMount) -> Document:
    path = str(PurePosixPath(WORK_DIRECTORY) / mount.container_path)
    found: Document = {"name": name, "mountPath": path}
    if mount.is_read_only:
        found["readOnly"] = True
    if mount.propagation in _PROPAGATION:
        found["mountPropagation"] = _PROPAGATION[mount.propagation]
    return found


def escaped(text: str) -> str:
    """Kubernetes fills in $(NAME) where it finds it; Determined does not."""
    return text.replace("$", "$$")
