"""tensorflow: the cluster, and one's own place in it, as TF_CONFIG."""

from typing import ClassVar

from muster.api import raw, volcano
from muster.api.raw import Document
from muster.jobs.volcano import states
from muster.jobs.volcano.plugins import changing
from muster.jobs.volcano.plugins.contract import Arguments, Options, PodsOnly

PORT = 2222
VARIABLE = "TF_CONFIG"
ROLES = ("ps", "worker", "chief", "evaluator")


class TensorFlow(PodsOnly):
    name = "tensorflow"
    ARGUMENTS: ClassVar[Options] = {**dict.fromkeys(ROLES, str), "port": int}

    def __init__(self, arguments: Arguments) -> None:
        self.tasks = {role: arguments.text(role, role) for role in ROLES}
        self.port = arguments.number("port", PORT)

    def change_pod(self, pod: Document, job: volcano.Job) -> None:
        if states.total_replicas(job) <= 1:
            return  # TensorFlow takes a cluster of one for a mistake
        own = changing.task_of(pod)
        role = next((role for role, task in self.tasks.items() if task == own), None)
        if role is None:
            return
        place = {"type": role, "index": changing.index_of(pod)}
        text = raw.encode({"cluster": self._cluster(job), "task": place}).decode()
        for container in changing.containers(pod, init=False):
            changing.set_variables(container, {VARIABLE: text})

    def _cluster(self, job: volcano.Job) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for role, name in self.tasks.items():
            task = changing.find_task(job, name)
            if task is not None and task.replicas:
                found[role] = [f"{host}:{self.port}" for host in changing.hosts_of(job, task)]
        return found
