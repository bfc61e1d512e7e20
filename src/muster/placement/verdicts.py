"""What placing found out, as values: where each pod goes, or why it cannot go anywhere.

A refusal is counted per node, worded as kube-scheduler words it, so that people and tools which read
its events read these as well; the same facts are there as fields.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from muster.placement.requests import Gang, PodRequest


class Obstacle(StrEnum):
    CORDONED = "NodeUnschedulable"
    NOT_READY = "NodeNotReady"
    TAINT = "UntoleratedTaint"
    SELECTOR = "NodeSelectorMismatch"
    RESOURCE = "InsufficientResource"
    POD_COUNT = "TooManyPods"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why `nodes` nodes do not take the pod. A node that lacks two resources counts under both."""

    obstacle: Obstacle
    nodes: int
    subject: str = ""
    """The resource, or the taint as `{key: value}`."""
    wanted: int = 0
    most_free: int = 0
    """For a resource, in its own units: the most that any otherwise possible node has left."""

    def __str__(self) -> str:
        match self.obstacle:
            case Obstacle.CORDONED:
                return f"{self.nodes} node(s) were unschedulable"
            case Obstacle.NOT_READY:
                return f"{self.nodes} node(s) were not ready"
            case Obstacle.TAINT:
                return f"{self.nodes} node(s) had untolerated taint {self.subject}"
            case Obstacle.SELECTOR:
                return f"{self.nodes} node(s) didn't match Pod's node affinity/selector"
            case Obstacle.RESOURCE:
                return f"{self.nodes} Insufficient {self.subject}"
            case Obstacle.POD_COUNT:
                return f"{self.nodes} Too many pods"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a pod of one shape fits on no node."""

    nodes: int
    reasons: Sequence[Reason]
    beyond_every_node: Sequence[str] = ()
    """Resources of which the pod wants more than any node has, even when empty: waiting will not help."""

    @property
    def message(self) -> str:
        if not self.nodes:
            return "no nodes available to schedule pods"
        listed = ", ".join(sorted(map(str, self.reasons)))
        text = f"0/{self.nodes} nodes are available: {listed}."
        if self.beyond_every_node:
            text += f" No node has that much {', '.join(self.beyond_every_node)}, even when empty."
        return text


@dataclass(frozen=True, slots=True)
class Placed:
    """The gang goes: each assigned pod with its node. `left_out` are members beyond the minimum that did not fit."""

    gang: Gang
    assigned: Sequence[tuple[PodRequest, str]]
    left_out: Sequence[tuple[PodRequest, Refusal]] = ()


@dataclass(frozen=True, slots=True)
class Unplaceable:
    """The gang stays whole and waits. `placeable` of the pods it misses would have fitted."""

    gang: Gang
    placeable: int
    refusal: Refusal

    @property
    def message(self) -> str:
        if self.gang.min_member <= 1:
            return self.refusal.message
        return (
            f"{self.placeable} of the {self.gang.missing} pods that must start together can be placed: "
            f"{self.refusal.message}"
        )


Verdict: TypeAlias = Placed | Unplaceable
