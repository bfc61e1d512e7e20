"""ray: the head starts a Ray cluster, the workers join it, and a Service leads to the head."""

from collections.abc import Sequence
from typing import ClassVar

from muster.api import core, volcano
from muster.api.raw import Document
from muster.jobs.volcano import names
from muster.jobs.volcano.plugins import changing
from muster.jobs.volcano.plugins.contract import Arguments, KeyPair, Made, Options
from muster.jobs.volcano.plugins.svc import metadata

PORT, DASHBOARD_PORT, CLIENT_PORT = 6379, 8265, 10001


class Ray:
    name = "ray"
    ARGUMENTS: ClassVar[Options] = {
        "head": str,
        "worker": str,
        "headContainer": str,
        "workerContainer": str,
        "port": int,
        "dashboardPort": int,
        "clientPort": int,
    }
    needs_key = False

    def __init__(self, arguments: Arguments) -> None:
        self.head = arguments.text("head", "head")
        self.worker = arguments.text("worker", "worker")
        self.head_container = arguments.text("headContainer", "head")
        self.worker_container = arguments.text("workerContainer", "worker")
        self.ports = {
            "gcs": arguments.number("port", PORT),
            "dashboard": arguments.number("dashboardPort", DASHBOARD_PORT),
            "client": arguments.number("clientPort", CLIENT_PORT),
        }

    def change_pod(self, pod: Document, job: volcano.Job) -> None:
        head, role = changing.find_task(job, self.head), changing.task_of(pod)
        if role == self.head:
            start = (
                f"ray start --head --block --dashboard-host=0.0.0.0 --port={self.ports['gcs']} "
                f"--dashboard-port={self.ports['dashboard']} --ray-client-server-port={self.ports['client']}"
            )
            self._start(pod, self.head_container, start)
            for container in changing.containers(pod, init=False):
                if container.get("name") == self.head_container:
                    for name, number in self.ports.items():
                        changing.open_port(container, name, number)
        elif role == self.worker and head is not None:
            address = f"{changing.host_of(job, head, 0)}:{self.ports['gcs']}"
            self._start(pod, self.worker_container, f"ray start --block --address={address}")

    def _start(self, pod: Document, name: str, start: str) -> None:
        """A command of the user's own is left alone."""
        for container in changing.containers(pod, init=False):
            if container.get("name") == name and not container.get("command"):
                container["command"] = ["sh", "-c", start]

    def objects(self, job: volcano.Job, _key: KeyPair | None) -> Sequence[Made]:
        selector = {
            names.JOB: job.metadata.name,
            names.JOB_NAMESPACE: job.metadata.namespace,
            names.TASK: self.head,
        }
        ports = [{"name": name, "port": number, "targetPort": number} for name, number in self.ports.items()]
        document = {"metadata": metadata(job, service_name(job)), "spec": {"selector": selector, "ports": ports}}
        return (Made(core.SERVICE, document),)


def service_name(job: volcano.Job) -> str:
    return f"{job.metadata.name}-head-svc"
