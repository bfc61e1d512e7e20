"""Jobs from Python: submit a gang, ask how it is, follow it, stop it.

from muster.sdk import run
result = run(["python", "train.py"], replicas=4, gpus=2)
result.exit_code
"""

import os
import random
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypedDict, Unpack

from muster.api import errors, fields
from muster.api.raw import Document
from muster.sdk import gangs, names, reading, resources
from muster.sdk.client import Client
from muster.sdk.following import PATIENCE, Ended, Follower, Patience, Stuck
from muster.sdk.gangs import Gang, Rendezvous, Status
from muster.sdk.log_reading import Line
from muster.sdk.resources import Selection

LOOPBACK = "127.0.0.1"

INHERITED = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH", "HOME", "USER", "LANG", "LC_ALL")
"""What a job gets of the environment it was submitted from: enough to find the same interpreter and packages."""

_CONCURRENT_CREATES = 8


@dataclass(frozen=True, slots=True)
class Submitted:
    """A gang that the server has accepted."""

    name: str
    namespace: str
    group: Document
    rendezvous: Rendezvous

    @property
    def since(self) -> str:
        """The version at which the gang had no pods yet: a watch from here misses none."""
        return reading.text(self.group, "metadata", "resourceVersion")


@dataclass(frozen=True, slots=True)
class Result:
    """How a gang ended. `lines` are (rank, text) in the order they arrived."""

    name: str
    exit_code: int
    status: Status
    lines: Sequence[tuple[int, str]]


def new_name() -> str:
    return names.readable(random.SystemRandom())


def inherited(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    return {name: env[name] for name in INHERITED if name in env}


def submit_gang(client: Client, gang: Gang, rendezvous: Rendezvous | None = None) -> Submitted:
    """Creates the PodGroup and its pods; where one pod is refused, nothing stays. Raises Invalid, AlreadyExists."""
    gang.check()
    _check_image(client, gang)
    rendezvous = rendezvous or choose_rendezvous(client, gang)
    group = client.create(gangs.pod_group(gang), resources.POD_GROUPS)
    submitted = Submitted(gang.name, gang.namespace, group, rendezvous)
    try:
        _create(client, gangs.pods(gang, str(group["metadata"]["uid"]), rendezvous))
    except BaseException:  # also Ctrl-C: half a gang would wait for its other half for ever
        client.delete(resources.POD_GROUPS, gang.name, gang.namespace)
        raise
    return submitted


def _check_image(client: Client, gang: Gang) -> None:
    """Only agents of ours run plain processes. On a cluster of others, the pods would wait for an image for ever."""
    if gang.image != gangs.HOST_IMAGE or client.connection.cluster is None:
        return
    nodes = _nodes(client)
    if nodes and not any(reading.text(node, "metadata", "labels", gangs.MACHINE_LABEL) for node in nodes):
        message = "Required value: the nodes of this cluster run containers, so name an image (`muster run --image`)"
        raise errors.invalid("Gang", gang.name, [fields.required("image", message)])


def _nodes(client: Client) -> Sequence[Document] | None:
    """None for users who may not see them."""
    try:
        return client.list(resources.NODES)
    except errors.Forbidden:
        return None


def _create(client: Client, pods: Sequence[Document]) -> None:
    if len(pods) == 1:
        client.create(pods[0], resources.PODS)
        return
    with ThreadPoolExecutor(min(_CONCURRENT_CREATES, len(pods)), "create") as pool:
        for done in [pool.submit(client.create, pod, resources.PODS) for pod in pods]:
            done.result()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def choose_rendezvous(client: Client, gang: Gang, find_port: Callable[[], int] = free_port) -> Rendezvous:
    """Loopback and a free port for one alone, and for processes where all nodes are on one machine. Elsewhere no
    address: which node rank 0 gets is known only once the gang is placed, and its environment is fixed before."""
    if gang.replicas > 1 and (gang.image != gangs.HOST_IMAGE or not _is_one_machine(_nodes(client))):
        return Rendezvous("", 0)
    return Rendezvous(LOOPBACK, find_port())


def _is_one_machine(nodes: Sequence[Document] | None) -> bool:
    return nodes is not None and len({_machine(node) for node in nodes}) <= 1


def _machine(node: Document) -> str:
    """A node that does not say where it is counts as a machine of its own."""
    return reading.text(node, "metadata", "labels", gangs.MACHINE_LABEL) or reading.text(node, "metadata", "name")


def follow(client: Client, submitted: Submitted, *, with_logs: bool = True, patience: Patience = PATIENCE) -> Follower:
    return Follower(client, submitted.group, since=submitted.since, with_logs=with_logs, patience=patience)


def status(client: Client, name: str, namespace: str | None = None) -> Status:
    """Of a gang by its PodGroup's name, or of a bare pod. Raises NotFound."""
    inside = namespace or client.namespace
    try:
        group: Document | None = client.get(resources.POD_GROUPS, name, inside)
    except errors.NotFound:
        group = None
    found = members(client, name, inside)
    if group is None and not found:
        raise errors.NotFound(f"no job or pod named {name!r} in namespace {inside!r}; `muster ps` lists what there is")
    return gangs.observe(name, found, group)


def members(client: Client, name: str, namespace: str) -> Sequence[Document]:
    """The pods of the gang called `name`, else the pod of that name, else nothing."""
    found = client.list(resources.PODS, Selection(namespace, labels=f"{gangs.JOB_LABEL}={name}"))
    if found:
        return found
    try:
        return [client.get(resources.PODS, name, namespace)]
    except errors.NotFound:
        pass
    return [pod for pod in client.list(resources.PODS, Selection(namespace)) if group_of(pod) == name]


def group_of(pod: Document) -> str:
    return reading.text(pod, "metadata", "annotations", gangs.GROUP_ANNOTATION)


def stop(client: Client, name: str, namespace: str | None = None, *, grace_seconds: int | None = None) -> Sequence[str]:
    """Deletes the gang and its pods; returns the pods that were told to end. Raises NotFound."""
    inside = namespace or client.namespace
    pods = members(client, name, inside)
    was_group = _delete(client, resources.POD_GROUPS, name, inside)
    if not pods and not was_group:
        raise errors.NotFound(f"no job or pod named {name!r} in namespace {inside!r}; `muster ps` lists what there is")
    told = [str(pod["metadata"]["name"]) for pod in pods]
    stop_pods(client, told, inside, grace_seconds=grace_seconds)
    return told


def stop_pods(client: Client, pods: Iterable[str], namespace: str, *, grace_seconds: int | None = None) -> None:
    """Tells them to end; those that are gone already are fine."""
    for pod in pods:
        _delete(client, resources.PODS, pod, namespace, grace_seconds)


def _delete(
    client: Client, resource: resources.Resource, name: str, namespace: str, grace_seconds: int | None = None
) -> bool:
    try:
        client.delete(resource, name, namespace, grace_seconds=grace_seconds)
    except errors.NotFound:
        return False
    return True


def wait_gone(client: Client, pods: Iterable[str], namespace: str | None = None, *, timeout: float = 60.0) -> None:
    for pod in pods:
        client.wait_gone(resources.PODS, pod, namespace, timeout=timeout)


class GangOptions(TypedDict, total=False):
    """What `run` takes beyond the command; see `Gang`."""

    name: str
    replicas: int
    gpus: int
    cpu: str
    memory: str
    env: Mapping[str, str]
    workdir: str
    timeout_seconds: int
    queue: str
    image: str


def run(
    command: Sequence[str],
    *,
    client: Client | None = None,
    on_line: Callable[[int, str], None] | None = None,
    **options: Unpack[GangOptions],
) -> Result:
    """Runs a gang to its end, by default in this process's working directory and with its PATH, or in containers of an
    `image`. `on_line` is called with (rank, text) for each line, in place of printing it. An interruption (Ctrl-C)
    stops the gang."""
    client = client or Client()
    chosen: GangOptions = {"name": new_name(), **options}
    if "image" not in options:
        chosen = {"workdir": os.getcwd(), **chosen, "env": {**inherited(), **options.get("env", {})}}
    gang = Gang(command=command, namespace=client.namespace, **chosen)
    submitted = submit_gang(client, gang)
    follower = follow(client, submitted)
    show = on_line or (lambda rank, text: _print(rank, text, gang.replicas))
    kept: list[tuple[int, str]] = []
    try:
        while True:
            match follower.next():
                case Line(rank, text):
                    kept.append((rank, text))
                    show(rank, text)
                case Stuck(_, pods):
                    stop_pods(client, pods, gang.namespace)
                case Ended(status=last, exit_code=code):
                    return Result(gang.name, code, last, kept)
    except BaseException:
        stop(client, gang.name, gang.namespace)
        raise
    finally:
        follower.close()


def _print(rank: int, text: str, replicas: int) -> None:
    sys.stdout.write(f"[{rank}] {text}\n" if replicas > 1 else f"{text}\n")
    sys.stdout.flush()
