"""What is to be placed: pods by their shape, and gangs of them."""

from dataclasses import dataclass

from muster.api import core
from muster.api.objects import Key
from muster.cluster import needs_of


@dataclass(frozen=True, slots=True)
class PodShape:
    """Everything about a pod that decides where it fits. Pods of equal shape are placed in one pass."""

    needs: tuple[tuple[str, int], ...]
    """Resource and amount, both in the cluster's units; nothing that is zero."""
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[core.Toleration, ...] = ()

    @classmethod
    def of(cls, spec: core.PodSpec) -> "PodShape":
        return cls(
            needs=tuple(sorted((name, amount) for name, amount in needs_of(spec).items() if amount > 0)),
            node_selector=tuple(sorted((spec.node_selector or {}).items())),
            tolerations=spec.tolerations,
        )


@dataclass(frozen=True, slots=True)
class PodRequest:
    key: Key
    uid: str
    shape: PodShape


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods of which at least `min_member` start together or none does. A pod on its own is a gang of one.

    `bound`: members that have a node already and count towards `min_member`.
    """

    name: str
    pods: tuple[PodRequest, ...]
    min_member: int = 1
    bound: int = 0

    def __post_init__(self) -> None:
        if len(self.pods) < max(1, self.missing):
            raise ValueError(f"gang {self.name} misses {self.missing} pods and has {len(self.pods)}: let it wait")

    @property
    def missing(self) -> int:
        """How many of `pods` must be placed for the gang to go."""
        return max(0, self.min_member - self.bound)
