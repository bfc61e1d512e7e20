"""Queues, workloads and cycles over them, for the tests of the admission cycle."""

from typing import Any

import msgspec

from muster.api import kueue, timestamps
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.quota.cycle import Cycle
from muster.quota.decisions import Admission, CycleResult, Decided, Requeue
from muster.quota.gates import Gates
from muster.quota.limits import LimitRanges
from muster.quota.queueing import PendingQueues
from muster.quota.settings import FairSharing, PodsReady, Settings
from muster.quota.state import QuotaState
from muster.quota.workloads import WorkloadInfo

NOW = timestamps.parse("2026-11-01T00:00:00Z")
FLAVOR = "default"


def settings(*, sharing: bool = False, pods_ready: PodsReady | None = None, **gates: bool) -> Settings:
    return Settings(
        gates=Gates.default().changed(gates),
        fair_sharing=FairSharing() if sharing else None,
        pods_ready=pods_ready,
    )


class World:
    """One flavor with cpus; a local queue of the same name leads to every cluster queue."""

    def __init__(self, chosen: Settings | None = None) -> None:
        self.settings = chosen or settings()
        self.state = QuotaState(self.settings)
        self.pending = PendingQueues(self.settings, self.state.tree, self.state.namespaces)
        self.documents: dict[str, Document] = {}
        self.ranges: dict[str, LimitRanges] = {}
        self.now: Instant = NOW
        self.cycles = 0
        self.state.namespaces["ns"] = {}
        self.flavor(FLAVOR)

    def flavor(self, name: str) -> None:
        self.state.set_flavor(msgspec.convert({"metadata": {"name": name}, "spec": {}}, kueue.ResourceFlavor))

    def queue(self, name: str, cpus: int, cohort: str = "", flavors: tuple[str, ...] = (FLAVOR,), **spec: Any) -> None:
        quotas = [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": str(cpus)}]} for flavor in flavors]
        document = {
            "metadata": {"name": name},
            "spec": {
                "cohortName": cohort,
                "namespaceSelector": {},
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": quotas}],
                **spec,
            },
        }
        self.state.set_queue(msgspec.convert(document, kueue.ClusterQueue))
        self.state.settle()
        self.pending.set_queue(self.state.queues[name].policy, self.now)
        local = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"clusterQueue": name}}
        self.pending.set_local_queue(msgspec.convert(local, kueue.LocalQueue), self.now)

    def workload(self, name: str, queue: str, cpus: int, *, priority: int = 0, **parts: Any) -> str:
        container = {"name": "c", "resources": {"requests": {"cpu": str(cpus)}, **parts.pop("resources", {})}}
        pods = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
        document: Document = {
            "metadata": {"name": name, "namespace": "ns", "uid": name, **parts.pop("metadata", {})},
            "spec": {"queueName": queue, "priority": priority, "podSets": [pods], **parts.pop("spec", {})},
            "status": parts,
        }
        return self.put(document)

    def put(self, document: Document) -> str:
        key = f"ns/{document['metadata']['name']}"
        self.documents[key] = document
        info = self.read(document)
        if info.holds_quota:
            self.state.add(info)
        else:
            self.pending.push(info, self.now)
        return key

    def read(self, document: Document) -> WorkloadInfo:
        view = msgspec.convert(document, kueue.Workload)
        admission = view.status.admission
        return WorkloadInfo(view, "" if admission is None else admission.cluster_queue, self.settings)

    def run(self) -> CycleResult:
        """One cycle, carried out."""
        self.cycles += 1
        cycle = Cycle(self.state, self.pending, self.ranges)
        result = cycle.run(self.pending.heads(lambda name: True), self.now, self.cycles)
        for decided in result.decisions:
            self.carry_out(decided)
        return result

    def carry_out(self, decided: Decided) -> None:
        key = decided.info.key
        self.documents[key] = decided.apply(self.documents[key])
        if isinstance(decided, Admission):
            self.pending.delete(key)
        elif isinstance(decided, Requeue):
            self.pending.requeue(decided.info, decided.reason, self.now, decided.entry.pending_reason)

    def leave(self, key: str) -> None:
        """It is gone, and with it what it held."""
        gone = self.state.remove(key)
        del self.documents[key]
        if gone is not None:
            self.state.make_room(gone.queue)
            self.pending.flush([gone.queue], self.now)

    # What came of it

    def condition(self, key: str, type: str) -> tuple[str, str] | None:
        for found in self.documents[key].get("status", {}).get("conditions", ()):
            if found["type"] == type:
                return found["status"], found["reason"]
        return None

    def message(self, key: str) -> str:
        found = self.documents[key]["status"]["conditions"]
        return next(str(one["message"]) for one in found if one["type"] == "QuotaReserved")

    def holders(self) -> set[str]:
        return set(self.state.holders)

    def usages(self) -> dict[tuple[bool, str], dict[Any, int]]:
        nodes = (*self.state.tree.queues.values(), *self.state.tree.cohorts.values())
        return {(node.is_queue, node.name): {what: used for what, used in node.usage.items() if used} for node in nodes}
