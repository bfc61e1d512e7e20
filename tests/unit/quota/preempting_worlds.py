"""Small clusters of queues for tests of preemption: made by hand, or at random."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import strategies as st

from muster.api import kueue, timestamps
from muster.api.meta import Instant
from muster.quota.amounts import FlavorResource
from muster.quota.assignments import Assignment, FlavorChoice, Mode, PodSetAssignment
from muster.quota.settings import FairSharing, Settings, ShareRule
from muster.quota.state import QuotaState
from muster.quota.workloads import WorkloadInfo

NOW = Instant(1_000_000.0)
FLAVOR = "default"
GPU = FlavorResource(FLAVOR, "gpu")


def a_state(settings: Settings | None = None) -> QuotaState:
    state = QuotaState(settings or Settings())
    state.set_flavor(msgspec.convert({"metadata": {"name": FLAVOR}, "spec": {}}, kueue.ResourceFlavor))
    return state


def put_queue(
    state: QuotaState,
    name: str,
    cohort: str = "",
    quotas: Mapping[str, Mapping[str, int]] | None = None,
    preemption: Mapping[str, Any] | None = None,
    weight: int = 1,
) -> None:
    """`quotas`: by resource, `nominalQuota` and the limits."""
    spec = {
        "cohortName": cohort or None,
        "resourceGroups": _groups(quotas or {}),
        "preemption": preemption or {},
        "fairSharing": {"weight": str(weight)},
    }
    state.set_queue(msgspec.convert({"metadata": {"name": name}, "spec": spec}, kueue.ClusterQueue))


def put_cohort(
    state: QuotaState,
    name: str,
    parent: str = "",
    quotas: Mapping[str, Mapping[str, int]] | None = None,
    weight: int = 1,
) -> None:
    spec = {
        "parentName": parent or None,
        "resourceGroups": _groups(quotas or {}),
        "fairSharing": {"weight": str(weight)},
    }
    state.set_cohort(msgspec.convert({"metadata": {"name": name}, "spec": spec}, kueue.Cohort))


def _groups(quotas: Mapping[str, Mapping[str, int]]) -> list[dict[str, Any]]:
    if not quotas:
        return []
    resources = [{"name": name, **{key: str(value) for key, value in quota.items()}} for name, quota in quotas.items()]
    return [{"coveredResources": list(quotas), "flavors": [{"name": FLAVOR, "resources": resources}]}]


def a_workload(
    name: str, settings: Settings, *, requests: Mapping[str, int], priority: int = 0, created: float = 0.0
) -> WorkloadInfo:
    return WorkloadInfo(_view(name, requests, priority, created), "", settings)


def a_holder(
    name: str,
    queue: str,
    settings: Settings,
    *,
    requests: Mapping[str, int],
    priority: int = 0,
    reserved: float = 0.0,
    created: float = 0.0,
    is_evicted: bool = False,
) -> WorkloadInfo:
    view = _view(name, requests, priority, created)
    conditions = [_condition("QuotaReserved", reserved)]
    if is_evicted:
        conditions.append(_condition("Evicted", reserved))
    usage = {resource: str(value) for resource, value in requests.items()}
    status = {
        "admission": {
            "clusterQueue": queue,
            "podSetAssignments": [
                {"name": "main", "count": 1, "flavors": dict.fromkeys(requests, FLAVOR), "resourceUsage": usage}
            ],
        },
        "conditions": conditions,
    }
    held = msgspec.structs.replace(view, status=msgspec.convert(status, kueue.WorkloadStatus))
    return WorkloadInfo(held, queue, settings)


def _view(name: str, requests: Mapping[str, int], priority: int, created: float) -> kueue.Workload:
    container = {"name": "c", "resources": {"requests": {key: str(value) for key, value in requests.items()}}}
    pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": f"uid-{name}",
                "creationTimestamp": timestamps.to_text(Instant(created)),
            },
            "spec": {"podSets": [pods], "priority": priority},
        },
        kueue.Workload,
    )


def _condition(type: str, since: float) -> dict[str, str]:
    return {
        "type": type,
        "status": "True",
        "reason": "Test",
        "message": "",
        "lastTransitionTime": timestamps.to_text(Instant(since)),
    }


def an_assignment(info: WorkloadInfo, needing: Iterable[FlavorResource]) -> Assignment:
    missing = set(needing)
    flavors = {
        resource: FlavorChoice(FLAVOR, Mode.PREEMPT if FlavorResource(FLAVOR, resource) in missing else Mode.FIT)
        for resource in info.pod_sets[0].requests
    }
    return Assignment([PodSetAssignment("main", 1, info.pod_sets[0].requests, flavors, ["too little"])])


def columns(state: QuotaState) -> object:
    """All that a trial could leave changed."""
    nodes = (*state.tree.queues.values(), *state.tree.cohorts.values())
    usage = {(node.is_queue, node.name): {what: used for what, used in node.usage.items() if used} for node in nodes}
    return usage, {name: dict(queue.workloads) for name, queue in state.queues.items()}, dict(state.holders)


# At random


@dataclass(frozen=True, slots=True)
class World:
    state: QuotaState
    preemptor: WorkloadInfo
    queue: str
    needing: frozenset[FlavorResource]

    @property
    def assignment(self) -> Assignment:
        return an_assignment(self.preemptor, self.needing)


_limits = st.sampled_from([None, None, None, 0, 1, 3, 6])
_quota = st.builds(
    lambda nominal, borrowing, lending: {
        key: value
        for key, value in (("nominalQuota", nominal), ("borrowingLimit", borrowing), ("lendingLimit", lending))
        if value is not None
    },
    st.integers(0, 8),
    _limits,
    _limits,
)
_quotas = st.fixed_dictionaries({"gpu": _quota, "disk": _quota})
_thresholds = st.fixed_dictionaries(
    {"policy": st.sampled_from(["Never", "LowerPriority"])}, optional={"maxPriorityThreshold": st.integers(-1, 1)}
)
_policies = st.fixed_dictionaries(
    {
        "withinClusterQueue": st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        "reclaimWithinCohort": st.sampled_from(["Never", "LowerPriority", "Any", "Any"]),
    },
    optional={"borrowWithinCohort": _thresholds},
)
_requests = st.fixed_dictionaries({"gpu": st.integers(1, 4)}, optional={"disk": st.integers(0, 2)})
_times = st.integers(0, 3).map(lambda number: float(number * 10))


@st.composite
def worlds(draw: Callable, *, is_fair: bool) -> World:
    rules = draw(st.sampled_from([(), (ShareRule.FINAL,), (ShareRule.INITIAL,), (ShareRule.FINAL, ShareRule.INITIAL)]))
    settings = Settings(fair_sharing=FairSharing(rules) if is_fair else None)
    state = a_state(settings)
    cohorts = [f"c{number}" for number in range(draw(st.integers(0, 4)))]
    weights = st.sampled_from([0, 1, 1, 2])
    for number, name in enumerate(cohorts):
        parent = draw(st.sampled_from(cohorts[:number] or [""]))
        put_cohort(state, name, parent, draw(st.just({}) | _quotas), draw(weights))
    queues = [f"q{number}" for number in range(draw(st.integers(1, 5)))]
    for name in queues:
        put_queue(state, name, draw(st.sampled_from(cohorts or [""])), draw(_quotas), draw(_policies), draw(weights))
    state.settle()
    for number in range(draw(st.integers(2, 14))):
        state.add(draw(_holders(f"w{number}", queues, settings)))
    requests, priority = draw(_requests), draw(st.sampled_from([0, 1, 2, 3]))
    preemptor = a_workload("new", settings, requests=requests, priority=priority, created=draw(_times))
    queue = draw(st.sampled_from(queues))
    return World(state, preemptor, queue, _lacking(state, queue, requests) or frozenset([GPU]))


@st.composite
def _holders(draw: Callable, name: str, queues: list[str], settings: Settings) -> WorkloadInfo:
    return a_holder(
        name,
        draw(st.sampled_from(queues)),
        settings,
        requests=draw(_requests),
        priority=draw(st.integers(-1, 2)),
        reserved=draw(_times),
        created=draw(_times),
        is_evicted=draw(st.sampled_from([False, False, True])),
    )


def _lacking(state: QuotaState, queue: str, requests: Mapping[str, int]) -> frozenset[FlavorResource]:
    node = state.queues[queue].node
    whats = {FlavorResource(FLAVOR, resource): value for resource, value in requests.items()}
    return frozenset(what for what, value in whats.items() if value > max(0, node.available(what)))
