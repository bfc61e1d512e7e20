"""SchedulingGates: a pod with scheduling gates does not enter the queue until all have been taken away."""

from collections.abc import Sequence
from typing import ClassVar

from muster.api import core
from muster.api.meta import Resource
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import SUCCESS, Action, Code, Hint, PreEnqueue, Status, Wake, Wakes
from muster.placement.plugins import changes


class SchedulingGates:
    name: ClassVar[str] = "SchedulingGates"

    def pre_enqueue(self, pod: PodInfo) -> Status:
        gates = pod.spec.scheduling_gates
        if not gates:
            return SUCCESS
        named = " ".join(gate.name for gate in gates)
        return Status(Code.UNRESOLVABLE, (f"waiting for scheduling gates: [{named}]",))

    def wakes(self) -> Sequence[Wake]:
        return (Wake("UnscheduledPod", frozenset({Action.UPDATE_POD_GATES_ELIMINATED}), after_gates_eliminated),)


def after_gates_eliminated(_pod: PodInfo, old: Resource | None, new: Resource | None, _cluster: ClusterState) -> Hint:
    _, pod = changes.after(core.Pod, old, new)
    return Hint.SKIP if pod.spec.scheduling_gates else Hint.QUEUE


_: PreEnqueue = SchedulingGates()
_wakes: Wakes = SchedulingGates()
