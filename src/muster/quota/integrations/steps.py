"""What may be done about a job and its workloads. A plan is a few steps; what they lead to is looked at again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from muster.api import kueue
from muster.api.meta import Instant
from muster.api.objects import Object
from muster.api.raw import Document
from muster.quota.integrations.contract import PodSetInfo
from muster.quota.integrations.ranking import Classes
from muster.quota.settings import Settings


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """What a decision may ask for beyond the job and its workloads."""

    now: Instant
    settings: Settings = field(default_factory=Settings)
    classes: Classes = field(default_factory=Classes)
    flavors: Mapping[str, kueue.ResourceFlavor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class MakeWorkload:
    document: Document


@dataclass(frozen=True, slots=True, eq=False)
class ChangeWorkload:
    """Its metadata and spec become those of `made`."""

    found: Object
    made: Document


@dataclass(frozen=True, slots=True, eq=False)
class ChangeStatus:
    found: Object
    made: Document


@dataclass(frozen=True, slots=True, eq=False)
class LetGo:
    """Nothing here keeps the workload any longer from being deleted."""

    found: Object


@dataclass(frozen=True, slots=True, eq=False)
class RemoveWorkload:
    found: Object


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """The job runs from now on, with what is given. One that runs already is only told its size."""

    found: Object
    """The workload that was admitted."""
    infos: Sequence[PodSetInfo]
    message: str
    sizes: Mapping[str, int] | None = None
    """Of an elastic job: how many pods of each set it may have."""


@dataclass(frozen=True, slots=True, eq=False)
class Stop:
    originals: Sequence[Document] = ()
    """Its pod sets as its workload remembers them; none where it has no workload."""
    message: str = ""
    is_pause: bool = False
    """It was its user who suspended it: quota will not start it."""


Step: TypeAlias = MakeWorkload | ChangeWorkload | ChangeStatus | LetGo | RemoveWorkload | Start | Stop


@dataclass(frozen=True, slots=True)
class Told:
    """An event about the job."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    steps: tuple[Step, ...] = ()
    told: tuple[Told, ...] = ()
    """Once the steps are taken."""
    again_after: float | None = None


NOTHING: Final = Plan()
