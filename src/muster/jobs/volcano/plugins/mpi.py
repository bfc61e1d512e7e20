"""mpi: the master learns the hosts of the workers, and all open the port that it starts them through."""

from typing import ClassVar

from muster.api import volcano
from muster.api.raw import Document
from muster.jobs.volcano.plugins import changing
from muster.jobs.volcano.plugins.contract import Arguments, Options, PodsOnly

PORT = 22
PORT_NAME = "mpijob-port"
VARIABLE = "MPI_HOST"


class Mpi(PodsOnly):
    name = "mpi"
    ARGUMENTS: ClassVar[Options] = {"master": str, "worker": str, "port": int}

    def __init__(self, arguments: Arguments) -> None:
        self.master = arguments.text("master", "master")
        self.worker = arguments.text("worker", "worker")
        self.port = arguments.number("port", PORT)

    def change_pod(self, pod: Document, job: volcano.Job) -> None:
        workers = changing.find_task(job, self.worker)
        hosts = changing.hosts_of(job, workers) if workers is not None else []
        for container in changing.containers(pod):
            changing.open_port(container, PORT_NAME, self.port)
            if hosts and changing.task_of(pod) == self.master:
                changing.set_variables(container, {VARIABLE: ",".join(hosts)})
