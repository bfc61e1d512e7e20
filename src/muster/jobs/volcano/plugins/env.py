"""env: each pod knows its number within its task."""

from typing import ClassVar

from muster.api import volcano
from muster.api.raw import Document
from muster.jobs.volcano.plugins import changing
from muster.jobs.volcano.plugins.contract import Arguments, Options, PodsOnly


class Env(PodsOnly):
    name = "env"
    ARGUMENTS: ClassVar[Options] = {}

    def __init__(self, _arguments: Arguments) -> None:
        pass

    def change_pod(self, pod: Document, _job: volcano.Job) -> None:
        index = str(changing.index_of(pod))
        for container in changing.containers(pod):
            changing.set_variables(container, {"VK_TASK_INDEX": index, "VC_TASK_INDEX": index})
