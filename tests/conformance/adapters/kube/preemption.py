"""DefaultPreemption and preemption for pod groups (FORMAT.md §5)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, ClassVar

import numpy as np

from muster.cluster.groups import GroupKey
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.cluster.trial import Trial
from muster.placement.framework import Code, Plugin, Status
from muster.placement.judging import Judgement
from muster.placement.plugins.default_preemption import (
    DefaultPreemption,
    DefaultPreemptionArgs,
    Evictions,
    worded_for_gang,
)
from muster.placement.preempting import (
    Candidate,
    GangPreemption,
    GangPreemptor,
    NoPreemption,
    Ongoing,
    Options,
    Preemption,
    Rank,
    Victim,
    find_for_gang,
    ineligibility,
)
from muster.placement.preempting.candidates import best
from muster.placement.preempting.selecting import dry_run, select
from muster.placement.preempting.victims import is_more_important
from tests.conformance.adapters.kube.building import compare_status
from tests.conformance.adapters.kube.gangs import GROUP_KINDS, group_of
from tests.conformance.adapters.kube.preemption_scenes import AgreesTo, Made, Scene, exactly, plugins_of
from tests.conformance.cases import Adapters, Case, Failed, NotApplicable, Outcome, Passed, compare

SNAPSHOT = (
    "Injects failures of the shared snapshot's bookkeeping (starting, ending, cache keys of pods without UID); moves "
    "in thought here are changes of one owner's memory, in which pods without UID go by their name: they cannot fail so"
)
METRIC = "Counts a metric around a mocked evaluator; the core is pure and counts nothing"


# One pod


def post_filter(case: Case) -> Outcome:
    scene = Scene(case, plugins_of(case))
    pod = scene.info(case["pod"])
    extenders = [AgreesTo(described) for described in scene.knobs.get("extenders") or ()]
    plugin = DefaultPreemption(args_of(case), scene.groups, extenders=extenders)
    told = plugin.post_filter(pod, scene.judge(pod), scene.cluster, scene.budgets, resolvable=scene.resolvable())
    wanted = case["expect"]["status"]
    return (
        compare_status("status", told.status, wanted)
        or compare_result(told.outcome, case["expect"]["postFilterResult"])
        or Passed()
    )


def args_of(case: Case) -> DefaultPreemptionArgs:
    args = DefaultPreemptionArgs.from_document(case.get("args") or {})
    assert isinstance(args, DefaultPreemptionArgs), args
    return args


def compare_result(outcome: Preemption | NoPreemption, wanted: dict[str, Any] | None) -> Failed | None:
    found: dict[str, Any] | None
    if isinstance(outcome, Preemption):
        found = {"nominatedNodeName": outcome.node, "nominatingMode": 1}
    else:
        found = {"nominatedNodeName": "", "nominatingMode": 1} if outcome.clears_nomination else None
    return compare("result", found, wanted)


def preempt(case: Case) -> Outcome:
    scene = Scene(case, plugins_of(case))
    pod = scene.info(case["pod"])
    extenders = [AgreesTo(described) for described in scene.knobs.get("extenders") or ()]
    plugin = DefaultPreemption(args_of(case), scene.groups, extenders=extenders)
    cluster, everywhere = scene.cluster, scene.cluster.mask(True)
    outcome = plugin.post_filter(pod, scene.judge(pod), cluster, scene.budgets, resolvable=everywhere).outcome
    victims = outcome.victims if isinstance(outcome, Preemption) else ()
    failed = compare_result(outcome, case["expect"]["postFilterResult"]) or compare(
        "victims", {victim.key.name for victim in victims}, set(case["expect"]["victims"] or ())
    )
    if failed or not isinstance(outcome, Preemption):
        return failed or Passed()
    for victim in victims:
        cluster.assign(replace(victim, is_terminating=True, is_preempted=True), cluster.pods[victim.uid][1])
    waiting = replace(pod, nominated=outcome.node)
    again = plugin.post_filter(waiting, scene.judge(waiting), cluster, scene.budgets, resolvable=cluster.mask()).outcome
    return compare("a second preemption", isinstance(again, Preemption), False) or Passed()


def dry_runs(case: Case) -> Outcome:
    knobs = case["knobs"]
    fake = Made(lambda _pod, node, _cluster: node in knobs["rawNodeNames"], Code(knobs["fakeFilterReturnCode"]))
    more: list[Plugin] = [] if knobs["fakeFilterReturnCode"] == "Success" else [fake]
    names = sorted(node["metadata"]["name"] for node in case["nodes"])
    scene = Scene(case, plugins_of(case) + more, names)
    for cycle, document in enumerate(knobs["testPods"]):
        pod, options = scene.info(document), scene.options(cycle)
        limit = options.limit(len(names))
        slots = [scene.cluster.slots[name] for name in names]
        ran = dry_run(pod, slots, scene.judge(pod), scene.cluster, scene.budgets, options)
        found = [
            {
                "node": candidate.node,
                "numPDBViolations": candidate.violations,
                "victims": sorted(victim.key.name for victim in candidate.victims),
            }
            for candidate in sorted(ran.candidates, key=lambda candidate: candidate.node)
        ]
        failed = compare("candidates to find", limit, knobs["numCandidatesPerCycle"][cycle]) or compare(
            "candidates", found, case["expect"]["candidatesPerCycle"][cycle]
        )
        if failed:
            return failed
    return Passed()


def candidates_of(case: Case, scene: Scene, **rules: Any) -> list[Candidate]:
    pod = scene.info(case["pod"])
    slots = [scene.cluster.slots[name] for name in scene.knobs["nodeOrder"]]
    return dry_run(pod, slots, scene.judge(pod), scene.cluster, scene.budgets, scene.options(**rules)).candidates


def best_candidate(case: Case) -> Outcome:
    chosen = best(candidates_of(case, Scene(case, plugins_of(case))))
    found = None if chosen is None else chosen.node
    anyone = case["expect"]["nominatedNodeAnyOf"]
    return Passed() if found in anyone else Failed(f"chose {found}, wanted one of {anyone}")


def custom_selection(case: Case) -> Outcome:
    described = case["knobs"].get("isEligibleVictim")
    rules = {"may_evict": eligibility(described["$fn"], described["args"])} if described else {}
    found = candidates_of(case, Scene(case, plugins_of(case, "NodeResourcesFit")), **rules)
    names = {candidate.node: sorted(victim.key.name for victim in candidate.victims) for candidate in found}
    return compare("candidates", names, case["expect"]["candidates"]) or Passed()


def eligibility(name: str, args: Sequence[Any]) -> Callable[[Victim, str, PodInfo], bool]:
    match name:
        case "victimLabelsAreEligible":
            return lambda victim, _node, _preemptor: all(pod.labels.get(args[0]) == args[1] for pod in victim.pods)
        case "nodeNameIsEligible":
            return lambda _victim, node, _preemptor: node == args[0]
        case "priorityBelowThresholdCannotPreempt":
            return lambda _victim, _node, preemptor: preemptor.priority >= args[0]
        case "priorityAboveThresholdCannotBePreempted":
            return lambda victim, _node, _preemptor: victim.priority <= args[0]
    raise ValueError(name)


def custom_ordering(case: Case) -> Outcome:
    described = case["knobs"].get("moreImportantVictim")
    rules = {"is_more_important": ORDERS[described["$fn"]]} if described else {}
    found = candidates_of(case, Scene(case, plugins_of(case, "NodeResourcesFit")), **rules)
    victims = [victim.key.name for candidate in found for victim in candidate.victims]
    wanted = case["expect"]["victims"]
    if any(document["kind"] in GROUP_KINDS for document in case.get("objects") or ()):
        victims, wanted = sorted(victims), sorted(wanted)
    return compare("candidates", len(found), 1) or compare("victims", victims, wanted) or Passed()


def _usually(
    decides: Callable[[Victim, Victim], bool], says: Callable[[Victim, Victim], bool]
) -> Callable[[Victim, Victim], bool]:
    return lambda one, other: says(one, other) if decides(one, other) else is_more_important(one, other)


def _are_groups(one: Victim, other: Victim) -> bool:
    return one.rank is not Rank.POD and other.rank is not Rank.POD


def _group_name(victim: Victim) -> str:
    group = victim.pods[0].group
    return group.name if group else ""


ORDERS: Mapping[str, Callable[[Victim, Victim], bool]] = {
    "orderByOldestStartVictim": lambda one, other: one.started < other.started,
    "orderByPodNameVictim": lambda one, other: one.pods[0].key.name < other.pods[0].key.name,
    "orderByStandaloneOverPodGroupVictim": _usually(
        lambda one, other: (one.rank is Rank.POD) != (other.rank is Rank.POD), lambda one, _other: one.rank is Rank.POD
    ),
    "orderBySmallerPodGroupOverLargerVictim": _usually(
        lambda one, other: _are_groups(one, other) and len(one.pods) != len(other.pods),
        lambda one, other: len(one.pods) < len(other.pods),
    ),
    "orderByPodGroupNameVictim": _usually(
        lambda one, other: _are_groups(one, other) and _group_name(one) != _group_name(other),
        lambda one, other: _group_name(one) < _group_name(other),
    ),
}


def eligible(case: Case) -> Outcome:
    scene = Scene(case, ())
    is_hopeless = case["knobs"]["nominatedNodeStatus"]["code"] == "UnschedulableAndUnresolvable"
    refused = ineligibility(scene.info(case["pod"]), scene.cluster, scene.options(), is_hopeless)
    return compare("eligible", refused is None, case["expect"]["eligible"]) or Passed()


def victims_on_node(case: Case) -> Outcome:
    scene = Scene(case, plugins_of(case, "NodeResourcesFit"))
    pod = scene.info(case["pod"])
    with Trial(scene.cluster) as trial:
        slot = scene.cluster.slots[case["knobs"]["mainNode"]]
        found = select(pod, slot, scene.judge(pod), trial, scene.budgets, scene.options())
    expect = case["expect"]
    if isinstance(found, Status):
        return compare_status("status", found, expect["status"]) or Passed()
    return (
        compare("code", "Success", expect["status"]["code"])
        or compare("victims", {victim.key.name for victim in found.victims}, set(expect["victims"] or ()))
        or compare("violations", found.violations, expect["numPDBViolations"])
        or Passed()
    )


def pre_enqueue(case: Case) -> Outcome:
    """A preemption that was started and goes on keeps those it is for out of the queue."""
    scene = Scene(case, plugins_of(case, "NodeResourcesFit"))
    gang, evictions = case["knobs"].get("podGroupInfo"), Evictions()
    trigger = scene.info(case["knobs"]["podToTriggerPreemption"])
    plugin = DefaultPreemption(args_of(case), scene.groups, evictions)
    if gang and scene.knows_groups and trigger.group is not None:
        add_tree(scene, gang)
        if isinstance(gang_preemption(scene, gang, place_first(scene, gang)), GangPreemption):
            evictions.groups.add(key_of(gang))
    else:
        judgement = scene.judge(trigger)
        told = plugin.post_filter(trigger, judgement, scene.cluster, scene.budgets, resolvable=scene.resolvable())
        if isinstance(told.outcome, Preemption):
            evictions.pods.add(trigger.uid)
    if not scene.gates.get("SchedulerAsyncPreemption"):
        evictions.pods.clear()  # nothing is going on any more when a pod is next looked at
        evictions.groups.clear()
    found = plugin.pre_enqueue(scene.info(case["pod"]))
    return compare_status("PreEnqueue", found, case["expect"]["preEnqueue"]) or Passed()


# Groups


def add_tree(scene: Scene, described: dict[str, Any]) -> None:
    for document in (described.get("podGroup"), described.get("compositePodGroup")):
        if document is not None:
            scene.add_group(document)
    for child in described.get("children") or ():
        add_tree(scene, child)


def key_of(described: dict[str, Any]) -> GroupKey:
    return GroupKey(described["namespace"], described["name"], described["type"] == "compositepodgroup")


def gang_preemption(
    scene: Scene, described: dict[str, Any], place: Callable[[Trial], Status]
) -> GangPreemption | Ongoing | NoPreemption:
    members = [scene.info(document) for document in described.get("unscheduledPods") or ()]
    document = described.get("podGroup") or described.get("compositePodGroup")
    group = group_of(document) if document else None
    preemptor = GangPreemptor.of(members, group and replace(group, priority=group.priority or 0))
    judgements = {pod.uid: scene.judge(pod) for pod in members}
    judge: Callable[[PodInfo], Judgement] = lambda pod: judgements[pod.uid]  # noqa: E731
    return find_for_gang(preemptor, place, judge, scene.cluster, scene.budgets, Options(groups=scene.groups))


def place_first(scene: Scene, described: dict[str, Any]) -> Callable[[Trial], Status]:
    def place(trial: Trial) -> Status:
        for document in described.get("unscheduledPods") or ():
            pod = scene.info(document)
            slots = np.flatnonzero(scene.judge(pod).feasible)
            if not slots.size:
                return Status(Code.UNSCHEDULABLE)
            trial.assign(pod, scene.cluster.names[int(slots[0])])
        return Status()

    return place


def group_post_filter(case: Case) -> Outcome:
    scene, knobs = Scene(case, plugins_of(case)), case["knobs"]
    add_tree(scene, knobs["podGroupInfo"])
    code = Code(knobs["podGroupSchedulingFuncReturns"]["code"])
    found = gang_preemption(scene, knobs["podGroupInfo"], lambda _trial: Status(code))
    return compare_status("status", worded_for_gang(found), case["expect"]["status"]) or Passed()


TESTS: Mapping[str, Callable[[Case], Outcome]] = {
    "TestPostFilter": post_filter,
    "TestDryRunPreemption": dry_runs,
    "TestSelectBestCandidate": best_candidate,
    "TestCustomSelection": custom_selection,
    "TestCustomOrdering": custom_ordering,
    "TestPodEligibleToPreemptOthers": eligible,
    "TestPreempt": preempt,
    "TestSelectVictimsOnNode": victims_on_node,
    "TestPreEnqueue": pre_enqueue,
}


def default_preemption(case: Case) -> Outcome:
    if case["extensionPoint"] == "PodGroupPostFilter(metric)":
        return NotApplicable(METRIC)
    if case["extensionPoint"] == "PodGroupPostFilter":
        return NotApplicable(SNAPSHOT) if breaks_snapshot(case) else group_post_filter(case)
    return TESTS[case["test"]](case)


def breaks_snapshot(case: Case) -> bool:
    has_nameless = any(not pod["metadata"].get("uid") for pod in case.get("existingPods") or ())
    return has_nameless or any(case["knobs"].get(knob) for knob in ("startMutationError", "endMutationError"))


class Capacity(Made):
    """The cases' stand-in for resources: a node holds so much, and a pod weighs what its label `size` says."""

    name: ClassVar[str] = "capacity"

    def __init__(self, capacities: Sequence[dict[str, Any]]) -> None:
        super().__init__(self._is_full)
        self._capacities = capacities

    def _is_full(self, pod: PodInfo, node: str, cluster: ClusterState) -> bool:
        used = sum(self._weight(other) for other in cluster.pods_on[cluster.slots[node]].values())
        return any(
            found["nodeName"] == node and used + self._weight(pod) > found["capacity"] for found in self._capacities
        )

    def _weight(self, pod: PodInfo) -> int:
        return int(pod.labels.get("size", 1))


def victims_on_domain(case: Case) -> Outcome:
    knobs, expect = case["knobs"], case["expect"]
    scene = Scene(case, [Capacity(knobs["nodeCapacities"])])
    gang = {"unscheduledPods": knobs["preemptorPods"], "podGroup": knobs["preemptorPodGroup"]}
    found = gang_preemption(scene, gang, round_robin(scene, gang))
    if isinstance(found, NoPreemption):
        return compare_status("status", found.status, expect["status"]) or Passed()
    assert isinstance(found, GangPreemption)
    return (
        compare("code", "Success", expect["status"]["code"])
        or compare("victims", {victim.key.name for victim in found.victims}, set(expect["victims"] or ()))
        or compare("violations", found.violations, expect["numPDBViolations"])
        or compare("groups disrupted", found.disrupted_groups, expect["numPodGroupDisruptions"])
        or Passed()
    )


def round_robin(scene: Scene, described: dict[str, Any]) -> Callable[[Trial], Status]:
    gang = described["podGroup"]["spec"].get("schedulingPolicy", {}).get("gang")
    least = gang["minCount"] if gang else 1

    def place(trial: Trial) -> Status:
        placed, following, names = 0, 0, scene.cluster.names
        for document in described["unscheduledPods"]:
            pod = scene.info(document)
            feasible = scene.judge(pod).feasible
            slots = [(following + step) % len(names) for step in range(len(names))]
            chosen = next((slot for slot in slots if feasible[slot]), None)
            if chosen is not None:
                trial.assign(pod, names[chosen])
                placed, following = placed + 1, chosen + 1
        return Status() if placed >= least else Status(Code.UNSCHEDULABLE)

    return place


def group_preempt(case: Case) -> Outcome:
    knobs, expect = case["knobs"], case["expect"]
    scene = Scene(case, [Capacity(knobs.get("nodeCapacities") or ())])
    document = knobs["preemptorPodGroup"]
    if scene.gates.get("PodGroupPreemptionPolicy"):
        document = {**document, "spec": {"preemptionPolicy": "PreemptLowerPriority", **document["spec"]}}
    gang = {"unscheduledPods": knobs["preemptorPods"], "podGroup": document}
    found = gang_preemption(scene, gang, round_robin(scene, gang))
    names = None if isinstance(found, NoPreemption) else found.nodes
    wanted = expect["nominatingInfos"]
    by_uid = {
        pod["metadata"]["uid"]: info["value"]["nominatedNodeName"]
        for pod in knobs["preemptorPods"]
        for info in wanted or ()
        if info["key"]["name"] == pod["metadata"]["name"]
    }
    return (
        compare_status("status", found.status, expect["status"])
        or compare("nominations", names, None if wanted is None else by_uid)
        or Passed()
    )


RANKS = {"pod": Rank.POD, "podgroup": Rank.GROUP, "compositepodgroup": Rank.COMPOSITE}


def victim_of(described: dict[str, Any], scene: Scene) -> Victim:
    pods = tuple(scene.info(document, number) for number, document in enumerate(described["pods"] or ()))
    started = exactly(described["earliestStartTime"])
    return Victim(pods, described["priority"], RANKS[described["keyType"]], inf if started is None else started)


def beyond_budgets(case: Case) -> Outcome:
    scene = Scene(case, ())
    beyond, within = scene.budgets.split([victim_of(described, scene) for described in case["knobs"]["victims"]])
    return (
        compare(
            "beyond",
            [([pod.key.name for pod in victim.pods], count) for victim, count in beyond],
            [(names(found["victim"]), found["violateCount"]) for found in case["expect"]["violating"] or ()],
        )
        or compare(
            "within",
            [[pod.key.name for pod in victim.pods] for victim in within],
            [names(found) for found in case["expect"]["nonViolating"] or ()],
        )
        or Passed()
    )


def names(described: dict[str, Any]) -> list[str]:
    return [pod["metadata"].get("name", "") for pod in described["pods"]]


def more_important(case: Case) -> Outcome:
    scene = Scene(case, ())
    one, other = (victim_of(case["knobs"][name], scene) for name in ("victim1", "victim2"))
    found = is_more_important(one, other)
    return compare("more important", found, case["expect"]["firstMoreImportant"]) or Passed()


GROUP_TESTS: Mapping[str, Callable[[Case], Outcome]] = {
    "TestPodGroupEvaluator_SelectVictimsOnDomain": victims_on_domain,
    "TestPodGroupEvaluator_Preempt": group_preempt,
    "TestFilterVictimsWithPDBViolation": beyond_budgets,
    "TestMoreImportantVictim": more_important,
}


def group_preemption(case: Case) -> Outcome:
    return GROUP_TESTS[case["test"]](case)


ADAPTERS: Adapters = {"defaultpreemption": default_preemption, "podgroup_preemption": group_preemption}
