"""Queues of pending workloads, second passes, and when entering a queue is charged (FORMAT.md §4.7 and §8)."""

from collections.abc import Iterable
from typing import Any

from muster.api import core, kueue, timestamps
from muster.api.meta import Instant
from muster.cluster.namespaces import Namespaces
from muster.quota.fair_admission import Ledger, charges_entry, has_ledger
from muster.quota.queueing import PendingQueue, PendingQueues, RequeueReason, SecondPass, Verdict
from muster.quota.queueing.backoff import is_backoff_over
from muster.quota.queues import Queue, read_queue, read_weight
from muster.quota.settings import Settings
from muster.quota.tree import QuotaTree
from muster.quota.workloads import WorkloadInfo
from tests.conformance.adapters.kueue.building import pending, seconds, settings, view, views
from tests.conformance.cases import Adapters, Case, Outcome, Passed, compare

_LATER = RequeueReason.NAMESPACE_MISMATCH  # parks whatever the strategy
_AT_ONCE = RequeueReason.FAILED_AFTER_NOMINATION


def now_of(case: Case) -> Instant:
    return timestamps.parse(case["now"]) if case.get("now") else Instant(0.0)


def policy(strategy: str = "BestEffortFIFO", mode: str = "") -> Queue:
    spec: dict[str, Any] = {"queueingStrategy": strategy, "namespaceSelector": {}}
    if mode:
        spec["admissionScope"] = {"admissionMode": mode}
    return read_queue(view(kueue.ClusterQueue, {"metadata": {"name": "cq"}, "spec": spec}))


def bare(name: str, found: Settings, shape: str = "", reason: str = "") -> WorkloadInfo:
    document: dict[str, Any] = {"metadata": {"name": name, "namespace": "default"}}
    if reason:
        document["status"] = {"conditions": [{"type": "QuotaReserved", "status": "False", "reason": reason}]}
    info = pending(document, "cq", found)
    if shape:
        info.shape = shape
    return info


def keys(infos: Iterable[WorkloadInfo]) -> set[str]:
    return {info.key for info in infos}


def namespaces_of(inputs: dict[str, Any], fallback: Iterable[dict[str, Any]] = ()) -> Namespaces:
    """Those that the row names; where it names none, those that its workloads are in."""
    found = Namespaces()
    for namespace in views(core.Namespace, inputs.get("namespaces")):
        found[namespace.metadata.name] = namespace.metadata.labels or {}
    if not found:
        for workload in fallback:
            found[workload["metadata"].get("namespace", "")] = {}
    return found


def routed(case: Case) -> PendingQueues:
    """Every queue of the row, with its workloads in them."""
    inputs, found, now = case["inputs"], settings(case), now_of(case)
    workloads = inputs.get("workloads") or ()
    tree = QuotaTree()
    made = PendingQueues(found, tree, namespaces_of(inputs, workloads))
    for cohort in views(kueue.Cohort, inputs.get("cohorts")):
        tree.set_cohort(cohort.metadata.name, cohort.spec.parent_name or "", {})
    for queue in map(read_queue, views(kueue.ClusterQueue, inputs.get("clusterQueues"))):
        tree.set_queue(queue.name, queue.cohort, queue.quotas)
        made.set_queue(queue, now)
    for local in views(kueue.LocalQueue, inputs.get("localQueues")):
        made.set_local_queue(local, now)
    for workload in workloads:
        made.push(pending(workload, "", found), now)
    return made


# Order


def order(case: Case) -> Outcome:
    inputs, found, now = case["inputs"], settings(case), now_of(case)
    queue = PendingQueue(policy(inputs.get("queueingStrategy") or "StrictFIFO"), found)
    for name in ("w1", "w2"):
        queue.push(pending(inputs[name], "cq", found), now)
    first = queue.pop()
    return compare("first", first and first.view.metadata.name, case["want"]["expected"]) or Passed()


def order_by_usage(case: Case) -> Outcome:
    inputs, found, now = case["inputs"], settings(case), now_of(case)
    ledger = Ledger(found) if has_ledger(found) else None
    if ledger is not None:
        for local in views(kueue.LocalQueue, inputs.get("lqs")):
            key = f"{local.metadata.namespace}/{local.metadata.name}"
            ledger.set_weight(key, read_weight(local.spec.fair_sharing))
        for key, consumed in (inputs.get("initConsumedResources") or {}).items():
            ledger.seed(key, consumed, now)
    queue = PendingQueue(read_queue(view(kueue.ClusterQueue, inputs["cq"])), found, ledger)
    for workload in inputs["wls"]:
        queue.push(pending(workload, "cq", found), now)
    wanted = case["want"]["wantWl"]
    first = queue.pop()
    return compare("first", first and first.view.metadata.name, wanted and wanted["metadata"]["name"]) or Passed()


def heads(case: Case) -> Outcome:
    queues, want = routed(case), case["want"]
    assigned = {info.key: info.local_queue for info in queues}
    found = sorted(info.view.metadata.name for info in queues.heads(lambda name: "active-" in name))
    return (
        compare("heads", found, sorted(want["wantWorkloads"] or ()))
        or compare("local queues", assigned, want["wantAssigned"] or {})
        or Passed()
    )


# Coming, going and coming back


def changes(case: Case) -> Outcome:
    inputs, want, found, now = case["inputs"], case["want"], settings(case), now_of(case)
    queue = PendingQueue(read_queue(view(kueue.ClusterQueue, inputs["clusterQueue"])), found)

    def read(field: str) -> list[WorkloadInfo]:
        return [pending(item.get("workload", item), "cq", found) for item in inputs.get(field) or ()]

    for info in read("workloadsToAdd"):
        queue.push(info, now)
    for info in read("inadmissibleWorkloadsToRequeue"):
        queue.requeue(info, _LATER, now)
    for info in read("admissibleWorkloadsToRequeue"):
        queue.requeue(info, _AT_ONCE, now)
    for info in read("workloadsToUpdate"):
        queue.push(info, now)
    for info in read("workloadsToDelete"):
        queue.delete(info.key)
    moved = 0
    if inputs.get("queueInadmissibleWorkloads"):
        moved = queue.flush(namespaces_of(inputs).selected(queue.policy.selector), now)
    return (
        compare("moved", moved, want["wantInadmissibleWorkloadsRequeued"])
        or compare("active", keys(queue.active()), set(want["wantActiveWorkloads"] or ()))
        or compare("pending", sum(queue.counts()), want["wantPending"])
        or Passed()
    )


def requeue(case: Case) -> Outcome:
    inputs, want, found, now = case["inputs"], case["want"], settings(case), now_of(case)
    queue = PendingQueue(policy(inputs["queueingStrategy"]), found)
    info = bare("wl", found)
    queue.push(info, now)
    queue.pop()
    queue.requeue(info, RequeueReason(inputs.get("reason") or ""), now)
    is_sticky = queue.preemptor is not None and queue.preemptor.key == info.key and queue.preemptor.is_sticky
    return (
        compare("inadmissible", queue.get_parked(info.key) is not None, want["wantInadmissible"])
        or compare("sticky", is_sticky, want.get("wantSticky") or False)
        or Passed()
    )


def backoff(case: Case) -> Outcome:
    info = pending(case["inputs"]["workloadInfo"]["workload"], "cq", settings(case))
    return compare("over", is_backoff_over(info, now_of(case)), case["want"]["want"]) or Passed()


def push(case: Case) -> Outcome:
    want, found, now = case["want"], settings(case), now_of(case)
    queue = PendingQueue(policy(), found)
    queue.push(pending(case["inputs"]["workload"], "cq", found), now)
    parked = keys(queue.parked())
    first = queue.pop()
    wanted = want["wantWorkload"]
    return (
        compare("inadmissible", parked, set(want["wantInAdmissibleWorkloads"] or ()))
        or compare("first", first and first.view.metadata.name, wanted and wanted["workload"]["metadata"]["name"])
        or Passed()
    )


def flush(case: Case) -> Outcome:
    want, now, queues = case["want"], now_of(case), routed(case)
    for name in queues.queues:
        while (info := queues.pop(name)) is not None:
            queues.requeue(info, RequeueReason.NO_FIT, now)
    moved = queues.flush(case["inputs"]["cqNames"], now)
    active = {name: keys(queues.active(name)) for name in queues.queues if queues.active(name)}
    parked = {name: keys(queues.inadmissible(name)) for name in queues.queues if queues.inadmissible(name)}
    return (
        compare("moved", moved, want["wantMovedCount"])
        or compare("active", active, _sets(want["wantActive"]))
        or compare("inadmissible", parked, _sets(want["wantInadmissible"]))
        or Passed()
    )


def _sets(listed: dict[str, list[str]] | None) -> dict[str, set[str]]:
    return {name: set(found) for name, found in (listed or {}).items()}


def second_pass(case: Case) -> Outcome:
    inputs, want, found, now = case["inputs"], case["want"], settings(case), now_of(case)
    queue = SecondPass()
    for workload in inputs.get("workloads") or ():
        queue.queue(pending(workload, "", found), now)
    queued = None
    if inputs.get("updateWorkload"):
        queued = queue.retry(pending(inputs["updateWorkload"], "", found), now)
    ready = queue.take(Instant(now + seconds(inputs.get("passTime") or "0s")))
    return (
        compare("update queued", queued, want["wantUpdateQueued"])
        or compare("ready", keys(ready), set(want["wantReady"] or ()))
        or Passed()
    )


# Shapes


def hold_shape(case: Case) -> Outcome:
    inputs, want, found, now = case["inputs"], case["want"], settings(case), now_of(case)
    queue = PendingQueue(policy(), found)
    for name, shape in (inputs.get("heapWorkloads") or {}).items():
        queue.push(bare(name, found, shape), now)
    moved = queue.hold_shape(inputs["hashToRecord"], Verdict("", ""))
    return (
        compare("moved", moved, want["wantMoved"])
        or compare("counts", tuple(queue.counts()), (want["wantActive"], want["wantInadmissible"]))
        or Passed()
    )


def push_shape(case: Case) -> Outcome:
    inputs, want, found, now = case["inputs"], case["want"], settings(case), now_of(case)
    queue = PendingQueue(policy(), found)
    for shape in inputs.get("inadmissibleHashes") or ():
        queue.hold_shape(shape, Verdict("", ""))
    queue.push(bare("wl", found, inputs["pushHash"]), now)
    return compare("counts", tuple(queue.counts()), (want["wantActive"], want["wantInadmissible"])) or Passed()


def requeue_shape(case: Case) -> Outcome:
    inputs, found, now = case["inputs"], settings(case), now_of(case)
    queue = PendingQueue(policy(), found)
    info = bare("wl", found, "shape")
    queue.push(info, now)
    queue.pop()
    queue.requeue(info, RequeueReason(inputs.get("reason") or ""), now)
    return compare("held", "shape" in queue.shapes, case["want"]["wantHash"]) or Passed()


def reason_of_shape(case: Case) -> Outcome:
    inputs, want, found, now = case["inputs"], case["want"], settings(case), now_of(case)
    queue = PendingQueue(policy(), found)
    info = bare("wl", found, "shape", inputs.get("conditionReason") or "")
    queue.push(info, now)
    queue.pop()
    queue.requeue(info, RequeueReason(inputs.get("requeueReason") or ""), now)
    if inputs.get("deleteFromInadmissible"):
        queue.delete(info.key)
    verdict = queue.verdict(info.key)
    return (
        compare("known", verdict is not None, want["wantOk"])
        or compare("reason", verdict.reason if verdict is not None else "", want["wantReason"])
        or Passed()
    )


def charges(case: Case) -> Outcome:
    inputs, found = case["inputs"], settings(case)
    info = pending(inputs["wl"], "cq", found)
    queue = policy(mode=inputs.get("admissionMode") or "")
    return compare("charged", charges_entry(info, queue, found), case["want"]["want"]) or Passed()


ADAPTERS: Adapters = {
    "cache.queue.TestStrictFIFO": order,
    "cache.queue.TestFsAdmission": order_by_usage,
    "cache.queue.TestHeads": heads,
    "cache.queue.TestClusterQueueImpl": changes,
    "cache.queue.TestBestEffortFIFORequeueIfNotPresent": requeue,
    "cache.queue.TestStrictFIFORequeueIfNotPresent": requeue,
    "cache.queue.TestBackoffWaitingTimeExpired": backoff,
    "cache.queue.Test_PushOrUpdate": push,
    "cache.queue.TestQueueInadmissibleWorkloads": flush,
    "cache.queue.TestQueueSecondPassIfNeeded": second_pass,
    "cache.queue.TestRecordInadmissibleHash": hold_shape,
    "cache.queue.TestPushOrUpdateRespectsInadmissibleHashes": push_shape,
    "cache.queue.TestRequeueHashTriggerByReason": requeue_shape,
    "cache.queue.TestGetNoFitReason": reason_of_shape,
    "scheduler.TestShouldApplyEntryPenalty": charges,
}
