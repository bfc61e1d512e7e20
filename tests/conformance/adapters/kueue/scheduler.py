"""Whole admission cycles (FORMAT.md §4.1 to §4.6), and the parts of one (§4.7)."""

import re
from collections.abc import Callable
from typing import Any

from muster.api import conditions, kueue
from muster.quota import tournament
from muster.quota.amounts import FlavorResource
from muster.quota.assignments import Assignment, FlavorChoice, Mode, PodSetAssignment
from muster.quota.decisions import CycleResult, Moment, Requeue
from muster.quota.entries import Entry, Standing, order, to_reserve
from muster.quota.queueing import RequeueReason
from muster.quota.shares import NO_SHARE, Share
from muster.quota.workloads import ScanPosition, Usage, WorkloadInfo
from tests.conformance.adapters.kueue import building
from tests.conformance.adapters.kueue.scheduler_worlds import (
    World,
    held_admission,
    key_of,
    plain_admission,
    plain_workload,
    without_empty,
)
from tests.conformance.cases import Adapters, Case, Failed, NotApplicable, Outcome, Passed, compare

Check = Callable[[], Failed | None]


def _first(*checks: Failed | None) -> Outcome:
    return next((found for found in checks if found is not None), Passed())


# What is compared


def _workloads(world: World, wanted: Any, **how: Any) -> Failed | None:
    if wanted is None:
        return None
    found = {key: plain_workload(document, **how) for key, document in world.documents.items()}
    for key, document in {key_of(document): plain_workload(document, **how) for document in wanted}.items():
        if found.get(key) != document:
            return Failed(f"workload {key}: {_difference(found.get(key), document)}")
    return compare("workloads", sorted(found), sorted(key_of(document) for document in wanted))


def _difference(found: Any, wanted: Any) -> str:
    if isinstance(found, dict) and isinstance(wanted, dict):
        parts = [
            f"{key}: {_difference(found.get(key), wanted.get(key))}"
            for key in sorted({*found, *wanted})
            if found.get(key) != wanted.get(key)
        ]
        return "{" + "; ".join(parts) + "}"
    return f"found {found!r}, wanted {wanted!r}"


def _assignments(found: dict[str, Any], wanted: Any, what: str) -> Failed | None:
    return compare(what, found, {key: plain_admission(admission) for key, admission in (wanted or {}).items()})


def _left(world: World, want: dict[str, Any]) -> Failed | None:
    def sets(listed: Any) -> dict[str, set[str]]:
        return {name: set(keys) for name, keys in (listed or {}).items() if keys}

    return compare("left", world.left(), sets(want.get("wantLeft"))) or compare(
        "inadmissible left", world.inadmissible_left(), sets(want.get("wantInadmissibleLeft"))
    )


def _events(world: World, want: dict[str, Any], *, is_ordered: bool = True) -> Failed | None:
    ignores = want.get("eventComparison") == "ignoreMessage"

    def plain(about: str, kind: str, reason: str, message: str) -> tuple[str, ...]:
        return (about, kind, reason) if ignores else (about, kind, reason, message)

    found = [plain(event.about, event.type, event.reason, event.message) for event in world.events]
    wanted = [
        plain(
            f"{event['key'].get('namespace', '')}/{event['key']['name']}",
            event["eventType"],
            event["reason"],
            event.get("message", ""),
        )
        for event in want.get("wantEvents") or ()
    ]
    return compare("events", found if is_ordered else sorted(found), wanted if is_ordered else sorted(wanted))


def _counters(result: CycleResult, want: dict[str, Any]) -> Failed | None:
    skipped = want.get("wantSkippedPreemptions") or {}
    found = {name: result.skipped_preemptions.get(name, 0) for name in skipped}
    recomputed = want.get("wantPreemptionTargetRecomputations") or {}
    counted = {
        name: {outcome: result.recomputations.get(name, {}).get(outcome, 0) for outcome in outcomes}
        for name, outcomes in recomputed.items()
    }
    return compare("skipped preemptions", found, skipped) or compare("recomputations", counted, recomputed)


# Whole cycles


def _schedule(case: Case) -> Outcome:
    want, world = case["want"], World(case)
    result = world.run()
    held = {key: held_admission(info) for key, info in world.holders().items()}
    return _first(
        _workloads(world, want.get("wantWorkloads"), ignored=("creationTimestamp",)),
        _assignments(held, want.get("wantAssignments"), "assignments"),
        _left(world, want),
        _events(world, want) if want.get("wantEvents") else None,
        _counters(result, want),
    )


def _schedule_tas(case: Case) -> Outcome:
    want, world = case["want"], World(case, with_pods=True)
    world.queue_second_passes()
    untouched = {
        key for key, info in world.holders().items() if info.is_admitted and not info.view.status.unhealthy_nodes
    }
    world.run()
    held = {key: held_admission(info) for key, info in world.holders().items() if key not in untouched}
    return _first(
        _assignments(held, want.get("wantNewAssignments"), "new assignments"), _left(world, want), _events(world, want)
    )


def _schedule_tas_once(case: Case) -> Outcome:
    want, world = case["want"], World(case)
    untouched = {key for key, info in world.holders().items() if info.is_admitted}
    world.run()
    held = {key: held_admission(info) for key, info in world.holders().items() if key not in untouched}
    return _first(
        _workloads(world, want.get("wantWorkloads")),
        _assignments(held, want.get("wantNewAssignments"), "new assignments"),
        _left(world, want),
        _events(world, want, is_ordered=False),
    )


def _context(case: Case) -> Outcome:
    want, world = case["want"], World(case)
    world.run()
    first = _workloads(world, want.get("wantWorkloads"))
    for name in case["inputs"].get("deleteWorkloads") or ():
        world.delete(f"{name.get('namespace', '')}/{name['name']}")
    world.run()
    held = {key: held_admission(info) for key, info in world.holders().items()}
    unadmitted = [key for key, info in world.holders().items() if not info.is_admitted]
    return _first(
        first,
        _assignments(held, want.get("wantAdmissionsOnSecondSchedule"), "admissions on second schedule"),
        compare("not admitted", unadmitted, []),
    )


def _past_usage(case: Case) -> Outcome:
    inputs, world = case["inputs"], World(case)
    for name, usage in (inputs.get("initialUsage") or {}).items():
        if world.pending.ledger is not None:
            world.pending.ledger.seed(f"default/{name}", usage, world.now)
    gone = inputs.get("deleteQueue")
    if gone:
        world.state.local_queues.pop(f"default/{gone}")
    for _ in inputs.get("workloads") or ():
        world.run()
    return _workloads(world, case["want"].get("wantWorkloads"), is_ordered=True) or Passed()


def _scan_progress(case: Case) -> Outcome:
    inputs, want, world = case["inputs"], case["want"], World(case)
    document = inputs["clusterQueues"][0]
    for number in range(inputs["schedulingCycles"]):
        world.run()
        if not inputs.get("noChurn"):
            quota = document["spec"]["resourceGroups"][0]["flavors"][1]["resources"][0]
            quota["nominalQuota"] = "5" if number % 2 == 0 else "4"
            world.state.set_queue(building.view(kueue.ClusterQueue, document))
            world.state.settle()
        world.flush()

    def flavor(name: str) -> str:
        info = world.holders().get(f"default/{name}")
        return "" if info is None else info.pod_sets[0].flavors.get("cpu", "")

    return _first(
        compare("flavor of pending", flavor("pending"), want["wantPendingFlavor"]),
        compare("flavor of blocker", flavor("blocker"), want["wantBlockerFlavor"]),
    )


def _modified(case: Case) -> Outcome:
    """The interceptor of the Go test is somebody else's write between our decision and ours."""
    want, world = case["want"], World(case)
    write = world._write

    def interrupted(decision: Any) -> bool:
        world.modify_meanwhile()
        return write(decision)

    world._write = interrupted  # type: ignore[method-assign]
    world.run()
    versions = {key: document["metadata"].get("resourceVersion") for key, document in world.documents.items()}
    wanted = {key_of(document): document["metadata"].get("resourceVersion") for document in want["wantWorkloads"]}
    return _first(
        _workloads(world, want["wantWorkloads"], ignored=("labels", "creationTimestamp")),
        compare("resource versions", versions, wanted),
        _events(world, {**want, "eventComparison": "ignoreMessage"}) if want.get("wantEvents") else None,
    )


def _second_pass_unblocked(case: Case) -> Outcome:
    """`wantVerify` says in words what the Go test checks in code."""
    want, world = case["want"], World(case)
    world.queue_second_passes()
    world.run()
    (document,) = world.documents.values()
    admission = (document.get("status") or {}).get("admission") or {}
    pods = (admission.get("podSetAssignments") or [{}])[0]
    words = want["wantVerify"]
    found = (plain_admission(admission) or {}).get("podSetAssignments", [{}])[0].get("topologyAssignment")
    hosts = [values[-1] for values, _ in (found or {}).get("domains", ())]
    unwanted = re.search(r"no domain whose lowest value is '([^']+)'", words)
    return _first(
        compare("reserved", conditions.is_true_in(document, "QuotaReserved"), want["wantQuotaReserved"]),
        compare("admission", bool(admission), want["wantAdmissionPresent"]),
        compare("writes", len(world.writes), want["wantStatusPatches"]),
        compare("topology", bool(found), True),
        compare("delayed", pods.get("delayedTopologyRequest"), "Ready") if "'Ready'" in words else None,
        compare("hosts", unwanted.group(1) in hosts, False) if unwanted else None,
        compare("admitted", conditions.is_true_in(document, "Admitted"), True) if "still Admitted" in words else None,
    )


# Parts of a cycle


def _entry(case: Case, document: dict[str, Any]) -> Entry:
    found = building.settings(case)
    info = building.pending(document["workload"], "", found)
    entry = Entry(info, assignment=Assignment(borrowing=document.get("borrowing") or 0))
    entry.is_preemptor = bool(document.get("isPreemptor"))
    return entry


def _ordering(case: Case) -> Outcome:
    gates = building.gates(case)
    entries = [_entry(case, document) for document in case["inputs"]["input"]]
    entries.sort(key=lambda entry: order(entry, gates))
    return compare("order", [entry.info.view.metadata.name for entry in entries], case["want"]["wantOrder"]) or Passed()


def _less(case: Case) -> Outcome:
    inputs, gates = case["inputs"], building.gates(case)
    shares = {
        (row["key"]["parentCohort"], row["key"]["workloadKey"]): _share(row["value"])
        for row in inputs.get("drsValues") or ()
    }

    def rank(entry: Entry) -> tournament.Rank:
        key = entry.info.key
        share = shares.get((inputs["parentCohort"], key), NO_SHARE)
        requested = building.flavor_amounts((inputs.get("requestedFRs") or {}).get(key))
        return tournament.rank(entry.info, share, requested, gates, is_preemptor=entry.is_preemptor)

    # The last part of a rank only makes the order total: in Kueue, entries that differ in nothing else are equal.
    a, b = (rank(_entry(case, inputs[name]))[:-1] for name in ("a", "b"))
    return compare("less", a < b, case["want"]["wantLess"]) or Passed()


def _share(value: dict[str, Any]) -> Share:
    borrowed = frozenset(FlavorResource(row["flavor"], row["resource"]) for row in value.get("borrowedFRs") or ())
    weight = value.get("fairWeight")
    ratio = float(value.get("unweightedRatio") or 0)
    return Share(ratio, float(1 if weight is None else weight), value.get("dominantResource") or "", borrowed)


def _reserving(case: Case) -> Outcome:
    inputs = case["inputs"]
    state = building.state(case)
    queue = next(iter(state.queues.values()))
    building.use(state, queue.name, inputs.get("cqUsage"))
    mode = next(mode for mode in Mode if mode.shown == inputs["assignmentMode"])
    pods = PodSetAssignment("one", 1, {}, {"cpu": FlavorChoice("any", mode)}, ["mode"])
    assignment = Assignment([pods], borrowing=inputs.get("borrowing") or 0)
    info = building.pending({"metadata": {"name": "w"}, "spec": {}}, queue.name, state.settings)
    entry = Entry(info, queue, assignment, mode, usage=Usage(building.flavor_amounts(inputs["assignmentUsage"])))
    found = building.nested_amounts(to_reserve(entry, queue))
    return compare("reserved", found, case["want"]["wantReserved"]) or Passed()


def _put_back(case: Case) -> Outcome:
    inputs, want, world = case["inputs"], case["want"], World(case)
    said = inputs["entry"]
    (info,) = world.pending.heads(lambda name: True)
    entry = _said_entry(info, said)
    decision = Requeue(entry, Moment(world.now, world.settings))
    for _ in range(2):
        made = decision.apply(world.documents[info.key])
        if made is not world.documents[info.key]:
            world.documents[info.key] = made
            world.writes.append(info.key)
        world.pending.requeue(info, decision.reason, world.now, said.get("quotaReservedReason") or "")
    status = dict(world.documents[info.key].get("status") or {})
    return _first(
        compare("status", _untimed(status), _untimed(want.get("wantStatus") or {})),
        compare("writes", len(world.writes), want["wantStatusUpdates"]),
        _left(world, {"wantLeft": want["wantWorkloads"], "wantInadmissibleLeft": want["wantInadmissible"]}),
    )


def _said_entry(info: WorkloadInfo, said: dict[str, Any]) -> Entry:
    entry = Entry(info, standing=Standing(said["status"]))
    reason = RequeueReason(said.get("requeueReason") or "")
    entry.refuse(said.get("quotaReservedReason") or "", said.get("inadmissibleMsg") or "", reason)
    return entry


def _untimed(status: dict[str, Any]) -> Any:
    listed = {
        condition["type"]: {key: value for key, value in condition.items() if key != "lastTransitionTime"}
        for condition in status.get("conditions") or ()
    }
    return without_empty({**status, "conditions": listed})


def _outcome(case: Case) -> Outcome:
    inputs, want = case["inputs"], case["want"]
    info = building.pending({"metadata": {"name": "w"}, "spec": {}}, "", building.settings(case))
    info.scan = ScanPosition([])
    entry = Entry(info)
    entry.refuse("", inputs.get("inadmissibleMsg") or "")
    entry.preempt(inputs.get("preempted") or 0, inputs.get("errors") or 0)
    return _first(
        compare("message", entry.message, want["wantMessage"]),
        compare("reason", entry.requeue_reason, want["wantRequeueReason"]),
        compare("scan is forgotten", info.scan is None, want["wantLastAssignmentNil"]),
    )


def _skipping(case: Case) -> Outcome:
    inputs, want = case["inputs"], case["want"]
    info = building.pending({"metadata": {"name": "w"}, "spec": {}}, "", building.settings(case))
    info.scan = ScanPosition([])
    entry = Entry(info)
    said = inputs.get("message") or inputs.get("inadmissibleMsg") or "skipped"
    entry.skip(said, building.gates(case))
    found = {
        "wantStatus": entry.standing.value,
        "wantMessage": entry.message,
        "wantRequeueReason": entry.requeue_reason.value,
        "wantQuotaReservedReason": entry.pending_reason,
        "wantLastAssignmentNil": info.scan is None,
    }
    unknown = sorted(want.keys() - found.keys())
    if unknown:
        return NotApplicable(f"asks for {', '.join(unknown)} of Kueue's own entry type")
    return _first(*(compare(key, found[key], value) for key, value in want.items()))


ADAPTERS: Adapters = {
    "scheduler.TestSchedule": _schedule,
    "scheduler.TestScheduleForFairSharing": _schedule,
    "scheduler.TestScheduleConcurrentAdmission": _schedule,
    "scheduler.TestScheduleRecomputePreemptionTargets": _schedule,
    "scheduler.TestScheduleForTAS": _schedule_tas,
    "scheduler.TestScheduleForTASPreemption": _schedule_tas_once,
    "scheduler.TestScheduleForTASCohorts": _schedule_tas_once,
    "scheduler.TestLastSchedulingContext": _context,
    "scheduler.TestScheduleForAFS": _past_usage,
    "scheduler.TestScheduleForPreserveFlavorScanProgress": _scan_progress,
    "scheduler.TestSchedulerWhenWorkloadModifiedConcurrently": _modified,
    "scheduler.TestScheduleForTASWhenWorkloadModifiedConcurrently": _modified,
    "scheduler.TestSecondPassSkipsWaitForPodsReadyBlock": _second_pass_unblocked,
    "scheduler.TestEntryOrdering": _ordering,
    "scheduler.TestEntryComparerLess": _less,
    "scheduler.TestResourcesToReserve": _reserving,
    "scheduler.TestRequeueAndUpdate": _put_back,
    "scheduler.TestEntryMarkPreemptionOutcome": _outcome,
    "scheduler.TestEntryMarkSkipped": _skipping,
}
