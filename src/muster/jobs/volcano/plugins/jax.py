"""jax: what jax.distributed.initialize() reads: where the coordinator is, how many processes there are, which one is.

Volcano has no such plugin. The names are JAX's own, and those that Kubeflow's JAXJob sets beside them. The coordinator
is the first pod of the master task or, where there is none, of the workers.
"""

from typing import ClassVar

from muster.api import volcano
from muster.api.raw import Document
from muster.jobs.volcano import names
from muster.jobs.volcano.plugins import changing
from muster.jobs.volcano.plugins.contract import Arguments, Options, PodsOnly

PORT = 8476
PORT_NAME = "jaxjob-port"


class Jax(PodsOnly):
    name = "jax"
    ARGUMENTS: ClassVar[Options] = {"master": str, "worker": str, "port": int}

    def __init__(self, arguments: Arguments) -> None:
        self.roles = (arguments.text("master", "master"), arguments.text("worker", "worker"))
        self.port = arguments.number("port", PORT)

    def change_pod(self, pod: Document, job: volcano.Job) -> None:
        found = [task for role in self.roles if (task := changing.find_task(job, role)) is not None and task.replicas]
        before = 0
        for task in found:
            if names.task_name(task) == changing.task_of(pod):
                self._tell(pod, job, found, before + changing.index_of(pod))
            before += task.replicas or 0

    def _tell(self, pod: Document, job: volcano.Job, found: list[volcano.TaskSpec], process: int) -> None:
        host, count = changing.host_of(job, found[0], 0), sum(task.replicas or 0 for task in found)
        variables = {
            "JAX_COORDINATOR_ADDRESS": f"{host}:{self.port}",
            "JAX_NUM_PROCESSES": str(count),
            "JAX_PROCESS_ID": str(process),
            "COORDINATOR_ADDRESS": host,
            "COORDINATOR_PORT": str(self.port),
            "NUM_PROCESSES": str(count),
            "PROCESS_ID": str(process),
        }
        for container in changing.containers(pod, init=False):
            changing.open_port(container, PORT_NAME, self.port)
            changing.set_variables(container, variables)
