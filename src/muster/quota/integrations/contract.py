"""The one interface that turns a kind of job into a Workload and back.

Pure: documents in, documents out. `start` and `stop` answer with the whole job as it should be; the shell writes the
difference. A kind of job needs nothing more in order to queue, be preempted, be placed by topology and give back quota.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from muster.api.kinds import Kind
from muster.api.kueue.names import (
    ADMISSION_GATE,
    ELASTIC_GATE,
    MAX_TIME_LABEL,
    POD_SET_LABEL,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
)
from muster.api.raw import Document

__all__ = [
    "ADMISSION_GATE",
    "ELASTIC_GATE",
    "MAX_TIME_LABEL",
    "POD_SET_LABEL",
    "PRIORITY_CLASS_LABEL",
    "QUEUE_LABEL",
    "TOPOLOGY_GATE",
    "WORKLOAD_ANNOTATION",
    "Conflicting",
    "Elastic",
    "JobIntegration",
    "NamesPriorityClass",
    "NamesQueue",
    "Outcome",
    "Pausable",
    "PodSetInfo",
]


class Conflicting(ValueError):
    """What was given cannot be put into the job: it says something else there already. Trying again will not help."""


@dataclass(frozen=True, slots=True)
class PodSetInfo:
    """What admission adds to the pods of one pod set."""

    name: str
    count: int
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Document] = ()
    scheduling_gates: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    succeeded: bool
    message: str


class JobIntegration(Protocol):
    @property
    def kind(self) -> Kind: ...

    def is_suspended(self, job: Document) -> bool: ...

    def pod_sets(self, job: Document) -> list[Document]:
        """`spec.podSets` of the Workload, topology requests included."""
        ...

    def outcome(self, job: Document) -> Outcome | None:
        """None while it is not over."""
        ...

    def is_active(self, job: Document) -> bool:
        """Whether any of its pods still holds resources, or may yet be made."""
        ...

    def pods_ready(self, job: Document) -> bool:
        """Whether as many pods as it needs are ready, or done."""
        ...

    def reclaimable(self, job: Document) -> Mapping[str, int]:
        """By pod set, pods that are done and will not be replaced."""
        ...

    def start(self, job: Document, infos: Sequence[PodSetInfo]) -> Document:
        """The job, running, with what admission gave its pods. Raises Conflicting."""
        ...

    def stop(self, job: Document, originals: Sequence[Document]) -> Document:
        """The job, suspended, with its pod templates as the Workload's pod sets remember them. Where that cannot be
        done at once, the next step towards it: it is asked again until nothing is left to change. Without originals,
        only suspended."""
        ...


@runtime_checkable
class NamesPriorityClass(Protocol):
    """A kind of job that says itself which class of pods it is of, whatever its templates say."""

    def priority_class(self, job: Document) -> str:
        """Empty where this one does not."""
        ...


@runtime_checkable
class NamesQueue(Protocol):
    """A kind of job that has a queue of its own, also where no label names one."""

    def queue(self, job: Document) -> str:
        """The LocalQueue."""
        ...


@runtime_checkable
class Pausable(Protocol):
    """A kind of job that its user can pause otherwise than by suspending it."""

    def is_paused(self, job: Document) -> bool:
        """It holds no quota until it is resumed, and queues then."""
        ...


@runtime_checkable
class Elastic(Protocol):
    """A kind of job that may run with fewer pods than it wants. Its pod sets say how few; further pods come and go one
    by one, with quota. Its size may be edited while it runs."""

    def parts(self, job: Document) -> Mapping[str, int]:
        """By pod set, how many pods it wants beyond those that it needs. Empty: this one is not elastic."""
        ...

    def sizes(self, job: Document) -> Mapping[str, int] | None:
        """As last told by `resize`; None: it was not told, and has all the pods that it wants."""
        ...

    def live(self, job: Document) -> Mapping[str, int]:
        """By pod set, pods that hold resources, and those that may yet be made before it has heard of its size."""
        ...

    def resize(self, job: Document, counts: Mapping[str, int]) -> Document:
        """The job, told how many pods of each set may live at a time; those that have ended do not count."""
        ...
