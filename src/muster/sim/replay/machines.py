"""The nodes of a replayed cluster, and how many pods a job has on them."""

import re
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Final

from muster.api import core, errors
from muster.api.meta import Condition, ObjectMeta
from muster.quota.topology.assignments import HOSTNAME
from muster.sim.traces import Trace

GPU: Final = "nvidia.com/gpu"
_PART: Final = re.compile(r"(\d{1,6})x(\d{1,4})")
_MOST_PODS: Final = "1000"
_NODE: Final = 8


@dataclass(frozen=True)
class Machines:
    kinds: tuple[tuple[int, int], ...]
    """How many nodes with how many GPUs each."""

    @staticmethod
    def parse(text: str) -> "Machines":
        """`64x8`, or `64x8,20x4`. Raises BadRequest."""
        found = [_PART.fullmatch(part.strip()) for part in text.split(",")]
        kinds = tuple((int(part[1]), int(part[2])) for part in found if part is not None)
        if len(kinds) < len(found) or not all(count and gpus for count, gpus in kinds):
            raise errors.BadRequest(
                f"nodes: {text!r} is not how many nodes with how many GPUs each, as 64x8 or 64x8,20x4"
            )
        return Machines(kinds)

    @staticmethod
    def sized_for(trace: Trace, load: float = 0.8) -> "Machines":
        """Nodes with 8 GPUs, so many that the trace would keep such a part of them busy if its jobs came evenly, and
        enough for its largest. Real jobs come in waves: on some days many wait, on others nobody does."""
        seconds = trace.last_arrival - trace.starts
        busy = sum(trace.work_by_queue.values()) / seconds if seconds else 0.0
        largest = max(job.gpus for job in trace.jobs)
        return Machines(((max(ceil(busy / load / _NODE), ceil(largest / _NODE)), _NODE),))

    @cached_property
    def gpus(self) -> int:
        return sum(count * gpus for count, gpus in self.kinds)

    @cached_property
    def nodes(self) -> int:
        return sum(count for count, _ in self.kinds)

    def pods_for(self, gpus: int) -> tuple[int, int]:
        """How many pods with how many GPUs each: as few as fit on these nodes when nothing else runs. Raises
        BadRequest."""
        largest = max(size for _, size in self.kinds)
        for size in range(min(gpus, largest), 0, -1):
            if gpus % size == 0 and sum(count * (each // size) for count, each in self.kinds) * size >= gpus:
                return gpus // size, size
        raise errors.BadRequest(f"nodes: a job asks for {gpus} GPUs, and all nodes together have {self.gpus}")

    def by_name(self) -> dict[str, int]:
        """The GPUs of each node."""
        sizes = [gpus for count, gpus in self.kinds for _ in range(count)]
        return {f"node-{number:05}": gpus for number, gpus in enumerate(sizes)}

    def views(self) -> list[core.Node]:
        return [_node(name, gpus) for name, gpus in self.by_name().items()]


def _node(name: str, gpus: int) -> core.Node:
    return core.Node(
        metadata=ObjectMeta(name=name, labels={HOSTNAME: name}),
        status=core.NodeStatus(
            allocatable={GPU: str(gpus), "pods": _MOST_PODS}, conditions=(Condition(type="Ready", status="True"),)
        ),
    )
