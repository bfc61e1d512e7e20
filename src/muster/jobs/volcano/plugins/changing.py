"""Changes that plugins make to the document of a pod, and what they read off it."""

from collections.abc import Iterator, Mapping

from muster.api import volcano
from muster.api.documents import child, objects
from muster.api.kueue import sizing
from muster.api.raw import JSON, Document
from muster.jobs.volcano import names


def containers(pod: Document, *, init: bool = True) -> Iterator[Document]:
    """All containers, those for the start first."""
    if init:
        yield from objects(pod, "spec", "initContainers")
    yield from objects(pod, "spec", "containers")


def set_variables(container: Document, variables: Mapping[str, JSON]) -> None:
    """`variables`: text, or where a value comes from. They replace what the template says of the same names."""
    present = container.get("env") or []
    kept = [variable for variable in present if variable.get("name") not in variables]
    added = [
        {"name": name, "valueFrom": value} if isinstance(value, dict) else {"name": name, "value": value}
        for name, value in variables.items()
    ]
    container["env"] = [*kept, *added]


def open_port(container: Document, name: str, number: int) -> None:
    ports = container.get("ports") or []
    if all(port.get("name") != name for port in ports):
        container["ports"] = [*ports, {"name": name, "containerPort": number}]


def task_of(pod: Document) -> str:
    found = child(pod, "metadata", "annotations").get(names.TASK)
    return found if isinstance(found, str) and found else names.DEFAULT_TASK


def index_of(pod: Document) -> int:
    """Within its task: the end of its name."""
    number = str(child(pod, "metadata").get("name", "")).rpartition("-")[2]
    return int(number) if number.isascii() and number.isdecimal() else 0


def find_task(job: volcano.Job, name: str) -> volcano.TaskSpec | None:
    return next((task for task in job.spec.tasks if names.task_name(task) == name), None)


def replicas(job: volcano.Job, name: str) -> int:
    task = find_task(job, name)
    return (task.replicas or 0) if task is not None else 0


def host_of(job: volcano.Job, task: volcano.TaskSpec, index: int) -> str:
    """The name under which the others reach the pod."""
    spec = task.template.spec
    host = spec.hostname or names.pod_name(job.metadata.name, names.task_name(task), index)
    return f"{host}.{spec.subdomain or job.metadata.name}"


def hosts_of(job: volcano.Job, task: volcano.TaskSpec) -> list[str]:
    """Of all its pods that quota lets it have now. Those of a task that names the host itself share that name."""
    wanted = task.replicas or 0
    sizes = sizing.read_sizes(job.metadata.annotations) or {}
    count = min(wanted, sizes.get(names.task_name(task), wanted), 1 if task.template.spec.hostname else wanted)
    return [host_of(job, task, index) for index in range(count)]


def variable_value(pod: Document, name: str) -> str:
    """What the first container that has the variable says; empty where none does."""
    for container in containers(pod, init=False):
        for variable in container.get("env") or []:
            if variable.get("name") == name and variable.get("value"):
                return str(variable["value"])
    return ""
