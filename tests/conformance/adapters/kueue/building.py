"""From a case's documents to our settings, state and views (FORMAT.md §1 to §4)."""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, TypeVar

import msgspec

from muster.api import core, kueue, quantity
from muster.cluster.state import ClusterState
from muster.quota.amounts import FlavorResource, amount
from muster.quota.gates import Gates
from muster.quota.settings import AdmissionFairSharing, FairSharing, Settings, ShareRule, Transformation
from muster.quota.state import QuotaState
from muster.quota.workloads import WorkloadInfo
from tests.conformance.adapters.kube.building import assign, without_nulls
from tests.conformance.cases import Case

V = TypeVar("V", bound=msgspec.Struct)

_DURATION = re.compile(r"([0-9.]+)(h|ms|m|us|µs|ns|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def view(kind: type[V], document: Mapping[str, Any]) -> V:
    """A typed view of a case's object, or of a part of one."""
    return msgspec.convert(without_nulls(dict(document)), kind)


def views(kind: type[V], documents: Iterable[Mapping[str, Any]] | None) -> list[V]:
    return [view(kind, document) for document in documents or ()]


# Settings


def gates(case: Case) -> Gates:
    scenarios = case.get("scenarios") or [{}]
    chosen = scenarios[case.get("defaultScenario") or 0]
    return Gates.default().changed(chosen.get("effectiveOverrides") or {})


def settings(case: Case) -> Settings:
    inputs = case["inputs"]
    sharing = None
    if inputs.get("enableFairSharing"):
        rules = tuple(ShareRule(name) for name in inputs.get("strategies") or ())
        sharing = FairSharing(rules) if rules else FairSharing()
    ordering = inputs.get("workloadOrdering") or {}
    return Settings(
        gates=gates(case),
        fair_sharing=sharing,
        admission_fair_sharing=_past_usage(inputs.get("admissionFairSharing") or inputs.get("afsConfig")),
        requeues_by_eviction_time=ordering.get("podsReadyRequeuingTimestamp", "Eviction") == "Eviction",
        transformations=tuple(_transformation(rule) for rule in inputs.get("resourceTransformations") or ()),
    )


def _past_usage(document: Mapping[str, Any] | None) -> AdmissionFairSharing | None:
    if document is None:
        return None
    weights = {resource: _fraction(weight) for resource, weight in (document.get("resourceWeights") or {}).items()}
    return AdmissionFairSharing(
        seconds(document.get("usageHalfLifeTime") or "0s"),
        seconds(document.get("usageSamplingInterval") or "5m"),
        weights,
    )


def _transformation(rule: Mapping[str, Any]) -> Transformation:
    return Transformation(
        rule["input"],
        rule.get("strategy") != "Replace",
        {resource: _fraction(factor) for resource, factor in (rule.get("outputs") or {}).items()},
        rule.get("multiplyBy") or None,
    )


def _fraction(value: str | float) -> Fraction:
    return Fraction(quantity.parse(value).nano, quantity.NANO)


def seconds(text: str) -> float:
    """Of a duration as Go writes it, `1m30s`."""
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION.findall(text))


# State

_ONE_QUEUE = ("clusterQueue", "secondaryClusterQueue", "lendingClusterQueue", "cq")
_MANY_QUEUES = ("clusterQueues", "siblingCQs")


def state(case: Case, found: Settings | None = None, *, with_pods: bool = False) -> QuotaState:
    """Everything that the case puts in place, with the workloads that hold quota counted. `with_pods`: its pods run
    beside the topology's own, and take room on their nodes."""
    inputs = case["inputs"]
    found = found or settings(case)
    made = QuotaState(found, _cluster(inputs, with_pods))
    for topology in views(kueue.Topology, inputs.get("topologies")):
        made.set_topology(topology)
    for flavor in views(kueue.ResourceFlavor, inputs.get("resourceFlavors")):
        made.set_flavor(flavor)
    for check in views(kueue.AdmissionCheck, inputs.get("admissionChecks")):
        made.checks[check.metadata.name] = check
    for cohort in views(kueue.Cohort, inputs.get("cohorts")):
        made.set_cohort(cohort)
    for queue in queues(inputs):
        made.set_queue(queue)
    for namespace in views(core.Namespace, inputs.get("namespaces")):
        made.namespaces[namespace.metadata.name] = namespace.metadata.labels or {}
    for local in views(kueue.LocalQueue, inputs.get("localQueues")):
        made.local_queues[f"{local.metadata.namespace}/{local.metadata.name}"] = local
    made.settle()
    for workload in (*(inputs.get("workloads") or ()), *(inputs.get("admitted") or ())):
        held = holder(workload, found)
        if held is not None:
            made.add(held)
    return made


def queues(inputs: Mapping[str, Any]) -> list[kueue.ClusterQueue]:
    documents = [inputs[key] for key in _ONE_QUEUE if isinstance(inputs.get(key), dict)]
    for key in _MANY_QUEUES:
        documents.extend(inputs.get(key) or ())
    return views(kueue.ClusterQueue, documents)


def _cluster(inputs: Mapping[str, Any], with_pods: bool) -> ClusterState:
    cluster = ClusterState.of(views(core.Node, inputs.get("nodes")))
    for number, pod in enumerate(inputs.get("pods") or () if with_pods else ()):
        read = view(core.Pod, pod)
        if read.spec.node_name and read.status.phase not in ("Succeeded", "Failed"):
            assign(cluster, pod, number=number)
    return cluster


def holder(document: Mapping[str, Any], found: Settings) -> WorkloadInfo | None:
    """A workload that holds quota; None where it holds none."""
    read = view(kueue.Workload, document)
    if read.status.admission is None:
        return None
    info = WorkloadInfo(read, read.status.admission.cluster_queue, found)
    return info if info.holds_quota and info.is_active else None


def pending(document: Mapping[str, Any], queue: str, found: Settings) -> WorkloadInfo:
    return WorkloadInfo(view(kueue.Workload, document), queue, found)


# Amounts


def flavor_amounts(nested: Mapping[str, Mapping[str, int]] | None) -> dict[FlavorResource, int]:
    """From `{flavor: {resource: amount}}`."""
    return {
        FlavorResource(flavor, resource): value
        for flavor, resources in (nested or {}).items()
        for resource, value in resources.items()
    }


def nested_amounts(flat: Mapping[FlavorResource, int]) -> dict[str, dict[str, int]]:
    made: dict[str, dict[str, int]] = {}
    for what, value in flat.items():
        made.setdefault(what.flavor, {})[what.resource] = value
    return made


def requests(listed: Mapping[str, str | int] | None) -> dict[str, int]:
    """From quantities by resource."""
    return {resource: amount(resource, value) for resource, value in (listed or {}).items()}


def use(made: QuotaState, queue: str, nested: Mapping[str, Mapping[str, int]] | None) -> None:
    """Quota of the queue that is used by nobody in particular."""
    made.queues[queue].node.add_all(flavor_amounts(nested))
