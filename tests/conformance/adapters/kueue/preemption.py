"""Preemption for quota (FORMAT.md §5)."""

from collections.abc import Mapping
from dataclasses import replace
from heapq import merge
from operator import itemgetter
from typing import Any

from muster.api import kueue, timestamps
from muster.api.meta import Instant
from muster.quota import assuming, status
from muster.quota.assignments import Assignment, FlavorChoice, Mode, PodSetAssignment
from muster.quota.preempting import Preemptor, Target, may_preempt, message
from muster.quota.preempting.messages import message_for
from muster.quota.preempting.visiting import Shares, Visits, Waiting
from muster.quota.queues import Victims
from muster.quota.ranking import rank_of, ranking
from muster.quota.settings import AdmissionFairSharing, Settings
from muster.quota.state import QueueState, QuotaState
from muster.quota.tree import Node
from muster.quota.workloads import WorkloadInfo
from tests.conformance.adapters.kueue import building
from tests.conformance.cases import Adapters, Case, Outcome, Passed, compare

MODES = {mode.shown: mode for mode in Mode}


# Searches


def classical(case: Case) -> Outcome:
    scene = _Scene(case)
    targets = scene.targets()
    documents = {_key(document): document for document in case["inputs"].get("admitted") or ()}
    for target in _untold(targets):
        told = message_for(scene.incoming, scene.queue, target)
        documents[target.info.key] = status.preempt(documents[target.info.key], target.reason, told, scene.now)
    found = sorted((_comparable(document) for document in documents.values()), key=_document_name)
    wanted = sorted((_comparable(document) for document in case["want"]["wantWorkloads"] or ()), key=_document_name)
    return (
        compare("preempted", len(targets), case["want"]["wantPreempted"])
        or compare("workloads", found, wanted)
        or compare("state afterwards", columns(scene.state), scene.before)
        or Passed()
    )


def fair(case: Case) -> Outcome:
    scene = _Scene(case)
    found = sorted(f"{target.info.key}:{target.reason}" for target in scene.targets())
    return (
        compare("preempted", found, sorted(case["want"]["wantPreempted"] or ()))
        or compare("state afterwards", columns(scene.state), scene.before)
        or Passed()
    )


def modified_meanwhile(case: Case) -> Outcome:
    """Somebody rewrites every workload after the decision and before it is written: what is written is a change of the
    status, of the workload as it is then."""
    scene = _Scene(case)
    documents = {_key(document): _rewritten(document) for document in case["inputs"]["workloads"]}
    for target in scene.targets():
        told = message_for(scene.incoming, scene.queue, target)
        written = status.preempt(documents[target.info.key], target.reason, told, scene.now)
        documents[target.info.key] = _rewritten(written)
    versions = {key: document["metadata"]["resourceVersion"] for key, document in documents.items()}
    wanted = case["want"]["wantWorkloads"]
    return (
        compare("versions", versions, {_key(document): document["metadata"]["resourceVersion"] for document in wanted})
        or compare(
            "workloads",
            sorted((_comparable(document) for document in documents.values()), key=_document_name),
            sorted((_comparable(document) for document in wanted), key=_document_name),
        )
        or Passed()
    )


def _rewritten(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **document,
        "metadata": {**document["metadata"], "resourceVersion": str(int(document["metadata"]["resourceVersion"]) + 1)},
    }


def issued_twice(case: Case) -> Outcome:
    """What was decided is known before the store tells of it: the state has the victim as evicted."""
    scene, want = _Scene(case), case["want"]
    first = scene.targets()
    for target in _untold(first):
        target.queue.put(assuming.evicted(target.info, status.Evicted.PREEMPTED, case["now"], scene.state.settings))
    second = scene.targets()
    return (
        compare("preempted at first", len(first), want["wantFirstCallPreempted"])
        or compare("preempted then", len(second), want["wantSecondCallPreempted"])
        or compare("written then", len(_untold(second)), want["wantSecondCallExtraPatches"])
        or Passed()
    )


def _untold(targets: list[Target]) -> list[Target]:
    return [target for target in targets if not target.info.is_evicted]


class _Scene:
    def __init__(self, case: Case) -> None:
        inputs = case["inputs"]
        self.now = _now(case)
        self.state = building.state(case)
        self.queue: QueueState = self.state.queues[inputs["targetCQ"]]
        self.incoming = building.pending(inputs["incoming"], inputs["targetCQ"], self.state.settings)
        self.assignment = assignment(inputs["assignment"])
        self.before = columns(self.state)

    def targets(self) -> list[Target]:
        return Preemptor(self.state, self.now).targets(self.incoming, self.queue, self.assignment)


def assignment(document: Mapping[str, Any]) -> Assignment:
    """Flavors as given; what they are asked for stands in the workload."""
    return Assignment(
        [
            PodSetAssignment(
                pods["name"],
                pods["count"],
                building.requests(pods.get("requests")),
                {
                    resource: FlavorChoice(choice["name"], MODES[choice["mode"]], choice.get("borrow") or 0)
                    for resource, choice in (pods.get("flavors") or {}).items()
                },
                list((pods.get("status") or {}).get("reasons") or ()),
            )
            for pods in document["podSets"]
        ]
    )


def columns(state: QuotaState) -> dict[str, object]:
    """All that a search might leave changed."""
    nodes = {("queue", name): node for name, node in state.tree.queues.items()}
    nodes.update({("cohort", name): node for name, node in state.tree.cohorts.items()})
    return {
        "usage": {name: {what: used for what, used in node.usage.items() if used} for name, node in nodes.items()},
        "workloads": {name: list(queue.workloads) for name, queue in state.queues.items()},
        "holders": dict(state.holders),
    }


def _key(document: Mapping[str, Any]) -> str:
    return f"{document['metadata'].get('namespace') or ''}/{document['metadata']['name']}"


def _document_name(document: Mapping[str, Any]) -> str:
    return str(document["metadata"]["name"])


def _comparable(document: Mapping[str, Any]) -> dict[str, Any]:
    """Conditions by type; what is empty as if it were missing; without the version."""
    made: dict[str, Any] = _without_empty(document)
    made["metadata"].pop("resourceVersion", None)
    found = made.setdefault("status", {})
    found["conditions"] = {condition["type"]: condition for condition in found.get("conditions") or ()}
    return made


def _without_empty(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: made for key, item in value.items() if (made := _without_empty(item)) not in (None, "", [], {})}
    return [_without_empty(item) for item in value] if isinstance(value, list) else value


# Order


def candidates_order(case: Case) -> Outcome:
    """A search merges what each queue has in order: those of other queues first."""
    by_usage = bool(case["featureGates"].get("AdmissionFairSharing"))
    settings = replace(building.settings(case), admission_fair_sharing=AdmissionFairSharing() if by_usage else None)
    own = case["inputs"]["preemptorClusterQueue"]
    by_queue: dict[str, list[WorkloadInfo]] = {}
    for described in case["inputs"]["candidates"]:
        by_queue.setdefault(described["clusterQueue"], []).append(_candidate(described, settings))
    rankings = {name: ranking(infos, _now(case), by_usage=by_usage) for name, infos in by_queue.items()}
    others = [found for name, found in rankings.items() if name != own]
    mine = [rankings[own]] if own in rankings else []
    runs = [
        *([found.evicted for found in group] for group in (others, mine)),
        *([found.others for found in group] for group in (others, mine)),
    ]
    names = [info.view.metadata.name for run in runs for _, info in merge(*run, key=itemgetter(0))]
    return compare("order", names, case["want"]["wantCandidates"]) or Passed()


def _candidate(described: Mapping[str, Any], settings: Settings) -> WorkloadInfo:
    info = building.pending(described["workload"], described["clusterQueue"], settings)
    info.local_queue_usage = described.get("localQueueFSUsage")
    return info


def queues_order(case: Case) -> Outcome:
    made, inputs = building.state(case), case["inputs"]
    now = _now(case)
    candidates: dict[Node, Waiting] = {}
    for name in inputs["candidateCQs"]:
        queue = made.queues[name]
        candidates[queue.node] = Waiting([(rank_of(info, now), info) for info in queue.workloads.values()])
    visits = Visits(made.queues[inputs["preemptorCQ"]].node, candidates, Shares())
    actions = list(inputs.get("actions") or ())
    order = []
    while (node := visits.next()) is not None:
        order.append(node.name)
        if actions and actions.pop(0) == "drop":
            candidates[node].clear()
        else:
            candidates[node].pop()
    return compare("order", order, list(case["want"]["wantOrder"] or ())) or Passed()


# Policies and words


def policy(case: Case) -> Outcome:
    inputs, settings = case["inputs"], building.settings(case)
    preemptor = building.pending(inputs["preemptor"], "", settings)
    candidate = building.pending(inputs["candidate"], "", settings)
    found = may_preempt(preemptor, candidate, Victims(inputs["policy"]))
    return compare("may preempt", found, case["want"]["want"]) or Passed()


def worded(case: Case) -> Outcome:
    inputs = case["inputs"]
    preemptor = building.view(kueue.Workload, inputs["preemptor"])
    found = message(
        preemptor,
        inputs.get("reason") or "",
        inputs.get("preemptorPath") or "",
        inputs.get("preempteePath") or "",
    )
    return compare("message", found, case["want"]["want"]) or Passed()


def priorities(case: Case) -> Outcome:
    info, want = building.pending(case["inputs"]["wl"], "", building.settings(case)), case["want"]
    return (
        compare("priority", info.priority, want["wantEffective"])
        or compare("base", info.base_priority, want["wantBase"])
        or compare("boost", info.priority - info.base_priority, want["wantBoost"])
        or Passed()
    )


def _now(case: Case) -> Instant:
    return timestamps.parse(case["now"])


ADAPTERS: Adapters = {
    "preemption.TestPreemption": classical,
    "preemption.TestHierarchicalPreemptions": classical,
    "preemption.TestFairPreemptions": fair,
    "preemption.TestFairPreemptionSkipsUnsatisfiableTournament": fair,
    "preemption.TestIssuePreemptionsSkipsDuplicate": issued_twice,
    "preemption.TestCandidatesOrdering": candidates_order,
    "preemption.fairsharing.TestMakeClusterQueueOrdering": queues_order,
    "preemption.common.TestSatisfiesPreemptionPolicy": policy,
    "preemption.TestPreemptionMessage": worded,
    "preemption.TestPriorityInfo": priorities,
    "preemption.TestPreemptionWhenWorkloadModifiedConcurrently": modified_meanwhile,
}
