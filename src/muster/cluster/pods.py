"""A pod as the engines see it: what tells it from others, and the class of pods that are placed alike.

Everything that is costly to read from a pod is read once for its class. A `PodInfo` keeps no view: fifty
thousand of them must stay small.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.api import core, quantity, raw, timestamps
from muster.api.core.requests import amounts, combine, is_sidecar, requests_of
from muster.api.meta import Instant, OwnerReference
from muster.api.objects import Key
from muster.cluster.amounts import needs_of

GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
NO_LABELS: Mapping[str, str] = {}
NO_NEEDS: Mapping[str, int] = {}
_LONG_AGO = Instant(0.0)
_UNSAID_CPU_MILLI = 100
_UNSAID_MEMORY_BYTES = 200 * 1024 * 1024


class Controller(NamedTuple):
    """The object that made a pod and whose selector tells the pods it has made."""

    api_version: str
    kind: str
    name: str


_SELECTING = {("v1", "ReplicationController"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet")}


@dataclass(frozen=True, slots=True, eq=False)
class PodShape:
    """All of a pod's spec that decides where it may go, for every pod that has the same. Compared by identity: there is
    one object for each shape (see `Shapes`)."""

    spec: core.PodSpec
    """Of the first pod seen. Plugins may read whatever `identity` covers, and nothing else."""
    needs: Mapping[str, int]
    """Requests in the columns' units, with `pods: 1`."""
    nonzero: tuple[int, int]
    """Milli CPU and bytes of memory as scores count them: a container that asks for none counts as using some."""
    scratch: dict[str, object] = field(default_factory=dict)
    """What plugins derived from the spec, by plugin name: parsed once for all pods of the shape."""


@dataclass(frozen=True, slots=True, eq=False)
class PodInfo:
    key: Key
    uid: str
    labels: Mapping[str, str]
    shape: PodShape
    priority: int = 0
    created: Instant = _LONG_AGO
    started: Instant | None = None
    """`status.startTime`: the victim that started last has the least to lose."""
    group: Key | None = None
    """The PodGroup it is a member of."""
    controller: Controller | None = None
    """Its controller, where that is of a kind by whose selector pods are spread by default."""
    nominated: str = ""
    is_terminating: bool = False
    is_preempted: bool = False
    """It is terminating because a scheduler evicted it: room that somebody waits for."""
    has_deferred_resize: bool = False
    needs: Mapping[str, int] = field(default_factory=lambda: NO_NEEDS)
    """What it takes of its node: its shape's, unless its status says that a resize is under way."""
    nonzero: tuple[int, int] = (0, 0)

    @property
    def namespace(self) -> str:
        return self.key.namespace

    @property
    def spec(self) -> core.PodSpec:
        return self.shape.spec


class Shapes:
    """Interns shapes: pods whose specs agree in everything that matters get the same object."""

    def __init__(self) -> None:
        self._known: dict[bytes, PodShape] = {}

    def info(self, pod: core.Pod) -> PodInfo:
        meta, status = pod.metadata, pod.status
        group = (meta.annotations or NO_LABELS).get(GROUP_ANNOTATION)
        shape = self.shape(pod.spec)
        return PodInfo(
            key=Key(meta.namespace, meta.name),
            uid=meta.uid or f"{meta.namespace}/{meta.name}",
            labels=meta.labels or NO_LABELS,
            shape=shape,
            needs=shape.needs,
            nonzero=shape.nonzero,
            priority=pod.spec.priority or 0,
            created=timestamps.parse(meta.creation_timestamp) if meta.creation_timestamp else _LONG_AGO,
            started=timestamps.parse(status.start_time) if status.start_time else None,
            group=Key(meta.namespace, group) if group else None,
            controller=_controller(meta.owner_references),
            nominated=status.nominated_node_name or "",
            is_terminating=meta.deletion_timestamp is not None,
            is_preempted=meta.deletion_timestamp is not None and _is_preempted(status),
            has_deferred_resize=any(c.type == "PodResizePending" and c.reason == "Deferred" for c in status.conditions),
        )

    def shape(self, spec: core.PodSpec) -> PodShape:
        key = identity(spec)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = PodShape(spec, needs_of(spec), nonzero_needs(spec))
        return found


def _is_preempted(status: core.PodStatus) -> bool:
    target = next((found for found in status.conditions if found.type == "DisruptionTarget"), None)
    return target is not None and target.status == "True" and target.reason == "PreemptionByScheduler"


def _controller(owners: Sequence[OwnerReference]) -> Controller | None:
    for owner in owners:
        if owner.controller and (owner.api_version, owner.kind) in _SELECTING:
            return Controller(owner.api_version, owner.kind, owner.name)
    return None


def nonzero_needs(spec: core.PodSpec) -> tuple[int, int]:
    """As `PodShape.nonzero`: without it, a node full of pods that ask for nothing would look empty."""
    unsaid = {"cpu": quantity.from_milli(_UNSAID_CPU_MILLI), "memory": quantity.from_units(_UNSAID_MEMORY_BYTES)}
    total = combine(
        (unsaid | requests_of(container.resources) for container in spec.containers),
        ((is_sidecar(container), unsaid | requests_of(container.resources)) for container in spec.init_containers),
    )
    overhead = amounts(spec.overhead)
    cpu = total.get("cpu", quantity.ZERO) + overhead.get("cpu", quantity.ZERO)
    memory = total.get("memory", quantity.ZERO) + overhead.get("memory", quantity.ZERO)
    return cpu.milli, memory.units


def identity(spec: core.PodSpec) -> bytes:
    """What two specs must share to be placed alike: all that any plugin reads of them. Bytes, because a specification
    is made of mappings, which have no hash; pods from one template spell it alike."""
    return raw.encode(
        (
            spec.node_name,
            spec.scheduler_name,
            spec.priority,
            spec.preemption_policy,
            spec.node_selector,
            spec.tolerations,
            spec.topology_spread_constraints,
            spec.scheduling_gates,
            spec.affinity,
            spec.overhead,
            spec.resources,
            [(c.image, c.ports, c.resources) for c in spec.containers],
            [(c.image, c.ports, c.resources, c.restart_policy) for c in spec.init_containers],
        )
    )
