"""pytorch: what torch.distributed asks for: who the master is, how many there are, and which of them one is.

With `--min-nodes` or `--max-nodes` (ours) the job is elastic: torchrun is told, by the variables that it reads its
options from, to meet at the master and to go on while so many are there.
"""

from collections.abc import Mapping
from typing import ClassVar

from muster.api import volcano
from muster.api.raw import Document
from muster.jobs.volcano.plugins import changing
from muster.jobs.volcano.plugins.contract import Arguments, Options, PodsOnly

PORT = 23456
PORT_NAME = "pytorchjob-port"
WAITING_CONTAINER = "wait-for-master"
WAITING_IMAGE = "busybox:1.36.1"
WAITING_SECONDS = 300
SETTINGS = "PET_RDZV_CONF"


class PyTorch(PodsOnly):
    name = "pytorch"
    ARGUMENTS: ClassVar[Options] = {
        "master": str,
        "worker": str,
        "port": int,
        "wait-master-enabled": bool,
        "wait-master-timeout": int,
        "wait-master-image": str,
        "min-nodes": int,
        "max-nodes": int,
    }

    def __init__(self, arguments: Arguments) -> None:
        self.master = arguments.text("master", "master")
        self.worker = arguments.text("worker", "worker")
        self.port = arguments.number("port", PORT)
        self.is_awaited = arguments.flag("wait-master-enabled")
        self.waiting_seconds = arguments.number("wait-master-timeout", WAITING_SECONDS)
        self.waiting_image = arguments.text("wait-master-image", WAITING_IMAGE)
        self.is_elastic = not arguments.values.keys().isdisjoint(("min-nodes", "max-nodes"))
        self.least = arguments.number("min-nodes", 0)
        self.most = arguments.number("max-nodes", 0)

    def change_pod(self, pod: Document, job: volcano.Job) -> None:
        master, role = changing.find_task(job, self.master), changing.task_of(pod)
        if master is None:
            return
        address = changing.host_of(job, master, 0)
        variables = {
            "MASTER_ADDR": address,
            "MASTER_PORT": str(self.port),
            "WORLD_SIZE": str((master.replicas or 0) + changing.replicas(job, self.worker)),
        }
        if role in (self.master, self.worker):
            rank = changing.index_of(pod) + (1 if role == self.worker else 0)
            variables["RANK"] = str(rank)
            if self.is_elastic:
                variables |= self._elastic(job, variables)
                variables[SETTINGS] = _settings(changing.variable_value(pod, SETTINGS), is_host=rank == 0)
        for container in changing.containers(pod, init=False):
            changing.open_port(container, PORT_NAME, self.port)
            changing.set_variables(container, variables)
        if self.is_awaited and role == self.worker:
            self._await(pod, address)

    def _elastic(self, job: volcano.Job, known: Mapping[str, str]) -> dict[str, str]:
        least = max(1, self.least or job.spec.min_available or 0)
        most = max(least, self.most or int(known["WORLD_SIZE"]))
        return {
            "PET_NNODES": f"{least}:{most}",
            "PET_RDZV_BACKEND": "c10d",
            "PET_RDZV_ENDPOINT": f"{known['MASTER_ADDR']}:{known['MASTER_PORT']}",
            "MUSTER_MIN_REPLICAS": str(least),
            "MUSTER_MAX_REPLICAS": str(most),
        }

    def _await(self, pod: Document, address: str) -> None:
        listed = pod["spec"].get("initContainers") or []
        if all(container.get("name") != WAITING_CONTAINER for container in listed):
            command = ["sh", "-c", waiting_script(address, self.port, self.waiting_seconds)]
            made = {"name": WAITING_CONTAINER, "image": self.waiting_image, "command": command}
            pod["spec"]["initContainers"] = [*listed, made]


def _settings(given: str, *, is_host: bool) -> str:
    """Of the rendezvous: what the user says, and who the host is. Where members share a machine, torchrun cannot tell
    that by its name."""
    if "is_host=" in given:
        return given
    return ",".join([*([given] if given else []), f"is_host={int(is_host)}"])


def waiting_script(host: str, port: int, seconds: int) -> str:
    """Returns once somebody listens there, with whatever the image has to find that out."""
    probe = f"import socket; socket.create_connection(('{host}', {port}), 2)"
    return "\n".join(
        [
            f"echo 'waiting up to {seconds} s for {host}:{port}'",
            "left=" + str(seconds),
            f"until nc -z {host} {port} || bash -c 'exec 3<>/dev/tcp/{host}/{port}' || python3 -c \"{probe}\"; do",
            '  [ "$left" -gt 0 ] || { echo "nobody listens there"; exit 1; }',
            "  left=$((left - 2))",
            "  sleep 2",
            "done 2>/dev/null",
            "echo 'it is there'",
        ]
    )
