"""hcclrank: the rank of a pod in Huawei's collective communication, as an annotation of it."""

from typing import ClassVar

from muster.api import volcano
from muster.api.documents import child
from muster.api.raw import Document
from muster.jobs.volcano import names
from muster.jobs.volcano.plugins import changing
from muster.jobs.volcano.plugins.contract import Arguments, Options, PluginError, PodsOnly

ANNOTATION = "hccl/rankIndex"


class HcclRank(PodsOnly):
    name = "hcclrank"
    ARGUMENTS: ClassVar[Options] = {"master": str, "worker": str}

    def __init__(self, arguments: Arguments) -> None:
        self.master = arguments.text("master", "master")
        self.worker = arguments.text("worker", "worker")

    def change_pod(self, pod: Document, job: volcano.Job) -> None:
        annotations: Document = pod["metadata"].setdefault("annotations", {})
        if ANNOTATION in annotations:
            return
        rank = changing.variable_value(pod, "RANK") or self._by_place(pod, job)
        if rank:
            annotations[ANNOTATION] = rank

    def _by_place(self, pod: Document, job: volcano.Job) -> str:
        """The masters come first. Raises PluginError."""
        role = changing.task_of(pod)
        if role == self.master:
            return str(task_index(pod))
        if role == self.worker:
            return str(changing.replicas(job, self.master) + task_index(pod))
        return ""


def task_index(pod: Document) -> int:
    """What the pod's label says. Raises PluginError."""
    text = child(pod, "metadata", "labels").get(names.TASK_INDEX)
    try:
        return int(str(text))
    except ValueError as error:
        raise PluginError(f"the pod's label {names.TASK_INDEX} is {text!r}, not a number") from error
