"""The objects that stand for queues: ClusterQueues and Cohorts, LocalQueues that lead to them, and their one flavor."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from muster.api import volcano
from muster.api.kueue import names
from muster.api.raw import Document
from muster.api.volcano.defaults import ROOT_QUEUE
from muster.api.volcano.queue_naming import FLAVOR, managed_labels, quota_name
from muster.quota.amounts import shown
from muster.quota.queues import (
    PROBLEM_ANNOTATION,
    RULES_ANNOTATION,
    UNDECLARED_ANNOTATION,
    VOLCANO_RULES,
    Stop,
    Strategy,
)
from muster.quota.volcano_queues.reading import Place, Places, read
from muster.quota.volcano_queues.sharing import Amounts, Claim, split

_OPEN = ("", "Open")
_FIFO = "fifo"


@dataclass(frozen=True, slots=True)
class Translation:
    """Documents by name; and what is wrong with queues, by theirs."""

    cluster_queues: Mapping[str, Document]
    cohorts: Mapping[str, Document]
    problems: Mapping[str, str]


@dataclass(slots=True)
class _Shares:
    """What each place has for all below it, and what of that is not handed on."""

    whole: dict[str, dict[str, int]] = field(default_factory=dict)
    kept: dict[str, dict[str, int]] = field(default_factory=dict)


def translate(queues: Iterable[volcano.Queue], total: Amounts) -> Translation:
    """`total`: what the nodes have. A tree of one queue in which nothing is limited lets everything in."""
    places = read(queues)
    factor = places.overcommit
    if factor is not None:
        total = {resource: int(amount * factor) for resource, amount in total.items()}
    resources = sorted({*total, *places.resources()})
    shares = _shared_out(places, total, resources)
    is_free = factor is None and _is_free(places)
    cluster_queues = {quota_name(name): _lost_queue(name, problem) for name, problem in places.lost.items()}
    cohorts = {}
    for place in places.by_name.values():
        quotas = [] if is_free else [_quota(place, shares, resource) for resource in resources]
        name = quota_name(place.name)
        if place.name == ROOT_QUEUE or places.below(place.name):
            cohorts[name] = _cohort(place, quotas)
        else:
            cluster_queues[name] = _cluster_queue(place, quotas, is_free=is_free)
    return Translation(cluster_queues, cohorts, places.lost)


def _is_free(places: Places) -> bool:
    is_alone = len(places.by_name) <= 2 and not places.lost
    return is_alone and all(place.is_unlimited for place in places.by_name.values())


# Shares


def _shared_out(places: Places, total: Amounts, resources: Iterable[str]) -> _Shares:
    root = places.by_name[ROOT_QUEUE]
    shares = _Shares()
    for resource in resources:
        have = min(total.get(resource, 0), root.capability.get(resource, total.get(resource, 0)))
        _hand_down(places, root, resource, have, shares)
    return shares


def _hand_down(places: Places, place: Place, resource: str, have: int, shares: _Shares) -> None:
    children = places.below(place.name)
    parts = split(have, [_claim(places, child, resource) for child in children])
    shares.whole.setdefault(place.name, {})[resource] = have
    shares.kept.setdefault(place.name, {})[resource] = have - sum(parts)
    for child, part in zip(children, parts, strict=True):
        _hand_down(places, child, resource, part, shares)


def _claim(places: Places, place: Place, resource: str) -> Claim:
    """With what those below it are guaranteed; and where it does not say what it deserves, what they deserve."""
    below = [_claim(places, child, resource) for child in places.below(place.name)]
    deserved = place.deserved.get(resource)
    if deserved is None and any(claim.deserved is not None for claim in below):
        deserved = sum(claim.wish for claim in below)
    least = max(place.guarantee.get(resource, 0), sum(claim.floor for claim in below))
    return Claim(least, place.capability.get(resource), deserved, place.weight)


# Objects


def flavor() -> Document:
    return {"metadata": {"name": FLAVOR, "labels": managed_labels(ROOT_QUEUE)}, "spec": {}}


def local_queue(namespace: str, queue: str) -> Document:
    name = quota_name(queue)
    metadata = {"name": name, "namespace": namespace, "labels": managed_labels(queue)}
    return {"metadata": metadata, "spec": {"clusterQueue": name}}


def _quota(place: Place, shares: _Shares, resource: str) -> Document:
    whole, kept = shares.whole[place.name][resource], shares.kept[place.name][resource]
    quota: Document = {"name": resource, "nominalQuota": shown(resource, kept)}
    if place.name == ROOT_QUEUE:
        return quota
    if resource in place.capability:
        quota["borrowingLimit"] = shown(resource, place.capability[resource] - whole)
    if resource in place.guarantee:
        quota["lendingLimit"] = shown(resource, max(0, whole - place.guarantee[resource]))
    return quota


def _groups(quotas: list[Document]) -> list[Document]:
    if not quotas:
        return []
    covered = [quota["name"] for quota in quotas]
    return [{"coveredResources": covered, "flavors": [{"name": FLAVOR, "resources": quotas}]}]


def _cohort(place: Place, quotas: list[Document]) -> Document:
    spec: Document = {"resourceGroups": _groups(quotas), "fairSharing": {"weight": str(place.weight)}}
    if place.name != ROOT_QUEUE:
        spec["parentName"] = quota_name(place.parent)
    return {"metadata": _metadata(place.name, _priority(place)), "spec": spec}


def _cluster_queue(place: Place, quotas: list[Document], *, is_free: bool) -> Document:
    queue = place.queue
    annotations = {RULES_ANNOTATION: VOLCANO_RULES, **_priority(place)}
    if is_free:
        annotations[UNDECLARED_ANNOTATION] = "free"
    if queue is not None and queue.spec.reclaimable is False:
        annotations[names.RECLAIMABLE_ANNOTATION] = "false"
    is_open = queue is None or (queue.status.state or "") in _OPEN
    is_strict = queue is not None and queue.spec.dequeue_strategy == _FIFO
    spec: Document = {
        "cohortName": quota_name(place.parent),
        "namespaceSelector": {},
        "queueingStrategy": str(Strategy.STRICT if is_strict else Strategy.BEST_EFFORT),
        "resourceGroups": _groups(quotas),
        "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
        "stopPolicy": str(Stop.NONE if is_open else Stop.HOLD),
        "fairSharing": {"weight": str(place.weight)},
    }
    return {"metadata": _metadata(place.name, annotations), "spec": spec}


def _lost_queue(name: str, problem: str) -> Document:
    """It owns nothing, and says why."""
    return {"metadata": _metadata(name, {PROBLEM_ANNOTATION: problem}), "spec": {"namespaceSelector": {}}}


def _priority(place: Place) -> dict[str, str]:
    priority = place.queue.spec.priority if place.queue is not None else None
    return {names.QUEUE_PRIORITY_ANNOTATION: str(priority)} if priority else {}


def _metadata(queue: str, annotations: Mapping[str, str]) -> Document:
    metadata: Document = {"name": quota_name(queue), "labels": managed_labels(queue)}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return metadata
