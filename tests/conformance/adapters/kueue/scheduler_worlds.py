"""A store, the queues and the quota of one scheduling case: cycles run over them, and their decisions are carried out
as a controller would (FORMAT.md §4)."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from muster.api import kueue, timestamps
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.quota.amounts import amount
from muster.quota.cycle import Cycle
from muster.quota.decisions import Admission, CycleResult, Decided, Event, Eviction, Requeue
from muster.quota.fair_admission import charges_entry
from muster.quota.limits import LimitRanges, read_limit_ranges
from muster.quota.queueing import PendingQueues, SecondPass
from muster.quota.settings import PodsReady, Settings
from muster.quota.state import QueueState
from muster.quota.topology import from_view
from muster.quota.workloads import WorkloadInfo
from tests.conformance.adapters.kueue import building
from tests.conformance.cases import Case

SOME_TIME = "2026-11-01T00:00:00Z"


def settings(case: Case) -> Settings:
    found = building.settings(case)
    if case["inputs"].get("podsReadyTracking"):
        return replace(found, pods_ready=PodsReady(blocks_admission=True))
    return found


class World:
    def __init__(self, case: Case, *, with_pods: bool = False) -> None:
        inputs = case["inputs"]
        self.now: Instant = timestamps.parse(case.get("now") or SOME_TIME)
        self.settings = settings(case)
        self.state = building.state(case, self.settings, with_pods=with_pods)
        self.documents: dict[str, Document] = {key_of(document): document for document in inputs.get("workloads") or ()}
        self.before = dict(self.documents)
        self.pending = PendingQueues(self.settings, self.state.tree, self.state.namespaces)
        for queue in self.state.queues.values():
            self.pending.set_queue(queue.policy, self.now)
        for local in self.state.local_queues.values():
            self.pending.set_local_queue(local, self.now)
        for document in self.documents.values():
            self.pending.push(building.pending(document, "", self.settings), self.now)
        self.second_pass = SecondPass()
        self.events: list[Event] = []
        self.writes: list[str] = []
        self.failure: Mapping[str, Any] | None = inputs.get("admissionError") or inputs.get("patchStatusErr")
        self._ranges = _limit_ranges(inputs.get("objects") or ())
        self._number = 0

    def queue_second_passes(self) -> None:
        for queue in self.state.queues.values():
            for info in queue.workloads.values():
                self.second_pass.queue(info, self.now)

    def run(self) -> CycleResult:
        self._number += 1
        self.state.settle()
        heads = self.second_pass.take(Instant(self.now + 1)) + self.pending.heads(self._is_active)
        cycle = Cycle(self.state, self.pending, self._ranges)
        result = cycle.run(heads, self.now, self._number)
        for decision in result.decisions:
            self._carry_out(cycle, decision)
        return result

    def flush(self) -> None:
        """All that was parked is looked at again."""
        self.pending.flush(list(self.state.queues), self.now)

    def delete(self, key: str) -> None:
        del self.documents[key]
        gone = self.state.remove(key)
        if gone is not None:
            self.state.make_room(gone.queue)
            self.pending.flush([gone.queue], self.now)
        self.pending.delete(key)

    def modify_meanwhile(self) -> None:
        """Somebody else changes every workload: what is written next is written over that."""
        for document in self.documents.values():
            version = int(document["metadata"].get("resourceVersion") or "0") + 1
            labels = {**document["metadata"].get("labels", {}), "changed": "true"}
            document["metadata"] = {**document["metadata"], "labels": labels, "resourceVersion": str(version)}

    # Decisions

    def _carry_out(self, cycle: Cycle, decision: Decided) -> None:
        is_taken = self._write(decision)
        if isinstance(decision, Requeue):
            self._put_back(decision)
        elif is_taken:
            self._record(decision)
            if isinstance(decision, Admission):
                self._admitted(decision)
        else:
            self._refused(cycle, decision)

    def _write(self, decision: Decided) -> bool:
        key = decision.info.key
        document = self.documents[key]
        made = decision.apply(document)
        if made is document:
            return True
        if self.failure is not None:
            return False
        version = document["metadata"].get("resourceVersion")
        if version:
            made["metadata"] = {**made["metadata"], "resourceVersion": str(int(version) + 1)}
        self.documents[key] = made
        self.writes.append(key)
        return True

    def _admitted(self, decision: Admission) -> None:
        key = decision.info.key
        queue = self.state.queues[decision.assumed.queue].policy
        self.pending.delete(key)
        self.second_pass.forget(key)
        if self.pending.ledger is not None and charges_entry(decision.info, queue, self.settings):
            self.pending.ledger.charge(decision.info, queue)

    def _refused(self, cycle: Cycle, decision: Decided) -> None:
        key = decision.info.key
        held = decision.info if decision.info.has_reservation else None
        cycle.roll_back(key, held)
        is_gone = (self.failure or {}).get("apiReason") == "NotFound"
        if isinstance(decision, Admission | Eviction) and not is_gone:
            again = decision.refused()
            if again is not None:
                self._put_back(again)
        elif is_gone:
            self.pending.delete(key)

    def _put_back(self, decision: Requeue) -> None:
        if decision.is_second_pass:
            if self.second_pass.retry(decision.info, self.now):
                self._record(decision)
            return
        self.pending.requeue(decision.info, decision.reason, self.now, decision.entry.pending_reason)
        self._record(decision)

    def _record(self, decision: Decided) -> None:
        self.events.extend(decision.events())

    def _is_active(self, name: str) -> bool:
        """A circle of cohorts leaves a queue's status as it is: its workloads are looked at, and told."""
        queue: QueueState | None = self.state.queues.get(name)
        return queue is not None and not self.state.inactive(queue)

    # Afterwards

    def holders(self) -> dict[str, WorkloadInfo]:
        return {key: info for queue in self.state.queues.values() for key, info in queue.workloads.items()}

    def left(self) -> dict[str, set[str]]:
        found = {name: {info.key for info in self.pending.active(name)} for name in self.pending.queues}
        return {name: keys for name, keys in found.items() if keys}

    def inadmissible_left(self) -> dict[str, set[str]]:
        found = {name: {info.key for info in self.pending.inadmissible(name)} for name in self.pending.queues}
        return {name: keys for name, keys in found.items() if keys}


def _limit_ranges(objects: Iterable[Document]) -> dict[str, LimitRanges]:
    by_namespace: dict[str, list[Document]] = {}
    for document in objects:
        if document.get("kind") == "LimitRange":
            by_namespace.setdefault(document["metadata"].get("namespace", ""), []).append(document)
    return {namespace: read_limit_ranges(found) for namespace, found in by_namespace.items()}


# Comparable forms


def key_of(document: Document) -> str:
    return f"{document['metadata'].get('namespace', '')}/{document['metadata']['name']}"


def without_empty(value: Any) -> Any:
    """Empty and missing are equal."""
    if isinstance(value, dict):
        kept = {key: without_empty(part) for key, part in value.items()}
        return {key: part for key, part in kept.items() if part not in (None, "", [], {}, 0, False)}
    if isinstance(value, list):
        return [without_empty(part) for part in value]
    return value


def plain_admission(document: Document | None) -> Any:
    if not document:
        return None
    pod_sets = [_plain_pod_set(pods) for pods in document.get("podSetAssignments") or ()]
    return without_empty({**document, "podSetAssignments": pod_sets})


def _plain_pod_set(document: Document) -> Document:
    plain = {**document, "resourceUsage": _amounts(document.get("resourceUsage"))}
    topology = document.get("topologyAssignment")
    if topology:
        read = from_view(building.view(kueue.TopologyAssignment, topology))
        domains = [(list(domain.values), domain.pods) for domain in read.domains]
        plain["topologyAssignment"] = {"levels": list(read.levels), "domains": domains}
    return plain


def _amounts(listed: Mapping[str, str] | None) -> dict[str, str]:
    # As text: nothing of a resource is still something that was asked for.
    return {resource: str(amount(resource, value)) for resource, value in (listed or {}).items()}


def held_admission(info: WorkloadInfo) -> Any:
    return plain_admission(msgspec.to_builtins(info.view.status.admission))


def plain_workload(document: Document, *, ignored: Iterable[str] = (), is_ordered: bool = False) -> Any:
    """`ignored`: fields of the metadata."""
    left_out = {"resourceVersion", *ignored}
    metadata = {key: value for key, value in document["metadata"].items() if key not in left_out}
    status = dict(document.get("status") or {})
    status["admission"] = plain_admission(status.get("admission"))
    listed = status.get("conditions") or []
    status["conditions"] = listed if is_ordered else {condition["type"]: condition for condition in listed}
    status["admissionChecks"] = [
        {key: value for key, value in check.items() if key != "lastTransitionTime"}
        for check in status.get("admissionChecks") or ()
    ]
    status["resourceRequests"] = [
        {**pods, "resources": _amounts(pods.get("resources"))} for pods in status.get("resourceRequests") or ()
    ]
    return without_empty({**document, "metadata": metadata, "status": status})
