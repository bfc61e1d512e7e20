"""A Workload as the engine holds it: what it asks for or holds, in numbers, and what decides its place in the queue.

Read once from the object and then only asked; a changed object is read anew.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from muster.api import core, kueue, timestamps
from muster.api.meta import Condition, Instant
from muster.quota.amounts import FlavorResource, Requests, amounts, scaled
from muster.quota.gates import Gate
from muster.quota.marks import is_protected, never_preempts
from muster.quota.requests import quota_requests, topology_requests
from muster.quota.settings import Settings
from muster.quota.topology import DomainUsage, TopologyAssignment, from_view, usage_of

QUOTA_RESERVED: Final = "QuotaReserved"
ADMITTED: Final = "Admitted"
EVICTED: Final = "Evicted"
PREEMPTED: Final = "Preempted"
REQUEUED: Final = "Requeued"
FINISHED: Final = "Finished"
PODS_READY: Final = "PodsReady"
DEACTIVATION_TARGET: Final = "DeactivationTarget"
WAITING_FOR_REPLACEMENT: Final = "WaitingForReplacementPods"
BLOCKED_ON_GATES: Final = "BlockedOnPreemptionGates"
ON_HOLD: Final = "OnHold"
WAITING: Final = "Waiting"
"""Ours: why it waits, in full. Gone as soon as it does not."""

BOOST_ANNOTATION: Final = "kueue.x-k8s.io/priority-boost"
ADMISSION_GATES_ANNOTATION: Final = "kueue.x-k8s.io/admission-gated-by"
SLICE_OF_ANNOTATION: Final = "kueue.x-k8s.io/workload-slice-replacement-for"
ELASTIC_ANNOTATION: Final = "kueue.x-k8s.io/elastic-job"
ALLOWED_FLAVORS_ANNOTATION: Final = "kueue.x-k8s.io/workload-allowed-resource-flavors"
PART_OF_ANNOTATION: Final = "muster.dev/part-of"
QUEUED_SINCE: Final = "muster.dev/queued-since"
"""Instead of when it was made: who is moved in a queue is given another time to have come."""
JOB_UID_LABEL: Final = "kueue.x-k8s.io/job-uid"
_INT32: Final = 2**31
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")


Adjust: TypeAlias = Callable[[core.PodSpec], core.PodSpec]
"""What pods will be once they are made: a template does not say all that they will ask for."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a workload takes: quota, and room in topology domains, by flavor. One without topology has no
    domains, and ignores them."""

    quota: Mapping[FlavorResource, int] = field(default_factory=dict)
    topology: Mapping[str, tuple[DomainUsage, ...]] = field(default_factory=dict)


NO_USAGE: Final = Usage()


@dataclass(frozen=True, slots=True, eq=False)
class PodSetTotals:
    """A pod set with the pods that still count: those that are done ("reclaimable") are left out."""

    spec: kueue.PodSet
    count: int
    requests: Requests
    """Of all its pods together. As admitted where it is, else as asked for."""
    flavors: Mapping[str, str] = field(default_factory=dict)
    """By resource, where quota is reserved."""
    topology: TopologyAssignment | None = None
    delayed_topology: str | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    def for_count(self, count: int) -> dict[str, int]:
        """What so many of its pods ask for."""
        if count == self.count or not self.count:
            return dict(self.requests)
        return {resource: value // self.count * count for resource, value in self.requests.items()}

    def pod_requests(self) -> dict[str, int]:
        """Of one pod, as nodes feel it."""
        return topology_requests(self.spec.template.spec)


@dataclass(slots=True, eq=False)
class ScanPosition:
    """How far the flavors were tried when the workload was last looked at: [pod set] → resource → index, -1: to the
    end."""

    tried: list[dict[str, int]]
    generation: int = 0
    """Of the queue's room to admit, then."""
    cycle: int = 0
    shape: str = ""

    @property
    def has_untried(self) -> bool:
        return any(index != -1 for indexes in self.tried for index in indexes.values())


class Told:
    """What a workload's own conditions say of it."""

    __slots__ = ("conditions", "view")

    view: kueue.Workload
    conditions: Mapping[str, Condition]
    """By type."""

    def is_true(self, condition: str) -> bool:
        found = self.conditions.get(condition)
        return found is not None and found.status == "True"

    @property
    def is_active(self) -> bool:
        return self.view.spec.active is not False

    @property
    def has_reservation(self) -> bool:
        return self.is_true(QUOTA_RESERVED)

    @property
    def is_admitted(self) -> bool:
        return self.is_true(ADMITTED)

    @property
    def is_evicted(self) -> bool:
        return self.is_true(EVICTED)


class WorkloadInfo(Told):
    """`queue` is the ClusterQueue: of the reservation where there is one, else where it waits. `view` is the workload
    as stored; `pod_sets` have what its pods get besides."""

    __slots__ = (
        "_reserved_at",
        "_shape",
        "_usage",
        "base_priority",
        "beyond_limits",
        "created",
        "is_protected",
        "key",
        "local_queue",
        "local_queue_usage",
        "pod_sets",
        "priority",
        "queue",
        "queued_since",
        "rests_until",
        "scan",
        "was_seen",
    )

    def __init__(self, view: kueue.Workload, queue: str, settings: Settings, adjust: Adjust | None = None) -> None:
        self.view = view
        self.key = f"{view.metadata.namespace}/{view.metadata.name}"
        self.queue = queue
        self.local_queue = f"{view.metadata.namespace}/{view.spec.queue_name or ''}"
        self.conditions = {condition.type: condition for condition in view.status.conditions}
        self.base_priority = view.spec.priority or 0
        self.priority = self.base_priority + _boost(view, settings)
        self.is_protected = is_protected(view)
        """Others are not to take its place."""
        self.created = _instant(view.metadata.creation_timestamp)
        self.queued_since = self._queued_since(settings)
        self.rests_until = _rests_until(view)
        """When its rest ends; None where it has none, or one without end."""
        self.pod_sets = _pod_sets(view, settings, adjust)
        self.scan: ScanPosition | None = None
        self.was_seen = False
        """A cycle has looked at it."""
        self.local_queue_usage: float | None = None
        """Of its local queue, where past usage decides the order."""
        self.beyond_limits: str | None = None
        """Which of its containers ask for more than their own limits; None: nobody has looked."""
        self._reserved_at: Instant | None = None
        self._shape: str | None = None
        self._usage: Usage | None = None

    def __repr__(self) -> str:
        return f"WorkloadInfo({self.key})"

    def changed(
        self, view: kueue.Workload, queue: str, pod_sets: tuple[PodSetTotals, ...], settings: Settings
    ) -> "WorkloadInfo":
        """The same workload with another status: for less than reading it anew."""
        made = WorkloadInfo.__new__(WorkloadInfo)
        made.view, made.queue, made.pod_sets = view, queue, pod_sets
        made.key, made.local_queue = self.key, self.local_queue
        made.base_priority, made.priority, made.created = self.base_priority, self.priority, self.created
        made.local_queue_usage, made.beyond_limits = self.local_queue_usage, self.beyond_limits
        made.was_seen = self.was_seen
        made.is_protected = is_protected(view)  # a label may have changed, which is no other generation
        made.conditions = {condition.type: condition for condition in view.status.conditions}
        made.queued_since = made._queued_since(settings)
        made.rests_until = _rests_until(view)
        made.scan = made._reserved_at = None
        is_same = pod_sets is self.pod_sets
        made._shape, made._usage = (self._shape, self._usage) if is_same else (None, None)
        return made

    # State

    @property
    def uid(self) -> str:
        return self.view.metadata.uid

    @property
    def is_finished(self) -> bool:
        return self.is_true(FINISHED)

    @property
    def holds_quota(self) -> bool:
        return self.has_reservation and not self.is_finished and self.view.status.admission is not None

    @property
    def reserved_at(self) -> Instant | None:
        if self._reserved_at is None:
            found = self.conditions.get(QUOTA_RESERVED)
            if found is None or found.status != "True" or not found.last_transition_time:
                return None
            self._reserved_at = timestamps.parse(found.last_transition_time)
        return self._reserved_at

    def is_queueable(self, settings: Settings) -> bool:
        """It waits, and nothing but room keeps it from being looked at."""
        if self.is_finished or not self.is_active or self.has_reservation or self.is_true(WAITING_FOR_REPLACEMENT):
            return False
        reserved = self.conditions.get(QUOTA_RESERVED)
        if reserved is not None and reserved.status == "False" and reserved.reason == ON_HOLD:
            return False
        gates = (self.view.metadata.annotations or {}).get(ADMISSION_GATES_ANNOTATION)
        return not gates or Gate.ADMISSION_GATED_BY not in settings.gates

    @property
    def replaced_key(self) -> str | None:
        """The slice whose place this one takes when it is admitted."""
        return (self.view.metadata.annotations or {}).get(SLICE_OF_ANNOTATION)

    @property
    def is_elastic(self) -> bool:
        return (self.view.metadata.annotations or {}).get(ELASTIC_ANNOTATION) == "true"

    @property
    def is_part(self) -> bool:
        """Of an elastic job, whose base has its flavors already."""
        return PART_OF_ANNOTATION in (self.view.metadata.annotations or {})

    @property
    def allowed_flavors(self) -> frozenset[str] | None:
        text = (self.view.metadata.annotations or {}).get(ALLOWED_FLAVORS_ANNOTATION)
        return None if text is None else frozenset(part.strip() for part in text.split(","))

    def can_be_partial(self) -> bool:
        for pods in self.pod_sets:  # noqa: SIM110 - asked of everybody who waits, again and again
            if pods.spec.min_count is not None and pods.spec.min_count < pods.count:
                return True
        return False

    # What it takes

    @property
    def usage(self) -> Usage:
        """Of what it was given."""
        if self._usage is None:
            self._usage = _usage(self.pod_sets)
        return self._usage

    @property
    def shape(self) -> str:
        """Equal for workloads that fit, and wait, exactly alike."""
        if self._shape is None:
            self._shape = _shape(self)
        return self._shape

    @shape.setter
    def shape(self, value: str) -> None:
        self._shape = value

    # Order

    def _queued_since(self, settings: Settings) -> Instant:
        evicted = self.conditions.get(EVICTED)
        if evicted is not None and evicted.status == "True" and evicted.last_transition_time:
            by_timeout = evicted.reason == "PodsReadyTimeout" and settings.requeues_by_eviction_time
            if by_timeout or evicted.reason == "AdmissionCheck":
                return timestamps.parse(evicted.last_transition_time)
        if Gate.PRIORITY_SORTING_WITHIN_COHORT not in settings.gates:
            preempted = self.conditions.get(PREEMPTED)
            if (
                preempted is not None
                and preempted.status == "True"
                and preempted.reason == "InCohortReclaimWhileBorrowing"
                and preempted.last_transition_time
            ):
                return Instant(timestamps.parse(preempted.last_transition_time) + 0.001)
        said = (self.view.metadata.annotations or {}).get(QUEUED_SINCE)
        return self.created if said is None else _moved(said, self.created)


def queued_since(view: kueue.Workload) -> Instant:
    """When it came, or what somebody has set instead to move it in its queue."""
    created = _instant(view.metadata.creation_timestamp)
    said = (view.metadata.annotations or {}).get(QUEUED_SINCE)
    return created if said is None else _moved(said, created)


def _moved(said: str, created: Instant) -> Instant:
    """What makes no sense counts for nothing."""
    try:
        return timestamps.parse(said)
    except timestamps.BadTimestamp:
        return created


def _instant(text: str | None) -> Instant:
    """A time that is not said is older than any that is."""
    return timestamps.parse(text) if text else Instant(float("-inf"))


def _rests_until(view: kueue.Workload) -> Instant | None:
    state = view.status.requeue_state
    return timestamps.parse(state.requeue_at) if state is not None and state.requeue_at else None


def _boost(view: kueue.Workload, settings: Settings) -> int:
    if Gate.PRIORITY_BOOST not in settings.gates:
        return 0
    text = (view.metadata.annotations or {}).get(BOOST_ANNOTATION, "")
    boost = int(text) if _INTEGER.fullmatch(text) else 0
    return boost if -_INT32 <= boost < _INT32 else 0


def _pod_sets(view: kueue.Workload, settings: Settings, adjust: Adjust | None) -> tuple[PodSetTotals, ...]:
    listed = view.spec.pod_sets if adjust is None else tuple(_adjusted(pods, adjust) for pods in view.spec.pod_sets)
    done: dict[str, int] = {}
    if Gate.RECLAIMABLE_PODS in settings.gates:
        done = {pods.name: pods.count or 0 for pods in view.status.reclaimable_pods}
    admission = view.status.admission
    if admission is None or not _is_reserved(view):
        return tuple(_asked(pods, done.get(pods.name, 0), settings) for pods in listed)
    given = {assignment.name: assignment for assignment in admission.pod_set_assignments}
    return tuple(_given(pods, given.get(pods.name), done.get(pods.name, 0), settings) for pods in listed)


def _adjusted(pods: kueue.PodSet, adjust: Adjust) -> kueue.PodSet:
    spec = adjust(pods.template.spec)
    if spec is pods.template.spec:
        return pods
    return msgspec.structs.replace(pods, template=msgspec.structs.replace(pods.template, spec=spec))


def _is_reserved(view: kueue.Workload) -> bool:
    return any(found.type == QUOTA_RESERVED and found.status == "True" for found in view.status.conditions)


def _asked(pods: kueue.PodSet, done: int, settings: Settings) -> PodSetTotals:
    count = max(0, (1 if pods.count is None else pods.count) - done)
    return PodSetTotals(pods, count, scaled(quota_requests(pods.template.spec, settings), count))


def _given(
    pods: kueue.PodSet, assignment: kueue.PodSetAssignment | None, done: int, settings: Settings
) -> PodSetTotals:
    if assignment is None:
        return _asked(pods, done, settings)
    whole = 1 if pods.count is None else pods.count
    admitted = whole if assignment.count is None else assignment.count
    count = min(admitted, max(0, whole - done))
    requests = amounts(assignment.resource_usage)
    if count != admitted and admitted:
        requests = {resource: value // admitted * count for resource, value in requests.items()}
    topology = assignment.topology_assignment
    return PodSetTotals(
        pods,
        count,
        requests,
        assignment.flavors or {},
        from_view(topology) if topology is not None else None,
        assignment.delayed_topology_request,
    )


def _usage(pod_sets: tuple[PodSetTotals, ...]) -> Usage:
    quota: dict[FlavorResource, int] = {}
    topology: dict[str, tuple[DomainUsage, ...]] = {}
    for pods in pod_sets:
        for resource, value in pods.requests.items():
            flavor = pods.flavors.get(resource)
            if flavor is not None:
                what = FlavorResource(flavor, resource)
                quota[what] = quota.get(what, 0) + value
        if pods.topology is not None:
            # All its flavors are told: the one that has a topology counts it, the others have nowhere to.
            taken = usage_of(pods.topology, pods.pod_requests())
            for flavor in dict.fromkeys(pods.flavors.values()):
                topology[flavor] = (*topology.get(flavor, ()), *taken)
    return Usage(quota, topology)


def _shape(info: WorkloadInfo) -> str:
    parts = [
        (
            pods.name,
            pods.count,
            pods.spec.min_count,
            sorted(pods.requests.items()),
            pods.spec.topology_request,
            _scheduling_shape(pods.spec),
        )
        for pods in info.pod_sets
    ]
    told: list[object] = [info.priority, parts]
    if never_preempts(info.view):
        told.append(True)
    if info.is_part:
        told.append(sorted(info.allowed_flavors or ()))
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:16]


def _scheduling_shape(pods: kueue.PodSet) -> tuple[object, ...]:
    spec = pods.template.spec
    return (
        spec.node_selector,
        spec.affinity,
        spec.tolerations,
        spec.runtime_class_name,
        spec.topology_spread_constraints,
    )
