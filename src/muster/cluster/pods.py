"""A pod as the engines see it: what tells it from others, and the class of pods that are placed alike.

Everything that is costly to read from a pod is read once for its class. A `PodInfo` keeps no view: fifty
thousand of them must stay small.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.api import core, raw, timestamps
from muster.api.meta import Instant, OwnerReference
from muster.api.muster.names import QUEUE_PRIORITY
from muster.api.objects import Key
from muster.cluster.amounts import GPU_MILLI, WHOLE_GPU, needs_of, nonzero_needs
from muster.cluster.resizing import held_by, is_deferred

GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
DEVICES_ANNOTATION = "muster.dev/gpu-devices"
"""Which of its node's GPUs a pod has, as `devices.format_holdings` writes it."""
NO_LABELS: Mapping[str, str] = {}
NO_NEEDS: Mapping[str, int] = {}
_LONG_AGO = Instant(0.0)


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
    claims: tuple[Key, ...] = ()
    """The claims to storage that it uses."""
    gpu_share: str = ""
    """Text of the annotation that asks for a share of a GPU. Only a good one is part of `needs`."""
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
    devices: str = ""
    """Text of the annotation that says which GPUs of its node it has."""
    queue_priority: int = 0
    """Among those of its priority: the higher goes first."""

    def counts_as(self, other: "PodInfo") -> bool:
        """Whether the other is the same pod, and nothing that any index reads has changed: most updates are reports."""
        return (
            self.needs == other.needs
            and self.labels == other.labels
            and self.priority == other.priority
            and self.started == other.started
            and self.is_terminating == other.is_terminating
            and self.is_preempted == other.is_preempted
            and self.has_deferred_resize == other.has_deferred_resize
            and self.devices == other.devices
            and self.shape.spec.affinity == other.shape.spec.affinity
        )

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
        annotations = meta.annotations or NO_LABELS
        group = annotations.get(GROUP_ANNOTATION)
        claims = tuple(Key(meta.namespace, name) for name in core.claims_of(pod.spec))
        shape = self.shape(pod.spec, annotations.get(GPU_MILLI, ""), claims)
        held = held_by(pod)
        if held is not None and GPU_MILLI in shape.needs:
            held = held._replace(needs={GPU_MILLI: shape.needs[GPU_MILLI], **held.needs})
        return PodInfo(
            key=Key(meta.namespace, meta.name),
            uid=meta.uid or f"{meta.namespace}/{meta.name}",
            labels=meta.labels or NO_LABELS,
            shape=shape,
            needs=held.needs if held else shape.needs,
            nonzero=held.nonzero if held else shape.nonzero,
            priority=pod.spec.priority or 0,
            created=timestamps.parse(meta.creation_timestamp) if meta.creation_timestamp else _LONG_AGO,
            started=timestamps.parse(status.start_time) if status.start_time else None,
            group=Key(meta.namespace, group) if group else None,
            controller=_controller(meta.owner_references),
            nominated=status.nominated_node_name or "",
            is_terminating=meta.deletion_timestamp is not None,
            is_preempted=meta.deletion_timestamp is not None and _is_preempted(status),
            has_deferred_resize=is_deferred(pod),
            devices=annotations.get(DEVICES_ANNOTATION, ""),
            queue_priority=_queue_priority(annotations.get(QUEUE_PRIORITY)),
        )

    def shape(self, spec: core.PodSpec, gpu_share: str = "", claims: tuple[Key, ...] = ()) -> PodShape:
        key = identity(spec) + gpu_share.encode()
        if claims:
            key += raw.encode(claims)
        found = self._known.get(key)
        if found is None:
            needs = needs_of(spec)
            share = read_share(gpu_share)
            if share is not None:
                needs.setdefault(GPU_MILLI, share)
            found = self._known[key] = PodShape(spec, needs, nonzero_needs(spec), claims, gpu_share)
        return found


def read_share(text: str) -> int | None:
    """The thousandths of one GPU that an annotation asks for; None where it makes no sense."""
    share = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(WHOLE_GPU)) else 0
    return share if 0 < share <= WHOLE_GPU else None


def _queue_priority(text: str | None) -> int:
    """0 for what is no such number: an annotation is anybody's to write."""
    digits = (text or "").removeprefix("-")
    return int(text or 0) if digits.isascii() and digits.isdigit() and len(digits) <= 2 else 0


def _is_preempted(status: core.PodStatus) -> bool:
    target = next((found for found in status.conditions if found.type == "DisruptionTarget"), None)
    return target is not None and target.status == "True" and target.reason == "PreemptionByScheduler"


def _controller(owners: Sequence[OwnerReference]) -> Controller | None:
    for owner in owners:
        if owner.controller and (owner.api_version, owner.kind) in _SELECTING:
            return Controller(owner.api_version, owner.kind, owner.name)
    return None


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
            [volume.image for volume in spec.volumes if volume.image is not None],
        )
    )
